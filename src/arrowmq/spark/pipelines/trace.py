"""Latencies out of the trace topic: how long sending took, how long a message waited, how long consuming took.

Clients with message tracing on write to RMQ_SYS_TRACE_TOPIC: one `Pub` for each message sent, `SubBefore` and
`SubAfter` for each delivery. Fields are separated by 0x01 and records by 0x02.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import Report

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@dataclass
class Traced:
    sends: int = 0
    deliveries: int = 0
    failures: int = 0
    by_topic: list[Any] = field(default_factory=list)
    by_group: list[Any] = field(default_factory=list)
    by_minute: list[Any] = field(default_factory=list)
    report: Path | None = None


def trace(
    spark: Any,
    *,
    namesrv: str | None = None,
    store: str | None = None,
    trace_topic: str = TRACE_TOPIC,
    since_ms: int | None = None,
    report: str | None = None,
    display: Display | None = None,
) -> Traced:
    """Reads the trace topic of a cluster, or of a store directory, and measures."""
    if (namesrv is None) == (store is None):
        raise ValueError("say where the trace is: either namesrv or store")
    display = display or Display()
    if namesrv is not None:
        reader = spark.read.format("arrowmq").option("namesrv", namesrv).option("topic", trace_topic)
        if since_ms is not None:
            reader = reader.option("startingTimestamp", since_ms)
            reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    else:
        reader = spark.read.format("arrowmq.store").option("path", store).option("topic", trace_topic)
    frame = reader.option("columns", "body,storeTimestamp").load()
    views(spark, frame)
    result = Traced()
    display.job(spark, "measure", lambda: _measure(spark, result))
    if report is not None:
        result.report = _report(result, trace_topic).write(report)
    return result


def views(spark: Any, frame: Any) -> None:
    """Temporary views `trace_pub`, `trace_before` and `trace_after`, one row for each trace record."""
    records = frame.selectExpr("explode(split(cast(body as string), '\\u0002')) as record").where("record != ''")
    fields = records.selectExpr("split(record, '\\u0001') as f").cache()
    pub = fields.where("f[0] = 'Pub' and size(f) >= 14").selectExpr(
        "timestamp_millis(cast(f[1] as bigint)) as at", "f[3] as producerGroup", "f[4] as topic", "f[5] as msgId",
        "cast(f[9] as bigint) as bodyBytes", "cast(f[10] as bigint) as costMs", "f[13] = 'true' as succeeded",
    )  # fmt: skip
    before = fields.where("f[0] = 'SubBefore' and size(f) >= 7").selectExpr(
        "timestamp_millis(cast(f[1] as bigint)) as at", "f[3] as consumerGroup", "f[4] as requestId", "f[5] as msgId",
        "cast(f[6] as int) as retryTimes",
    )  # fmt: skip
    after = fields.where("f[0] = 'SubAfter' and size(f) >= 5").selectExpr(
        "f[1] as requestId", "f[2] as msgId", "cast(f[3] as bigint) as costMs", "f[4] = 'true' as succeeded",
    )  # fmt: skip
    for name, view in (("trace_pub", pub), ("trace_before", before), ("trace_after", after)):
        view.createOrReplaceTempView(name)


def _measure(spark: Any, result: Traced) -> None:
    percentiles = "percentile_approx({0}, array(0.5, 0.9, 0.99), 1000) as {1}"
    result.by_topic = spark.sql(
        "select topic, count(*) as sends, count_if(not succeeded) as failed, avg(bodyBytes) as meanBytes, "
        f"{percentiles.format('costMs', 'send')} from trace_pub group by topic order by sends desc"
    ).collect()
    result.by_group = spark.sql(
        "select b.consumerGroup, p.topic, count(*) as deliveries, count_if(not a.succeeded) as failed, "
        "count_if(b.retryTimes > 0) as retried, "
        + percentiles.format("unix_millis(b.at) - unix_millis(p.at)", "waited")
        + ", "
        + percentiles.format("a.costMs", "consumed")
        + " from trace_before b left join trace_after a on a.requestId = b.requestId and a.msgId = b.msgId "
        "left join trace_pub p on p.msgId = b.msgId group by 1, 2 order by deliveries desc"
    ).collect()
    result.by_minute = spark.sql(
        "select date_format(at, 'HH:mm') as minute, min(at) as first, "
        f"{percentiles.format('costMs', 'send')} from trace_pub group by 1 order by first"
    ).collect()
    result.sends = sum(row.sends for row in result.by_topic)
    result.deliveries = sum(row.deliveries for row in result.by_group)
    result.failures = sum(row.failed for row in result.by_topic) + sum(row.failed for row in result.by_group)


def _report(result: Traced, topic: str) -> Report:
    page = Report("Latency, from message traces", f"Out of topic {topic}; times in milliseconds.")
    page.numbers(
        [
            ("sends", f"{result.sends:,}", False),
            ("deliveries", f"{result.deliveries:,}", False),
            ("failures", f"{result.failures:,}", result.failures > 0),
        ]
    )
    page.heading("Time to send and store, by minute")
    names = ("median", "90 %", "99 %")
    page.curves(
        [(name, [(row.minute, row.send[index] or 0) for row in result.by_minute]) for index, name in enumerate(names)],
        "ms",
    )
    page.heading("Sending and storing, by topic")
    page.table(
        ["topic", "sends", "failed", "mean bytes", "median", "90 %", "99 %"],
        [(row.topic, row.sends, row.failed, row.meanBytes, *_three(row.send)) for row in result.by_topic],
    )
    page.heading("From send to delivery, by group")
    page.table(
        ["group", "topic", "deliveries", "retried", "median", "90 %", "99 %"],
        [(row.consumerGroup, row.topic, row.deliveries, row.retried, *_three(row.waited)) for row in result.by_group],
    )
    page.heading("Consuming, by group")
    page.table(
        ["group", "topic", "failed", "median", "90 %", "99 %"],
        [(row.consumerGroup, row.topic, row.failed, *_three(row.consumed)) for row in result.by_group],
    )
    return page


def _three(values: list[Any] | None) -> list[Any]:
    return list(values) if values else [None, None, None]

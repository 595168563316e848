"""Latencies out of the trace topic: how long sending took, how long a message waited, how long consuming took.

Clients with message tracing on write to RMQ_SYS_TRACE_TOPIC: one `Pub` for each message sent, `SubBefore` and
`SubAfter` for each delivery. Fields are separated by 0x01 and records by 0x02. A trace does not say when the broker
stored a message; with `with_stored` the traced topics themselves are read for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import Report

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
# RocketMQ's ConsumeReturnType, by number.
OUTCOMES = ("success", "time-out", "exception", "no answer", "refused by the listener")


@dataclass
class Traced:
    """Percentiles are lists of the median, 90 % and 99 %, in milliseconds; None where nothing was measured."""

    sends: int = 0
    deliveries: int = 0
    failures: int = 0
    unreadable: int = 0
    by_topic: list[Any] = field(default_factory=list)
    by_group: list[Any] = field(default_factory=list)
    by_minute: list[Any] = field(default_factory=list)
    stored: dict[str, list[Any]] = field(default_factory=dict)
    report: Path | None = None


def trace(
    spark: Any,
    *,
    namesrv: str | None = None,
    store: str | None = None,
    trace_topic: str = TRACE_TOPIC,
    since_ms: int | None = None,
    with_stored: bool = False,
    report: str | None = None,
    display: Display | None = None,
) -> Traced:
    """Reads the trace topic of a cluster, or of store directories, and measures.

    `with_stored` also reads the traced topics, for the time from a message's birth to its storing: that is the
    broker's clock against the producer's.
    """
    if (namesrv is None) == (store is None):
        raise ValueError("say where the trace is: either namesrv or store")
    display = display or Display()

    def reader(topics: str) -> Any:
        if store is not None:
            return spark.read.format("arrowmq.store").option("path", store).option("topic", topics)
        found = spark.read.format("arrowmq").option("namesrv", namesrv).option("topic", topics)
        if since_ms is None:
            return found
        return found.option("startingTimestamp", since_ms).option("startingOffsetsByTimestampStrategy", "latest")

    frame = reader(trace_topic).option("columns", "body,storeTimestamp").load()
    if store is not None and since_ms is not None:
        frame = frame.where(f"unix_millis(storeTimestamp) >= {since_ms}")
    result = Traced()
    fields = views(spark, frame)
    try:
        display.job(spark, "measure", lambda: _measure(spark, fields, result))
    finally:
        fields.unpersist()
    if with_stored and result.by_topic:
        topics = ",".join(row.topic for row in result.by_topic)
        messages = reader(topics).option("columns", "topic,msgId,bornTimestamp,storeTimestamp").load()
        display.job(spark, "time of storing", lambda: _measure_stored(messages, result))
    if report is not None:
        result.report = trace_report(result, trace_topic).write(report)
    return result


def views(spark: Any, frame: Any) -> Any:
    """Temporary views `trace_pub`, `trace_before` and `trace_after`, one row for each trace record.

    Gives back what they are made of, which is cached: unpersist it when done. Fields that are no numbers become null.
    """
    records = frame.selectExpr("explode(split(cast(body as string), '\\u0002')) as record").where("record != ''")
    fields = records.selectExpr("split(record, '\\u0001') as f").cache()
    outcomes = ", ".join(f"{number}, '{name}'" for number, name in enumerate(OUTCOMES))
    pub = fields.where(_IS_PUB).selectExpr(
        "timestamp_millis(try_cast(f[1] as bigint)) as at", "f[3] as producerGroup", "f[4] as topic", "f[5] as msgId",
        "try_cast(f[9] as bigint) as bodyBytes", "try_cast(f[10] as bigint) as costMs", "f[13] = 'true' as succeeded",
    )  # fmt: skip
    before = fields.where(_IS_BEFORE).selectExpr(
        "timestamp_millis(try_cast(f[1] as bigint)) as at", "f[3] as consumerGroup", "f[4] as requestId",
        "f[5] as msgId", "try_cast(f[6] as int) as retryTimes",
    )  # fmt: skip
    after = fields.where(_IS_AFTER).selectExpr(
        "f[1] as requestId", "f[2] as msgId", "try_cast(f[3] as bigint) as costMs", "f[4] = 'true' as succeeded",
        f"decode(try_cast(try_element_at(f, 7) as int), {outcomes}, 'failure') as outcome",
    )  # fmt: skip
    for name, view in (("trace_pub", pub), ("trace_before", before), ("trace_after", after)):
        view.createOrReplaceTempView(name)
    return fields


_IS_PUB = "f[0] = 'Pub' and size(f) >= 14"
_IS_BEFORE = "f[0] = 'SubBefore' and size(f) >= 7"
_IS_AFTER = "f[0] = 'SubAfter' and size(f) >= 5"
# Of transactions and recalls there are further kinds, which say nothing of time.
_IS_KNOWN = f"({_IS_PUB}) or ({_IS_BEFORE}) or ({_IS_AFTER}) or f[0] in ('EndTransaction', 'Recall')"
_PERCENTILES = "percentile_approx({0}, array(0.5, 0.9, 0.99), 1000) as {1}"


def _measure(spark: Any, fields: Any, result: Traced) -> None:
    result.unreadable = fields.where(f"not ({_IS_KNOWN})").count()
    result.by_topic = spark.sql(
        "select topic, count(*) as sends, count_if(not succeeded) as failed, avg(bodyBytes) as meanBytes, "
        f"{_PERCENTILES.format('costMs', 'send')} from trace_pub group by topic order by sends desc, topic"
    ).collect()
    # A message that is delivered again has waited for its retry, too: only the first try says how long the way was.
    result.by_group = spark.sql(
        "select b.consumerGroup, p.topic, count(*) as deliveries, count_if(not a.succeeded) as failed, "
        "count_if(b.retryTimes > 0) as retried, count_if(a.requestId is null) as unfinished, "
        + _PERCENTILES.format("if(b.retryTimes > 0, null, unix_millis(b.at) - unix_millis(p.at))", "waited")
        + ", "
        + _PERCENTILES.format("a.costMs", "consumed")
        + " from trace_before b left join trace_after a on a.requestId = b.requestId and a.msgId = b.msgId "
        "left join trace_pub p on p.msgId = b.msgId group by 1, 2 order by deliveries desc, 1, 2"
    ).collect()
    result.by_minute = spark.sql(
        "select date_format(at, 'MM-dd HH:mm') as minute, count(*) as sends, "
        f"{_PERCENTILES.format('costMs', 'send')} from trace_pub where at is not null group by 1 order by 1"
    ).collect()
    result.sends = sum(row.sends for row in result.by_topic)
    result.deliveries = sum(row.deliveries for row in result.by_group)
    result.failures = sum(row.failed for row in result.by_topic) + sum(row.failed for row in result.by_group)


def _measure_stored(messages: Any, result: Traced) -> None:
    messages.createOrReplaceTempView("traced_messages")
    rows = messages.sparkSession.sql(
        "select m.topic, "
        + _PERCENTILES.format("unix_millis(m.storeTimestamp) - unix_millis(m.bornTimestamp)", "stored")
        + " from traced_messages m join trace_pub p on p.msgId = m.msgId and p.topic = m.topic group by 1"
    ).collect()
    result.stored = {row.topic: list(row.stored) for row in rows}


def trace_report(result: Traced, topic: str) -> Report:
    page = Report("Latency, from message traces", f"Out of topic {topic}; times in milliseconds.")
    numbers = [
        ("sends", f"{result.sends:,}", False),
        ("deliveries", f"{result.deliveries:,}", False),
        ("failures", f"{result.failures:,}", result.failures > 0),
    ]
    if result.unreadable:
        numbers.append(("records not understood", f"{result.unreadable:,}", True))
    page.numbers(numbers)
    page.heading("Time to send, by minute")
    names = ("median", "90 %", "99 %")
    # Of a minute whose records do not say how long sending took there is nothing to draw.
    minutes = [row for row in result.by_minute[-24 * 60 :] if row.send]
    days = {row.minute[:5] for row in minutes}
    page.curves(
        [
            (name, [(row.minute if len(days) > 1 else row.minute[6:], row.send[index]) for row in minutes])
            for index, name in enumerate(names)
        ],
        "ms",
    )
    page.heading("Sending, by topic: from the call to the broker's answer")
    page.table(
        ["topic", "sends", "failed", "mean bytes", "median", "90 %", "99 %"],
        [
            (row.topic, row.sends, row.failed, row.meanBytes and round(row.meanBytes), *_three(row.send))
            for row in result.by_topic
        ],
        empty="no send was traced",
    )
    if result.stored:
        page.heading("Storing, by topic: from a message's birth to the broker's clock at storing")
        page.table(
            ["topic", "median", "90 %", "99 %"],
            [(name, *_three(values)) for name, values in sorted(result.stored.items())],
        )
    page.heading("Waiting, by group: from the send to the first delivery")
    page.table(
        ["group", "topic", "deliveries", "retried", "median", "90 %", "99 %"],
        [(row.consumerGroup, row.topic, row.deliveries, row.retried, *_three(row.waited)) for row in result.by_group],
        empty="no delivery was traced",
    )
    page.heading("Consuming, by group: how long the listener took")
    page.table(
        ["group", "topic", "failed", "unfinished", "median", "90 %", "99 %"],
        [(row.consumerGroup, row.topic, row.failed, row.unfinished, *_three(row.consumed)) for row in result.by_group],
        empty="no delivery was traced",
    )
    return page


def _three(values: list[Any] | None) -> list[Any]:
    return list(values) if values else [None, None, None]

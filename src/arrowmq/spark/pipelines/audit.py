"""Every record of a cluster's stores, verified: counts, sizes, keys, hot topics, gaps, duplicates, damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import Report, size_text

MOST_ROWS = 200  # of gaps, duplicates and damage in a report


@dataclass
class Audited:
    messages: int = 0
    bytes: int = 0
    topics: list[Any] = field(default_factory=list)
    gaps: list[Any] = field(default_factory=list)
    duplicates: list[Any] = field(default_factory=list)
    damage: list[Any] = field(default_factory=list)
    hours: list[Any] = field(default_factory=list)
    report: Path | None = None

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.gaps


def audit(
    spark: Any,
    *,
    stores: list[str],
    topics: str | None = None,
    report: str | None = None,
    display: Display | None = None,
) -> Audited:
    """Scans the stores (folders of brokers, of their slaves, of backups) and compares what they hold."""
    display = display or Display()
    result = Audited()

    def scan(table: str | None = None) -> Any:
        reader = spark.read.format("arrowmq.store").option("path", ",".join(stores))
        if table is not None:
            return reader.option("table", table).load()
        reader = reader.option(
            "columns",
            "topic,brokerName,queueId,queueOffset,commitLogOffset,msgId,keys,storeTimestamp,storeSize,bornTimestamp,storeHost",
        )
        return (reader if topics is None else reader.option("topic", topics)).load()

    records = scan().cache()
    try:
        records.createOrReplaceTempView("audited_records")
        display.job(spark, "verify records", lambda: _count(spark, result))
        result.gaps = display.job(spark, "look for gaps", lambda: _gaps(spark))
        result.duplicates = display.job(spark, "look for duplicates", lambda: _duplicates(spark))
        result.damage = display.job(spark, "list damage", lambda: scan("damage").limit(MOST_ROWS).collect())
    finally:
        records.unpersist()
    if report is not None:
        result.report = _report(result, stores).write(report)
    return result


def _count(spark: Any, result: Audited) -> None:
    result.topics = spark.sql(
        "select topic, count(*) as messages, sum(storeSize) as bytes, count(distinct brokerName, queueId) as queues, "
        "sum(size(`keys`)) as keyCount, approx_count_distinct(`keys`) as distinctKeys, "
        "percentile_approx(storeSize, 0.5) as medianBytes, max(storeSize) as largestBytes, "
        "min(storeTimestamp) as first, max(storeTimestamp) as last "
        "from audited_records group by topic order by bytes desc"
    ).collect()
    result.messages = sum(row.messages for row in result.topics)
    result.bytes = sum(row.bytes for row in result.topics)
    result.hours = spark.sql(
        "select date_format(storeTimestamp, 'MM-dd HH') as hour, count(*) as messages from audited_records "
        "group by 1 order by 1"
    ).collect()


def _gaps(spark: Any) -> list[Any]:
    """Queue offsets that no record has, between the first and the last of a queue."""
    return list(
        spark.sql(
            "with offsets as (select distinct brokerName, topic, queueId, queueOffset from audited_records), "
            "steps as (select *, lead(queueOffset) over (partition by brokerName, topic, queueId order by queueOffset) "
            "as following from offsets) "
            "select brokerName, topic, queueId, queueOffset + 1 as firstMissing, following - 1 as lastMissing, "
            f"following - queueOffset - 1 as missing from steps where following > queueOffset + 1 limit {MOST_ROWS}"
        ).collect()
    )


def _duplicates(spark: Any) -> list[Any]:
    """One id several times in a topic: sent twice, or held by several stores."""
    return list(
        spark.sql(
            "select topic, msgId, count(*) as copies, count(distinct brokerName, storeHost) as stores "
            "from audited_records where topic not like 'RMQ_SYS_TRANS%' and topic not like 'rmq_sys_%' "
            f"group by topic, msgId having count(*) > 1 order by copies desc, msgId limit {MOST_ROWS}"
        ).collect()
    )


def _report(result: Audited, stores: list[str]) -> Report:
    page = Report("Audit of stores", ", ".join(stores))
    page.numbers(
        [
            ("messages verified", f"{result.messages:,}", False),
            ("stored bytes", size_text(result.bytes), False),
            ("topics", f"{len(result.topics):,}", False),
            ("damaged records", f"{len(result.damage):,}", bool(result.damage)),
            ("gaps", f"{len(result.gaps):,}", bool(result.gaps)),
            ("ids seen twice", f"{len(result.duplicates):,}", False),
        ]
    )
    page.heading("Messages by hour of storing")
    page.bars([(row.hour + "h", row.messages) for row in result.hours[-72:]], "messages")
    page.heading("Hot topics, by bytes")
    page.bars([(row.topic, row.bytes) for row in result.topics[:12]], "bytes")
    page.heading("Topics")
    page.table(
        ["topic", "messages", "bytes", "queues", "keys", "median", "largest", "first", "last"],
        [
            (
                row.topic, row.messages, size_text(row.bytes), row.queues, row.keyCount, row.medianBytes,
                row.largestBytes, f"{row.first:%m-%d %H:%M:%S}", f"{row.last:%m-%d %H:%M:%S}",
            )
            for row in result.topics
        ],
    )  # fmt: skip
    page.heading("Damage")
    page.table(
        ["segment", "offset", "bytes", "what"],
        [(row.path, row.commitLogOffset, row.size, row.reason) for row in result.damage],
        empty="every record is whole",
    )
    page.heading("Gaps in queues")
    page.table(
        ["topic", "broker", "queue", "first missing", "last missing"],
        [(row.topic, row.brokerName, row.queueId, row.firstMissing, row.lastMissing) for row in result.gaps],
        empty="no queue has a gap",
    )
    page.heading("Ids that occur more than once")
    page.table(
        ["topic", "message id", "copies", "stores"],
        [(row.topic, row.msgId, row.copies, row.stores) for row in result.duplicates[:50]],
        empty="every id occurs once",
    )
    return page

"""Topics into tables: Parquet or Delta, by topic, date and hour, each message exactly once.

The stream's checkpoint lies beside the table, so the same command goes on where the last run ended, however that was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import Report, size_text

FORMATS = ("parquet", "delta", "iceberg")


@dataclass(frozen=True)
class Archived:
    rows: int
    path: str
    report: Path | None


def archive(
    spark: Any,
    *,
    namesrv: str,
    path: str,
    topics: str | None = None,
    topic_pattern: str | None = None,
    table_format: str = "parquet",
    tags: str | None = None,
    sql: str | None = None,
    group: str | None = None,
    max_offsets_per_trigger: int = 500_000,
    follow: str | None = None,
    report: str | None = None,
    options: dict[str, str] | None = None,
    display: Display | None = None,
) -> Archived:
    """Copies what is there now (with `follow="1 minute"`, what comes) into `path/data`, beside `path/checkpoint`."""
    if table_format not in FORMATS:
        raise ValueError(f"format {table_format!r} is none of {', '.join(FORMATS)}")
    display = display or Display()
    reader = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    given = {
        "topics": topics,
        "topicPattern": topic_pattern,
        "tags": tags,
        "sql": sql,
        "group": group,
        **(options or {}),
    }
    for name, value in given.items():
        if value is not None:
            reader = reader.option(name, value)
    messages = reader.load().selectExpr("*", "cast(storeTimestamp as date) as date", "hour(storeTimestamp) as hour")
    writer = messages.writeStream.format(table_format).partitionBy("topic", "date", "hour").outputMode("append")
    writer = writer.option("checkpointLocation", f"{path}/checkpoint").queryName("archive")
    if follow is not None:
        writer = writer.trigger(processingTime=follow)
    else:
        writer = writer.trigger(availableNow=True)
    rows = display.stream(lambda: writer.start(f"{path}/data"), "archive")
    made = None
    if report is not None:
        made = display.job(spark, "report", lambda: _report(spark, f"{path}/data", table_format).write(report))
    return Archived(rows, f"{path}/data", made)


def _report(spark: Any, data: str, table_format: str) -> Report:
    table = spark.read.format(table_format).load(data).select("topic", "date", "hour", "storeSize")
    counted = table.groupBy("topic", "date", "hour").agg({"*": "count", "storeSize": "sum"})
    hours = counted.toDF("topic", "date", "hour", "rows", "bytes").collect()
    page = Report("Archive of topics", f"What {data} holds, by topic and hour of storing.")
    by_topic: dict[str, tuple[int, int]] = {}
    by_hour: dict[str, int] = {}
    for row in hours:
        rows, size = by_topic.get(row.topic, (0, 0))
        by_topic[row.topic] = (rows + row.rows, size + row.bytes)
        moment = f"{row.date} {row.hour:02d}h"
        by_hour[moment] = by_hour.get(moment, 0) + row.rows
    page.numbers(
        [
            ("messages", f"{sum(rows for rows, _ in by_topic.values()):,}", False),
            ("stored bytes", size_text(sum(size for _, size in by_topic.values())), False),
            ("topics", f"{len(by_topic):,}", False),
            ("hours", f"{len(by_hour):,}", False),
        ]
    )
    page.heading("Messages by hour")
    page.bars([(moment, by_hour[moment]) for moment in sorted(by_hour)[-72:]], "messages")
    page.heading("Topics")
    page.table(
        ["topic", "messages", "stored bytes", "mean bytes"],
        [
            (topic, rows, size_text(size), size / max(1, rows))
            for topic, (rows, size) in sorted(by_topic.items(), key=lambda item: -item[1][0])
        ],
    )
    return page

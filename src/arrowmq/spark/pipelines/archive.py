"""Topics into tables: Parquet or Delta, by topic, date and hour, each message exactly once.

The stream's checkpoint lies beside the table, so the same command goes on where the last run ended, however that was.
A Parquet table is a folder with a log of its files (`_spark_metadata`), which Spark's own reader follows: files that a
killed run has left behind are not in it. Delta keeps the number of the last batch in its own log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any

from arrowmq.spark.cluster import cluster_of
from arrowmq.spark.options import OptionError
from arrowmq.spark.pipelines.files import Folder
from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import Report, by_time, is_brief, size_text
from arrowmq.spark.source.options import SourceOptions

FORMATS = ("parquet", "delta", "iceberg")
ASKED = "archive.json"


@dataclass(frozen=True)
class Archived:
    """`rows` were copied by this run."""

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
        raise OptionError("format", f"{table_format!r} is none of {', '.join(FORMATS)}")
    display = display or Display()
    given = source_options(namesrv, topics, topic_pattern, tags, sql, group, options)
    given["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    check_source(given)
    folder = Folder(spark, path)
    asked = {"format": table_format, "tags": tags, "sql": sql}
    earlier = folder.read_json(ASKED)
    for name, value in asked.items():
        if earlier is not None and earlier[name] != value:
            raise OptionError(name, f"{path} was begun with {earlier[name]}, not {value}: choose another folder")

    def start() -> Any:
        messages = spark.readStream.format("arrowmq").options(**given).load()
        messages = messages.selectExpr("*", "cast(storeTimestamp as date) as date", "hour(storeTimestamp) as hour")
        writer = messages.writeStream.format(table_format).partitionBy("topic", "date", "hour").outputMode("append")
        writer = writer.option("checkpointLocation", f"{path}/checkpoint").queryName("archive")
        writer = writer.trigger(availableNow=True) if follow is None else _every(writer, follow)
        if earlier is None:
            folder.write_json(ASKED, asked)
        return writer.start(f"{path}/data")

    rows = display.stream(start, "archive")
    made = None
    if report is not None:
        made = display.job(spark, "report", lambda: archive_report(spark, path, table_format).write(report))
    return Archived(rows, f"{path}/data", made)


def _every(writer: Any, interval: str) -> Any:
    from pyspark.errors import PySparkException

    try:
        return writer.trigger(processingTime=interval)
    except PySparkException:
        raise OptionError("follow", f"{interval!r} is not an interval such as '30 seconds' or '1 minute'") from None


def source_options(
    namesrv: str,
    topics: str | None,
    topic_pattern: str | None,
    tags: str | None,
    sql: str | None,
    group: str | None,
    options: dict[str, str] | None = None,
) -> dict[str, str]:
    given = {
        "namesrv": namesrv, "topics": topics, "topicPattern": topic_pattern, "tags": tags, "sql": sql, "group": group,
        "startingOffsets": "earliest", **(options or {}),
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def check_source(given: dict[str, str]) -> None:
    """Asks the cluster for the topics before anything is written: what is wrong shows while nothing is there yet."""
    options = SourceOptions.parse(given, is_stream=True)
    queues, _ = options.read_queues(cluster_of(options.connection))
    if not queues and options.topic_pattern is not None:
        raise OptionError("topicPattern", f"no topic's name matches {options.topic_pattern!r}")


def archive_report(spark: Any, path: str, table_format: str) -> Report:
    """What the table holds, of all runs together."""
    data = f"{path}/data"
    page = Report("Archive of topics", f"What {data} holds, by topic and time of storing.")
    hours: list[Any] = []
    by_minute: list[Any] = []
    # A first run that found no message has made no table that could be read.
    if Folder(spark, data).exists("_spark_metadata/0" if table_format == "parquet" else None):
        table = spark.read.format(table_format).load(data)
        table = table.selectExpr("topic", "date", "hour", "storeSize", "date_trunc('minute', storeTimestamp) as minute")
        counted = table.groupBy("topic", "date", "hour").agg({"*": "count", "storeSize": "sum"})
        hours = counted.toDF("topic", "date", "hour", "rows", "bytes").collect()
        if is_brief(datetime.combine(row.date, time(row.hour)) for row in hours):
            by_minute = table.groupBy("minute").count().collect()
    by_topic: dict[str, tuple[int, int]] = {}
    by_hour: dict[datetime, int] = {}
    for row in hours:
        rows, size = by_topic.get(row.topic, (0, 0))
        by_topic[row.topic] = (rows + row.rows, size + row.bytes)
        moment = datetime.combine(row.date, time(row.hour))
        by_hour[moment] = by_hour.get(moment, 0) + row.rows
    page.numbers(
        [
            ("messages", f"{sum(rows for rows, _ in by_topic.values()):,}", False),
            ("stored size", size_text(sum(size for _, size in by_topic.values())), False),
            ("topic" if len(by_topic) == 1 else "topics", f"{len(by_topic):,}", False),
            ("active hour" if len(by_hour) == 1 else "active hours", f"{len(by_hour):,}", False),
        ]
    )
    page.heading("Messages by time of storing")
    page.bars(by_time({row.minute: row["count"] for row in by_minute} or by_hour), "messages")
    largest = sorted(by_topic.items(), key=lambda item: (-item[1][0], item[0]))
    page.heading("Largest topics")
    page.ranking([(topic, rows, f"{rows:,}") for topic, (rows, _) in largest[:12]])
    page.heading("Topics")
    page.table(
        ["topic", "messages", "stored size", "mean size"],
        [(topic, rows, size_text(size), size_text(size / max(1, rows))) for topic, (rows, size) in largest[:500]],
        of=len(largest),
        empty="no message is archived yet",
    )
    return page

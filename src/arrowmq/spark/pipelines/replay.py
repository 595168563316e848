"""Messages back into a topic, from an archive or from a store directory, with a filter and a rate.

The chosen messages go through the exactly-once sink as a stream over files. A run that was killed, started again with
the same work folder, goes on with what is missing. Each message says where it came from in its property REPLAYED_FROM.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrowmq.spark.pipelines.progress import Display, counted
from arrowmq.wire.properties import RESERVED

ORIGIN = "REPLAYED_FROM"
STAGED_FILES = 16


@dataclass(frozen=True)
class Replayed:
    rows: int
    topic: str | None


def replay(
    spark: Any,
    *,
    namesrv: str,
    work: str,
    topic: str | None = None,
    archive: str | None = None,
    archive_format: str = "parquet",
    store: str | None = None,
    from_topic: str | None = None,
    since: str | None = None,
    until: str | None = None,
    where: str | None = None,
    rate: int | None = None,
    delivery: str = "exactly-once",
    display: Display | None = None,
) -> Replayed:
    """Sends the messages of `archive` (what that pipeline wrote) or of `store` to `topic`, or to their own topics.

    `since` and `until` bound the store time (until excluded), `where` is any SQL condition on the message columns,
    `rate` is messages a second. `work` keeps what a restart needs.
    """
    if (archive is None) == (store is None):
        raise ValueError("say where the messages come from: either an archive or a store")
    display = display or Display()
    if store is not None:
        staged = f"{work}/staged"
        if not _is_staged(spark, staged):
            chosen = _chosen(_scan(spark, store, from_topic), from_topic, since, until, where)
            display.job(spark, "choose", lambda: _stage(chosen, staged))
        frames = _stream(spark, staged, "parquet")
    else:
        assert archive is not None
        data = f"{archive}/data" if Path(f"{archive}/data").exists() else archive
        frames = _chosen(_stream(spark, data, archive_format), from_topic, since, until, where)
    # One task: the rate is then the rate of all, and a queue's messages keep their order.
    rows = counted(messages_again(frames, topic)).coalesce(1)
    writer = rows.writeStream.format("arrowmq").option("namesrv", namesrv).option("delivery", delivery)
    if rate is not None:
        writer = writer.option("rate", rate)
    writer = writer.option("checkpointLocation", f"{work}/checkpoint").queryName("replay").trigger(availableNow=True)
    return Replayed(display.stream(writer.start, "replay"), topic)


def messages_again(frame: Any, topic: str | None) -> Any:
    """The columns of the sink, out of those of a message that was read, without RocketMQ's own properties."""
    reserved = ", ".join(f"'{name}'" for name in sorted(RESERVED | {"SPARK_QUERY_ID", "SPARK_BATCH_ID", ORIGIN}))
    columns = [
        "body",
        "tags",
        "`keys` as `keys`",
        "properties['__SHARDINGKEY'] as shardingKey",
        f"map_concat(map_filter(properties, (name, value) -> name not in ({reserved}) and not startswith(name, '__')), "
        f"map('{ORIGIN}', concat(topic, ' ', offsetMsgId))) as properties",
    ]
    return frame.selectExpr(*columns, "topic" if topic is None else f"'{topic}' as topic")


def _scan(spark: Any, store: str, topic: str | None) -> Any:
    reader = spark.read.format("arrowmq.store").option("path", store)
    return (reader if topic is None else reader.option("topic", topic)).load()


def _chosen(frame: Any, topic: str | None, since: str | None, until: str | None, where: str | None) -> Any:
    if topic is not None:
        wanted = ", ".join("'" + name.strip().replace("'", "") + "'" for name in topic.split(","))
        frame = frame.where(f"topic in ({wanted})")
    if since is not None:
        frame = frame.where(f"storeTimestamp >= timestamp '{since}'")
    if until is not None:
        frame = frame.where(f"storeTimestamp < timestamp '{until}'")
    return frame if where is None else frame.where(where)


def _stage(frame: Any, target: str) -> None:
    ordered = frame.repartitionByRange(STAGED_FILES, "storeTimestamp").sortWithinPartitions(
        "storeTimestamp", "commitLogOffset"
    )
    ordered.write.mode("overwrite").parquet(target)


def _is_staged(spark: Any, target: str) -> bool:
    """Spark marks a finished write with a file; half of one is written anew."""
    path = spark._jvm.org.apache.hadoop.fs.Path(f"{target}/_SUCCESS")
    return bool(path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path))


def _stream(spark: Any, data: str, table_format: str) -> Any:
    if table_format == "delta":
        return spark.readStream.format("delta").load(data)
    shape = spark.read.format(table_format).load(data).schema
    return spark.readStream.format(table_format).schema(shape).option("maxFilesPerTrigger", 8).load(data)

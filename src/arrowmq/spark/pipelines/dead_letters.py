"""Dead letters: what died, of which group, how often it was tried; repaired by a function and sent again.

A repair is a Python function that takes a message as a dict (topic, body, tags, keys, properties, reconsumeTimes, …)
and gives it back, changed or not, or None to let it rest. It must give the same answer for the same message: a batch
that is repeated after a crash asks it again. Every decision is written to an audit trail.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.spark.pipelines.progress import Display

PREFIX = "%DLQ%"
Repair = Callable[[dict[str, Any]], "dict[str, Any] | None"]

SENT_SCHEMA = "topic string, body binary, tags string, `keys` array<string>, properties map<string,string>"
TRAIL_SCHEMA = (
    "consumerGroup string, msgId string, originMsgId string, originTopic string, action string, target string, "
    "wasChanged boolean, reconsumeTimes int, diedAt timestamp, decidedAt timestamp"
)


@dataclass(frozen=True)
class Resent:
    decided: int
    trail: str


def dead_topics(namesrv: str, groups: list[str] | None) -> list[str]:
    """The dead letter topics of these groups, or of all."""
    cluster = Cluster(Connection(tuple(namesrv.replace(",", ";").split(";"))))
    try:
        found = [topic for topic in cluster.topics() if topic.startswith(PREFIX)]
    finally:
        cluster.close()
    if groups is None:
        return found
    missing = [group for group in groups if PREFIX + group not in found]
    if missing:
        raise ValueError(f"group {missing[0]} has no dead letters")
    return [PREFIX + group for group in groups]


def dead_letters(spark: Any, *, namesrv: str, groups: list[str] | None = None) -> Any:
    """A DataFrame of what died: group, origin, why as far as it is known, and how often it was tried."""
    topics = dead_topics(namesrv, groups)
    if not topics:
        return spark.createDataFrame([], _dead_schema())
    reader = spark.read.format("arrowmq").option("namesrv", namesrv).option("topics", ",".join(topics))
    return table_of(reader.load())


def table_of(frame: Any) -> Any:
    return frame.selectExpr(
        f"substring(topic, {len(PREFIX) + 1}) as consumerGroup",
        "coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) as originTopic",
        "msgId",
        "coalesce(properties['DLQ_ORIGIN_MESSAGE_ID'], properties['ORIGIN_MESSAGE_ID'], msgId) as originMsgId",
        "coalesce(properties['CONSUME_EXCEPTION'], concat('not consumed after ', reconsumeTimes, ' retries')) as why",
        "reconsumeTimes",
        "tags",
        "`keys`",
        "body",
        "properties",
        "bornTimestamp",
        "storeTimestamp as diedAt",
        "brokerName",
        "queueOffset",
    )


def resend(
    spark: Any,
    *,
    namesrv: str,
    work: str,
    groups: list[str] | None = None,
    repair: str | Repair | None = None,
    topic: str | None = None,
    display: Display | None = None,
) -> Resent:
    """Repairs dead letters and sends them to `topic`, or to where they came from, once each; writes the trail.

    `work` keeps the checkpoints and the trail (`work/trail`, Parquet): run again, it goes on with new ones only.
    """
    topics = dead_topics(namesrv, groups)
    if not topics:
        raise ValueError("there are no dead letters")
    display = display or Display()
    decide = load_repair(repair) if isinstance(repair, str) else (repair or _unchanged)
    origin = "originTopic" if topic is None else f"'{topic}'"

    def letters() -> Any:
        stream = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("topics", ",".join(topics))
        return table_of(stream.option("startingOffsets", "earliest").load()).selectExpr("*", f"{origin} as target")

    repaired = letters().mapInArrow(lambda batches: _repaired(batches, decide), SENT_SCHEMA)
    writer = repaired.writeStream.format("arrowmq").option("namesrv", namesrv).queryName("resend")
    writer = writer.option("checkpointLocation", f"{work}/sent").trigger(availableNow=True)
    display.stream(writer.start, "resend")
    trail = letters().mapInArrow(lambda batches: _trail(batches, decide), TRAIL_SCHEMA)
    kept = trail.writeStream.format("parquet").option("checkpointLocation", f"{work}/noted").queryName("trail")
    kept = kept.trigger(availableNow=True)
    decided = display.stream(lambda: kept.start(f"{work}/trail"), "audit trail")
    return Resent(decided, f"{work}/trail")


def load_repair(name: str) -> Repair:
    """`module:function`, or `file.py:function`."""
    place, _, function = name.rpartition(":")
    if not place or not function:
        raise ValueError(f"option repair: {name!r} is not module:function or file.py:function")
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ValueError(f"option repair: {place} does not exist")
        # By value, not by name: executors cannot import a file that lies on the driver only.
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(path.read_text(), str(path), "exec"), space)
        found = space.get(function)
    else:
        sys.path.insert(0, "")
        try:
            found = getattr(importlib.import_module(place), function, None)
        except ModuleNotFoundError as missing:
            raise ValueError(f"option repair: {missing}") from None
        finally:
            sys.path.pop(0)
    if not callable(found):
        raise ValueError(f"option repair: {place} has no function {function}")
    result: Repair = found
    return result


def _unchanged(message: dict[str, Any]) -> dict[str, Any]:
    return message


def _letters(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            row["properties"] = dict(row["properties"] or ())
            yield row


def _decision(letter: dict[str, Any], decide: Repair) -> dict[str, Any] | None:
    given = {
        "topic": letter["target"],
        "body": letter["body"],
        "tags": letter["tags"],
        "keys": list(letter["keys"] or ()),
        "properties": user_properties(letter["properties"]),
        "reconsumeTimes": letter["reconsumeTimes"],
        "consumerGroup": letter["consumerGroup"],
        "msgId": letter["msgId"],
        "originMsgId": letter["originMsgId"],
    }
    decided = decide(given)
    if decided is not None and not isinstance(decided, dict):
        raise ValueError(f"option repair: the function gave {type(decided).__name__}, not a message (dict) or None")
    return decided


def user_properties(properties: dict[str, str]) -> dict[str, str]:
    from arrowmq.wire.properties import RESERVED

    return {
        name: value
        for name, value in properties.items()
        if name not in RESERVED and not name.startswith(("__", "SPARK_"))
    }


def _repaired(batches: Iterator[pa.RecordBatch], decide: Repair) -> Iterator[pa.RecordBatch]:
    shape = pa.schema(
        [
            ("topic", pa.string()),
            ("body", pa.binary()),
            ("tags", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("properties", pa.map_(pa.string(), pa.string())),
        ]
    )
    rows = []
    for letter in _letters(batches):
        message = _decision(letter, decide)
        if message is None:
            continue
        body = message["body"]
        rows.append(
            {
                "topic": message.get("topic") or letter["target"],
                "body": body.encode() if isinstance(body, str) else body,
                "tags": message.get("tags"),
                "keys": list(message.get("keys") or ()),
                "properties": list({**(message.get("properties") or {}), "RESENT_FROM": letter["originMsgId"]}.items()),
            }
        )
    yield pa.RecordBatch.from_pylist(rows, schema=shape)


def _trail(batches: Iterator[pa.RecordBatch], decide: Repair) -> Iterator[pa.RecordBatch]:
    from datetime import UTC, datetime

    moment = pa.timestamp("us", tz="UTC")
    shape = pa.schema(
        [
            ("consumerGroup", pa.string()),
            ("msgId", pa.string()),
            ("originMsgId", pa.string()),
            ("originTopic", pa.string()),
            ("action", pa.string()),
            ("target", pa.string()),
            ("wasChanged", pa.bool_()),
            ("reconsumeTimes", pa.int32()),
            ("diedAt", moment),
            ("decidedAt", moment),
        ]
    )
    rows = []
    for letter in _letters(batches):
        message = _decision(letter, decide)
        body = None if message is None else message["body"]
        rows.append(
            {
                **{
                    name: letter[name]
                    for name in ("consumerGroup", "msgId", "originMsgId", "originTopic", "reconsumeTimes", "diedAt")
                },
                "action": "left" if message is None else "resent",
                "target": None if message is None else message.get("topic") or letter["target"],
                "wasChanged": body is not None and (body.encode() if isinstance(body, str) else body) != letter["body"],
                "decidedAt": datetime.now(UTC),
            }
        )
    yield pa.RecordBatch.from_pylist(rows, schema=shape)


def _dead_schema() -> str:
    return (
        "consumerGroup string, originTopic string, msgId string, originMsgId string, why string, reconsumeTimes int, "
        "tags string, `keys` array<string>, body binary, properties map<string,string>, bornTimestamp timestamp, "
        "diedAt timestamp, brokerName string, queueOffset bigint"
    )

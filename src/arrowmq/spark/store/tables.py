"""The small tables of a store: consumer offsets, topics, pending delays; and the shape of the damage report."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StructType

from arrowmq.spark.schema import structure
from arrowmq.spark.store.files import FILLER_SIZE, StoreDirectory, map_segment
from arrowmq.spark.store.log_walk import check_record
from arrowmq.wire.records import Record, decode_record

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"

TABLES: dict[str, StructType] = {
    "offsets": structure(
        "brokerName string, consumerGroup string, topic string, queueId int, offset bigint, minOffset bigint, "
        "maxOffset bigint, lag bigint"
    ),
    "topics": structure(
        "brokerName string, topic string, readQueueNums int, writeQueueNums int, perm int, order boolean, "
        "topicFilterType string, attributes map<string,string>, messages bigint"
    ),
    "delays": structure(
        "brokerName string, kind string, delayLevel int, deliverTimestamp timestamp, topic string, queueId int, "
        "msgId string, tags string, keys array<string>, body binary, properties map<string,string>, "
        "storeTimestamp timestamp, commitLogOffset bigint"
    ),
    "damage": structure("brokerName string, path string, commitLogOffset bigint, size bigint, reason string"),
}


def table_rows(
    table: str, store: StoreDirectory, broker_name: str | None, topics: Sequence[str] | None
) -> Iterator[tuple[Any, ...]]:
    """The rows of one store, of the given topics only if there are any."""
    reads = {"offsets": _offsets, "topics": _topics, "delays": _delays}
    return reads[table](store, broker_name, None if topics is None else frozenset(topics))


def _offsets(store: StoreDirectory, name: str | None, topics: frozenset[str] | None) -> Iterator[tuple[Any, ...]]:
    stored = store.config("consumerOffset.json") or store.config("lmqConsumerOffset.json")
    queues = store.queues()
    for key, offsets in sorted(stored.get("offsetTable", {}).items()):
        topic, _, group = key.partition("@")
        if topics is not None and topic not in topics:
            continue
        for queue, offset in sorted(offsets.items(), key=lambda item: int(item[0])):
            queue_id = int(queue)
            is_there = queue_id in queues.get(topic, ())
            first, end = store.queue(topic, queue_id).bounds if is_there else (0, 0)
            yield name, group, topic, queue_id, int(offset), first, end, max(0, end - int(offset))


def _topics(store: StoreDirectory, name: str | None, topics: frozenset[str] | None) -> Iterator[tuple[Any, ...]]:
    queues = store.queues()
    for topic, config in sorted(store.config("topics.json").get("topicConfigTable", {}).items()):
        if topics is not None and topic not in topics:
            continue
        bounds = [store.queue(topic, queue_id).bounds for queue_id in queues.get(topic, ())]
        yield (
            name,
            topic,
            int(config.get("readQueueNums", 0)),
            int(config.get("writeQueueNums", 0)),
            int(config.get("perm", 0)),
            bool(config.get("order", False)),
            config.get("topicFilterType"),
            {str(key): str(value) for key, value in (config.get("attributes") or {}).items()},
            sum(end - first for first, end in bounds),
        )


def _delays(store: StoreDirectory, name: str | None, topics: frozenset[str] | None) -> Iterator[tuple[Any, ...]]:
    for record, kind, level, due_ms in (*_pending_levels(store), *_pending_timers(store)):
        topic = record.properties.get("REAL_TOPIC", record.topic)
        if topics is not None and topic not in topics:
            continue
        yield (
            name,
            kind,
            level,
            _moment(due_ms),
            topic,
            int(record.properties.get("REAL_QID", record.queue_id)),
            record.msg_id,
            record.tag,
            record.keys,
            record.decompressed_body(),
            record.properties,
            _moment(record.store_timestamp),
            record.physical_offset,
        )


def _pending_levels(store: StoreDirectory) -> Iterator[tuple[Record, str, int | None, int]]:
    """Entries behind the delivery offset of each level; an entry of these queues holds the time it is due."""
    delivered = {
        int(level): int(offset) for level, offset in store.config("delayOffset.json").get("offsetTable", {}).items()
    }
    for queue_id in store.queues().get(SCHEDULE_TOPIC, ()):
        level = queue_id + 1
        for record, due_ms in _records(store, SCHEDULE_TOPIC, queue_id, delivered.get(level, 0)):
            yield record, "level", level, due_ms


def _pending_timers(store: StoreDirectory) -> Iterator[tuple[Record, str, int | None, int]]:
    """Timer messages that the wheel has not passed. One may lie in the log several times (it is put back when it is
    further away than the wheel reaches) and may have been called back by a later record."""
    check = store.root / "config" / "timercheck"
    served_ms = struct.unpack_from(">q", check.read_bytes())[0] if check.is_file() and check.stat().st_size >= 8 else 0
    pending: dict[str, tuple[Record, int]] = {}
    recalled: set[str] = set()
    for queue_id in store.queues().get(TIMER_TOPIC, ()):
        for record, _ in _records(store, TIMER_TOPIC, queue_id, 0):
            due_ms = int(record.properties.get("TIMER_OUT_MS", "0"))
            erased = record.properties.get("TIMER_DEL_UNIQKEY")
            if erased is not None:
                recalled.add(erased)
            elif due_ms >= served_ms:
                pending[f"{record.properties.get('REAL_TOPIC')}+{record.msg_id}"] = (record, due_ms)
    for key, (record, due_ms) in pending.items():
        if key not in recalled:
            yield record, "timer", None, int(record.properties.get("TIMER_DELIVER_MS", due_ms))


def _records(store: StoreDirectory, topic: str, queue_id: int, start: int) -> Iterator[tuple[Record, int]]:
    """The whole records of a queue from offset `start` on, each with the number in its entry's tag field."""
    queue = store.queue(topic, queue_id)
    first, end = queue.bounds
    entries = queue.entries(max(first, start), end)
    for segment in store.segments:
        inside = entries[
            (entries["offset"] >= segment.start) & (entries["offset"] < segment.end) & (entries["size"] != FILLER_SIZE)
        ]
        if not len(inside):
            continue
        view = memoryview(map_segment(segment))
        for offset, tags in zip(inside["offset"].tolist(), inside["tags"].tolist(), strict=True):
            if check_record(view, offset - segment.start, segment.start)[1] is None:
                yield decode_record(view, offset - segment.start, check_crc=False), tags


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)

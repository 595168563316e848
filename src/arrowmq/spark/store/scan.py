"""`format("arrowmq.store")`: commit log directories as a table, without a broker.

The log is cut into splits of `splitBytes`, each of which finds its first record by itself, so every core scans. With
`topic` (or `tags`) the consume queues say where the wanted records lie, and nothing else is read; a tail of the log
that the queues do not know yet is walked through. Records are verified by their checksum; damaged ones are left out,
logged, and can be listed with `table=damage`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from arrowmq.filter import SQL92, SqlFilter, compile
from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.schema import arrow_schema, check_message_schema, message_schema
from arrowmq.spark.source.batches import BatchBuilder
from arrowmq.spark.source.filters import MessageFilter, QuietPushdown, tag_filter
from arrowmq.spark.source.options import check_sql
from arrowmq.spark.store.files import FILLER_SIZE, NotAStore, Segment, StoreDirectory, data_end, map_segment
from arrowmq.spark.store.log_walk import (
    HEAD,
    INT,
    MAGIC_V1,
    SHORT,
    Damage,
    Mapped,
    body_length_at,
    check_record,
    sound_run,
    walk,
)
from arrowmq.spark.store.tables import TABLES, table_rows
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.records import record_bounds

log = logging.getLogger("arrowmq.spark.store")
MOST_SAID = 10  # damaged places that one task logs
SPLIT_BYTES = 128 * 1024 * 1024
SPLIT_ENTRIES = 250_000


@dataclass(frozen=True)
class ScanOptions:
    """What to scan; the same object goes to the planner and, pickled, to every task."""

    paths: tuple[str, ...]
    table: str
    topics: tuple[str, ...] | None
    tags: str | None
    sql: str | None
    split_bytes: int
    fails_on_damage: bool
    broker_names: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    with_properties: bool

    @classmethod
    def parse(cls, given: dict[str, str]) -> ScanOptions:
        options = Options(given)
        paths = options.names("path")
        if paths is None:
            raise OptionError("path", "say which store to scan: .option('path', '/data/store') or .load('/data/store')")
        topics = (options.names("topics") or []) + (options.names("topic") or [])
        broker_names = options.names("brokerName")
        if broker_names is not None and len(broker_names) != len(paths):
            raise OptionError("brokerName", f"names {len(broker_names)} brokers for {len(paths)} paths")
        columns = options.names("columns")
        found = cls(
            paths=tuple(path.removeprefix("file://") for path in paths),
            table=options.one_of("table", ("messages", *TABLES), "messages"),
            topics=tuple(dict.fromkeys(topics)) or None,
            tags=options.text("tags"),
            sql=options.text("sql"),
            split_bytes=options.size("splitBytes") or SPLIT_BYTES,
            fails_on_damage=options.one_of("onDamage", ("skip", "fail"), "skip") == "fail",
            broker_names=None if broker_names is None else tuple(broker_names),
            columns=None if columns is None else tuple(columns),
            with_properties=options.truth("includeHeaders", True),
        )
        options.finish()
        if found.tags is not None:
            tag_filter(found.tags)
        if found.sql is not None:
            check_sql(found.sql)
        return found

    def stores(self) -> list[tuple[StoreDirectory, str | None]]:
        """The directories and their brokers' names, checked."""
        found = []
        for number, path in enumerate(self.paths):
            try:
                store = StoreDirectory(path)
            except NotAStore as wrong:
                raise OptionError("path", str(wrong)) from None
            found.append((store, self.broker_names[number] if self.broker_names else store.broker_name))
        return found


@dataclass
class LogSplit(InputPartition):
    """Records that start in bytes `start` to `stop` of one segment."""

    segment: Segment
    broker_name: str | None
    start: int
    stop: int
    is_start_known: bool
    tail: int | None
    # With topics: only records from this commit log offset on, because the queues told about those before it.
    beyond: int = 0
    value: Any = None


@dataclass
class QueueSplit(InputPartition):
    """Entries `start` to `end` of one consume queue."""

    root: str
    broker_name: str | None
    topic: str
    queue_id: int
    start: int
    end: int
    value: Any = None


class StoreSource(DataSource):
    """Stores of ArrowMQ and of Apache RocketMQ, one or several, running or not."""

    @classmethod
    def name(cls) -> str:
        return "arrowmq.store"

    def schema(self) -> StructType:
        options = ScanOptions.parse(dict(self.options))
        options.stores()
        if options.table in TABLES:
            return TABLES[options.table]
        return message_schema(
            None if options.columns is None else list(options.columns), with_properties=options.with_properties
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ScanOptions.parse(dict(self.options))
        if options.table == "damage":
            return DamageReader(options, schema)
        if options.table in TABLES:
            return TableReader(options)
        check_message_schema(schema)
        return StoreReader(options, schema)


class TableReader(DataSourceReader):
    """Consumer offsets, topics, pending delays: small tables, read in one task for each store."""

    def __init__(self, options: ScanOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((str(store.root), name)) for store, name in self.options.stores()]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        root, name = partition.value
        return iter(table_rows(self.options.table, StoreDirectory(root), name, self.options.topics))


class StoreReader(DataSourceReader):
    def __init__(self, options: ScanOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.filter = MessageFilter()
        self.pushFilters = QuietPushdown(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> list[Filter]:
        for item in filters:
            self.filter.learn(item)
        return filters

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        for store, name in self.options.stores():
            topics = self.options.topics or self.filter.topics
            if self.filter.broker_names is not None and name is not None and name not in self.filter.broker_names:
                continue
            if topics and self.options.table != "damage" and all(map(store.has_plain_queues, topics)):
                found += self._queue_splits(store, name, topics)
                found += self._log_splits(store, name, beyond=store.dispatched_end)
            else:
                found += self._log_splits(store, name, beyond=0)
        return found

    def _queue_splits(self, store: StoreDirectory, name: str | None, topics: Sequence[str]) -> Iterator[QueueSplit]:
        for topic in topics:
            for queue_id in store.queues()[topic]:
                if self.filter.queue_ids is not None and queue_id not in self.filter.queue_ids:
                    continue
                first, end = store.queue(topic, queue_id).bounds
                first = max(first, self.filter.least_offset)
                end = min(end, self.filter.most_offset + 1)
                for start in range(first, end, SPLIT_ENTRIES):
                    yield QueueSplit(str(store.root), name, topic, queue_id, start, min(end, start + SPLIT_ENTRIES))

    def _log_splits(self, store: StoreDirectory, name: str | None, *, beyond: int) -> Iterator[LogSplit]:
        known_end = store.dispatched_end
        for segment in store.segments:
            is_last = segment is store.segments[-1]
            if segment.end <= beyond and not (is_last and known_end == 0):
                continue
            tail = max(known_end, segment.start) if is_last else None
            # In the last, preallocated segment data ends early: split what is there, and let the last split go on.
            filled = segment.size if not is_last else max(known_end - segment.start, data_end(segment))
            filled = min(max(filled, 0), segment.size)
            start = max(0, beyond - segment.start)
            is_start_known = True
            while start < segment.size:
                stop = start + self.options.split_bytes
                if stop >= filled:
                    stop = segment.size
                yield LogSplit(segment, name, start, stop, is_start_known, tail, beyond)
                start, is_start_known = stop, False

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        damages: list[Damage] = []
        if isinstance(partition, LogSplit):
            batches = self._read_log(partition, damages)
        elif isinstance(partition, QueueSplit):
            batches = self._read_queue(partition, damages)
        else:
            return  # Spark asks for one empty partition where none was planned
        yield from batches
        for damage in damages[:MOST_SAID]:
            log.warning("%s", damage)
        if len(damages) > MOST_SAID:
            log.warning("%s: %d more; table=damage lists them", damages[-1].path, len(damages) - MOST_SAID)

    def _builder(self, broker_name: str | None) -> BatchBuilder:
        keep = None
        if self.options.sql is not None:
            evaluate = compile(SQL92, self.options.sql)
            assert isinstance(evaluate, SqlFilter)
            keep = lambda record: evaluate.matches_properties(record.properties)  # noqa: E731
        return BatchBuilder(arrow_schema(self.schema), broker_name, tags=self._tags(), keep=keep)

    def _tags(self) -> frozenset[str] | None:
        """The tags that may be wanted: of the option and of the filters, both must agree."""
        asked = None if self.options.tags is None else tag_filter(self.options.tags)
        if asked is None or self.filter.tags is None:
            return asked if self.filter.tags is None else self.filter.tags
        return asked & self.filter.tags

    def _report(self, damages: list[Damage]) -> None:
        if damages and self.options.fails_on_damage:
            raise ValueError(f"option onDamage: fail was asked for, and {damages[-1]}")

    def _read_log(self, split: LogSplit, damages: list[Damage]) -> Iterator[pa.RecordBatch]:
        mapped = map_segment(split.segment)
        view = memoryview(mapped)
        builder = self._builder(split.broker_name)
        wanted_topics = self.options.topics
        for start, end, count in walk_split(split, mapped, damages):
            self._report(damages)
            if wanted_topics is None:
                builder.add(view[start:end], count)
            else:
                for position, size in record_bounds(view[start:end]):
                    if topic_of(view, start + position) in wanted_topics:
                        builder.add(view[start + position : start + position + size], 1)
            if builder.is_full:
                yield builder.take()
        self._report(damages)
        if builder.rows:
            yield builder.take()

    def _read_queue(self, split: QueueSplit, damages: list[Damage]) -> Iterator[pa.RecordBatch]:
        store = StoreDirectory(split.root)
        builder = self._builder(split.broker_name)
        entries = store.queue(split.topic, split.queue_id).entries(split.start, split.end)
        chosen = (entries["size"] > 0) & (entries["size"] != FILLER_SIZE) & (entries["offset"] >= store.min_offset)
        tags = self._tags()
        if tags is not None:
            # Entries hold the hash of the tag; what shares one is sorted out by the text, in the builder.
            hashes = np.array([java_hash(tag) for tag in tags], dtype=np.int64)
            chosen &= np.isin(entries["tags"].astype(np.int64), hashes)
        entries = entries[chosen]
        for segment in store.segments:
            inside = entries[(entries["offset"] >= segment.start) & (entries["offset"] < segment.end)]
            if not len(inside):
                continue
            view = memoryview(map_segment(segment))
            for first in range(0, len(inside), 1024):
                self._add_entries(builder, view, segment, inside[first : first + 1024], damages)
                if builder.is_full:
                    yield builder.take()
        if builder.rows:
            yield builder.take()

    def _add_entries(
        self,
        builder: BatchBuilder,
        view: memoryview,
        segment: Segment,
        entries: np.ndarray[Any, Any],
        damages: list[Damage],
    ) -> None:
        """Records that lie one behind the other are checked together, natively."""
        starts = entries["offset"].astype(np.int64) - segment.start
        sizes = entries["size"].astype(np.int64)
        ends = starts + sizes
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        edges = [0, *breaks.tolist(), len(entries)]
        for first, last in itertools.pairwise(edges):
            start, end = int(starts[first]), int(ends[last - 1])
            if sound_run(view, start, end, segment.start) == (end, last - first):
                builder.add(view[start:end], last - first)
                continue
            for position, size in zip(starts[first:last].tolist(), sizes[first:last].tolist(), strict=True):
                self._add_entry(builder, view, segment, position, size, damages)

    def _add_entry(
        self,
        builder: BatchBuilder,
        view: memoryview,
        segment: Segment,
        position: int,
        expected_size: int,
        damages: list[Damage],
    ) -> None:
        size, wrong = check_record(view, position, segment.start)
        if wrong is None and size != expected_size:
            wrong = f"its queue says {expected_size} bytes, it has {size}"
        if wrong is None:
            builder.add(view[position : position + size], 1)
        else:
            damages.append(Damage(segment.path, segment.start + position, expected_size, wrong))
            self._report(damages)


class DamageReader(StoreReader):
    """The same splits of the same logs; the rows are what a scan leaves out."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogSplit):
            return
        damages: list[Damage] = []
        for _ in walk_split(partition, map_segment(partition.segment), damages):
            pass
        if damages:
            yield _damage_batch(arrow_schema(self.schema), partition.broker_name, damages)


def walk_split(split: LogSplit, mapped: Mapped, damages: list[Damage]) -> Iterator[tuple[int, int, int]]:
    segment = split.segment
    return walk(
        mapped,
        segment.path,
        segment.start,
        split.start,
        split.stop,
        damages,
        is_start_known=split.is_start_known,
        tail=split.tail,
    )


def topic_of(view: memoryview, position: int) -> str:
    """The topic of the whole record at `position`, without decoding the rest."""
    magic, sys_flag = HEAD.unpack_from(view, position)[1], HEAD.unpack_from(view, position)[5]
    at = position + body_length_at(sys_flag)
    at += 4 + INT.unpack_from(view, at)[0]
    if magic == MAGIC_V1:
        return str(view[at + 1 : at + 1 + view[at]], "utf-8", "replace")
    (length,) = SHORT.unpack_from(view, at)
    return str(view[at + 2 : at + 2 + length], "utf-8", "replace")


def _damage_batch(schema: pa.Schema, broker_name: str | None, damages: list[Damage]) -> pa.RecordBatch:
    rows = [
        {
            "brokerName": broker_name,
            "path": damage.path,
            "commitLogOffset": damage.commit_log_offset,
            "size": damage.size,
            "reason": damage.reason,
        }
        for damage in damages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)

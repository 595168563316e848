"""`format("arrowmq")`: topics as batch tables and streams, and a sink for DataFrames."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from arrowmq.filter import SQL92, SqlFilter, compile
from arrowmq.spark.cluster import Cluster, Connection, Refusal, cluster_of
from arrowmq.spark.schema import arrow_schema, check_message_schema, message_schema
from arrowmq.spark.source.batches import BatchBuilder, Keep
from arrowmq.spark.source.filters import MOST, MessageFilter, QuietPushdown
from arrowmq.spark.source.options import SourceOptions, bounds_of, resolve
from arrowmq.spark.source.pull import Subscription, read_range
from arrowmq.spark.source.ranges import EARLIEST, LATEST, OffsetRange, batch_ranges, split_ranges

log = logging.getLogger("arrowmq.spark.source.data_source")
SMALLEST_SPLIT = 10_000  # messages; below that a task costs more than it saves


@dataclass
class RangePartition(InputPartition):
    """One stretch of one queue, and where its broker is."""

    wanted: OffsetRange
    address: str
    value: Any = None


class ArrowmqSource(DataSource):
    """Topics of ArrowMQ and of Apache RocketMQ."""

    @classmethod
    def name(cls) -> str:
        return "arrowmq"

    def schema(self) -> StructType:
        options = SourceOptions.parse(dict(self.options), is_stream=False, is_kind_known=False)
        wanted = None if options.columns is None else list(options.columns)
        return message_schema(wanted, with_properties=options.with_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_message_schema(schema)
        return BatchReader(SourceOptions.parse(dict(self.options), is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from arrowmq.spark.source.stream import StreamReader

        check_message_schema(schema)
        return StreamReader(SourceOptions.parse(dict(self.options), is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from arrowmq.spark.sink.writer import BatchWriter, SinkOptions

        if overwrite:
            raise ValueError("a topic cannot be overwritten: use .mode('append')")
        return BatchWriter(SinkOptions.parse(dict(self.options), schema, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from arrowmq.spark.sink.writer import SinkOptions, StreamWriter

        if overwrite:
            raise ValueError("a topic cannot be overwritten: use outputMode append or update")
        return StreamWriter(SinkOptions.parse(dict(self.options), schema, is_stream=True))


class BatchReader(DataSourceReader):
    """A bounded read. Filters on queue, offset, store time and tag narrow the ranges before anything is pulled."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.filter = MessageFilter()
        self.pushFilters = QuietPushdown(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> list[Filter]:
        for item in filters:
            self.filter.learn(item)
        return filters

    def partitions(self) -> list[InputPartition]:
        cluster = cluster_of(self.options.connection)
        queues, addresses = self.options.read_queues(cluster)
        bounds = bounds_of(cluster, queues)
        starts = resolve(cluster, self.options.starting, bounds, default=EARLIEST)
        ends = resolve(cluster, self.options.ending, bounds, default=LATEST)
        ranges = batch_ranges(starts, ends, bounds, fail_on_data_loss=self.options.subscription.fail_on_data_loss)
        ranges = [item for item in map(self._narrow, self._narrow_by_time(cluster, ranges)) if item.size]
        pieces = self.options.min_partitions
        if pieces is None:
            ranges = split_ranges(ranges, os.cpu_count() or 1, smallest=SMALLEST_SPLIT)
        else:
            ranges = split_ranges(ranges, pieces)
        return [RangePartition(item, addresses[item.queue.broker_name]) for item in ranges]

    def _narrow(self, item: OffsetRange) -> OffsetRange:
        known = self.filter
        start = max(item.start, known.least_offset)
        end = min(item.end, known.most_offset + 1)
        is_wanted = (
            (known.topics is None or item.queue.topic in known.topics)
            and (known.broker_names is None or item.queue.broker_name in known.broker_names)
            and (known.queue_ids is None or item.queue.queue_id in known.queue_ids)
            and start < end
        )
        return OffsetRange(item.queue, start, end if is_wanted else start)

    def _narrow_by_time(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Store times grow with offsets, so a bound on one is a bound on the other."""
        least, most = self.filter.least_store_ms, self.filter.most_store_ms
        if ranges and least > 0:
            first = cluster.offsets_by_time({item.queue: least for item in ranges})
            ranges = [replace(item, start=min(item.end, max(item.start, first[item.queue]))) for item in ranges]
        if ranges and most < MOST:
            last = cluster.offsets_by_time({item.queue: most + 1 for item in ranges})
            ranges = [replace(item, end=max(item.start, min(item.end, last[item.queue]))) for item in ranges]
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark asks for one empty partition where none was planned
        subscription, tags = self.options.subscription, self.options.tags
        if tags is None and subscription.is_everything and self.filter.tags is not None:
            subscription = replace(subscription, expression=" || ".join(sorted(self.filter.tags)))
            tags = self.filter.tags
        return read_partition(self.options.connection, partition, subscription, tags, self.schema)


def read_partition(
    connection: Connection,
    partition: RangePartition,
    subscription: Subscription,
    tags: frozenset[str] | None,
    schema: StructType,
) -> Iterator[pa.RecordBatch]:
    """The messages of one stretch as Arrow batches. Runs in an executor."""
    cluster = cluster_of(connection)
    broker_name = partition.wanted.queue.broker_name
    cluster.learn({broker_name: partition.address})
    keep: Keep | None = None
    if subscription.kind == SQL92:
        try:
            yield from _batches(cluster, partition.wanted, subscription, schema)
            return
        except Refusal as refused:
            if not says_sql_is_off(refused):
                raise
        # The broker does not filter by SQL92 (enablePropertyFilter is off): everything comes, and is filtered here.
        evaluate = compile(SQL92, subscription.expression)
        assert isinstance(evaluate, SqlFilter)
        keep = lambda record: evaluate.matches_properties(record.properties)  # noqa: E731
        subscription = replace(subscription, expression="*", kind="TAG")
    yield from _batches(cluster, partition.wanted, subscription, schema, tags=tags, keep=keep)


def says_sql_is_off(refused: Refusal) -> bool:
    """A broker refuses SQL92 in its first answer if at all, so nothing was given out before."""
    return "support" in (refused.remark or "").lower() and "filter" in (refused.remark or "").lower()


def _batches(
    cluster: Cluster,
    wanted: OffsetRange,
    subscription: Subscription,
    schema: StructType,
    *,
    tags: frozenset[str] | None = None,
    keep: Keep | None = None,
) -> Iterator[pa.RecordBatch]:
    builder = BatchBuilder(arrow_schema(schema), wanted.queue.broker_name, tags=tags, keep=keep)
    for pulled in read_range(cluster, wanted, subscription):
        builder.add(pulled.records, pulled.count)
        if builder.is_full:
            yield builder.take()
    if builder.rows:
        yield builder.take()

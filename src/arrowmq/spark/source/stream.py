"""The streaming read: which offsets make up the next micro-batch.

One `StreamReader` lives in a process of its own for as long as the query runs and decides offsets; each task gets a
copy that was pickled at the start and only reads. A batch is a pure function of its start and end offsets, which Spark
keeps in the checkpoint, so a batch that is repeated after a crash reads the very same messages. Progress in the
consumer group is for people and their tools; the stream itself never reads it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Refusal, cluster_of
from arrowmq.spark.source.data_source import SMALLEST_SPLIT, RangePartition, read_partition
from arrowmq.spark.source.options import SourceOptions, bounds_of, resolve
from arrowmq.spark.source.pull import DataLost, Subscription, read_range
from arrowmq.spark.source.ranges import (
    LATEST,
    OffsetRange,
    Offsets,
    limited,
    offsets_from_json,
    offsets_to_json,
    queue_key,
    split_ranges,
    stream_starts,
)
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.spark.source.stream")
SAMPLE = 16  # messages looked at to learn how large a queue's messages are


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches of a query over topics; see the head of this file for where which part runs."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._addresses: dict[str, str] = {}
        self._known: set[str] = set()
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._committed: Offsets = {}
        self._last_batch_s = 0.0

    # ------------------------------------------------------------------------------------------- the life of a query

    def initialOffset(self) -> dict[str, Any]:
        cluster = self._cluster()
        bounds = bounds_of(cluster, self._queues(cluster))
        starting, is_strict = self.options.starting, self.options.subscription.fail_on_data_loss
        starts = resolve(cluster, starting, bounds, default=LATEST)
        return offsets_to_json(stream_starts(starting.option, starts, bounds, fail_on_data_loss=is_strict))

    def getDefaultReadLimit(self) -> ReadLimit:
        # One limit only can be named to Spark, and it is handed back to us: rows, bytes and minimum are ours to keep.
        rows = self.options.max_rows
        return ReadMaxRows(rows) if rows is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes what "now" is: later messages are for the next run."""
        cluster = self._cluster()
        self._target = cluster.max_offsets(self._queues(cluster))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch. Everything before `start` is processed, so that is the group's progress."""
        cluster = self._cluster()
        begin = offsets_from_json(start)
        self._known.update(queue.topic for queue in begin)
        self._report(begin)
        latest = self._held(cluster, begin)
        begin = self._with_new_queues(cluster, begin, latest)
        if self._waits_for_more(begin, latest):
            return start
        end = limited(begin, latest, self._most_rows(cluster, begin, latest, limit))
        if any(end[queue] > begin[queue] for queue in end):
            self._last_batch_s = time.monotonic()
            return offsets_to_json({**begin, **end})
        return start

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else offsets_to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        cluster = self._cluster()
        begin, stop = offsets_from_json(start), offsets_from_json(end)
        self._known.update(queue.topic for queue in stop)
        if not self._addresses:
            self._queues(cluster)
        begin = self._with_new_queues(cluster, begin, stop)
        ranges = [OffsetRange(queue, begin[queue], stop[queue]) for queue in sorted(stop) if stop[queue] > begin[queue]]
        pieces = self.options.min_partitions
        if pieces is not None:
            ranges = split_ranges(ranges, pieces)
        else:
            ranges = split_ranges(ranges, os.cpu_count() or 1, smallest=SMALLEST_SPLIT)
        return [RangePartition(item, self._addresses.get(item.queue.broker_name, "")) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_partition(
            self.options.connection, partition, self.options.subscription, self.options.tags, self.schema
        )

    def commit(self, end: dict[str, Any]) -> None:
        self._report(offsets_from_json(end))

    def stop(self) -> None:
        cluster_of(self.options.connection).close()

    # ----------------------------------------------------------------------------------------------------- the parts

    def _cluster(self) -> Cluster:
        return cluster_of(self.options.connection)

    def _queues(self, cluster: Cluster) -> list[MessageQueue]:
        """The queues as they are now: brokers and queues may come while the stream runs."""
        queues, addresses = self.options.read_queues(cluster, self._known)
        self._known.update(queue.topic for queue in queues)
        self._addresses.update(addresses)
        return queues

    def _held(self, cluster: Cluster, begin: Offsets) -> Offsets:
        """The end of every queue; of AvailableNow, the end that was fixed at the beginning."""
        latest = cluster.max_offsets(self._queues(cluster)) if self._target is None else self._target
        self._latest = self._not_before(begin, latest)
        return self._latest

    def _not_before(self, begin: Offsets, latest: Offsets) -> Offsets:
        """`latest`, but nowhere before `begin`. A queue of the checkpoint that is missing is one whose broker is away:
        it stays as it is."""
        for queue, offset in begin.items():
            if latest.get(queue, offset) < offset:
                self._shrunk(queue, offset, latest[queue])
        return {**begin, **{queue: max(end, begin.get(queue, 0)) for queue, end in latest.items()}}

    def _shrunk(self, queue: MessageQueue, expected: int, found: int) -> None:
        said = (
            f"queue {queue_key(queue)} of topic {queue.topic} ends at {found}, but the stream has read up to "
            f"{expected}: the topic was deleted and made again, or the broker lost messages"
        )
        if self.options.subscription.fail_on_data_loss:
            raise DataLost(f"option failOnDataLoss: {said}")
        log.warning("%s", said)

    def _with_new_queues(self, cluster: Cluster, begin: Offsets, end: Offsets) -> Offsets:
        """A queue that came after the stream began is read from its first message."""
        new = [queue for queue in end if queue not in begin]
        if not new:
            return begin
        log.info("new queues: %s", ", ".join(f"{queue.topic} {queue_key(queue)}" for queue in new))
        return {**begin, **cluster.min_offsets(new)}

    def _waits_for_more(self, begin: Offsets, latest: Offsets) -> bool:
        least = self.options.min_rows
        if least is None or self._target is not None:
            return False
        backlog = sum(max(0, latest[queue] - begin[queue]) for queue in latest)
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return backlog < least and self._last_batch_s > 0 and waited_ms < self.options.max_delay_ms

    def _most_rows(self, cluster: Cluster, begin: Offsets, latest: Offsets, limit: ReadLimit) -> int | None:
        rows = [limit.max_rows] if isinstance(limit, ReadMaxRows) else []
        if self.options.max_rows is not None:
            rows.append(self.options.max_rows)
        if self.options.max_bytes is not None:
            rows.append(max(1, self.options.max_bytes // self._record_bytes(cluster, begin, latest)))
        return min(rows, default=None)

    def _record_bytes(self, cluster: Cluster, begin: Offsets, latest: Offsets) -> int:
        """The mean size of the records that come next, from a look at the fullest queue: no request tells it."""
        queue = max(latest, key=lambda queue: latest[queue] - begin[queue], default=None)
        if queue is None or latest[queue] <= begin[queue]:
            return 1
        wanted = OffsetRange(queue, begin[queue], min(latest[queue], begin[queue] + SAMPLE))
        subscription = Subscription(group=self.options.subscription.group, fail_on_data_loss=False, batch_size=SAMPLE)
        total = count = 0
        for pulled in read_range(cluster, wanted, subscription):
            total += len(pulled.records)
            count += pulled.count
        return max(1, total // count) if count else 1

    def _report(self, offsets: Offsets) -> None:
        """Stores progress in the consumer group, if one is named. It informs people; trouble with it ends no stream."""
        group = self.options.group
        fresh = {queue: offset for queue, offset in offsets.items() if self._committed.get(queue) != offset}
        if group is None or not fresh:
            return
        try:
            self._cluster().commit_offsets(group, fresh)
            self._committed.update(fresh)
        except Refusal as refused:
            # A group comes into being by its first pull, so before the first batch there may be none.
            level = logging.INFO if refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST else logging.WARNING
            log.log(level, "the progress of group %s could not be stored: %s", group, refused)
        except LinkLost as wrong:
            log.warning("the progress of group %s could not be stored: %s", group, wrong)

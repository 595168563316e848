"""Writing DataFrames to topics: `df.write` and `df.writeStream` with `format("arrowmq")`.

`delivery=at-least-once` sends rows as they come; a task that is repeated sends them again. `delivery=exactly-once`
sends half messages, which nobody sees, and the commit of the batch on the driver ends them (see `transactions`).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegralType, MapType, StringType, StructType, TimestampType

from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Connection, Refusal, Route, cluster_of
from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.sink.send import Halves, Outgoing, Sender
from arrowmq.spark.sink.transactions import BATCH_PROPERTY, QUERY_PROPERTY, end_batch, give_up, roll_back
from arrowmq.spark.source.filters import epoch_ms
from arrowmq.spark.source.options import connection_of
from arrowmq.wire import properties as names
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.ids import UniqueIds
from arrowmq.wire.message_queue import MessageQueue

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
DEFAULT_PRODUCER_GROUP = "arrowmq-spark"
SOURCE_ONLY = (
    "tags", "sql", "group", "topics", "topicPattern", "startingOffsets", "endingOffsets", "failOnDataLoss",
    "maxOffsetsPerTrigger", "includeHeaders",
)  # fmt: skip

_TEXT = (StringType,)
COLUMN_TYPES: dict[str, tuple[type, ...]] = {
    "body": (BinaryType, StringType),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": (StringType, ArrayType),
    "shardingKey": _TEXT,
    "queueId": (IntegralType,),
    "delayLevel": (IntegralType,),
    "deliverTimestamp": (TimestampType, IntegralType),
    "properties": (MapType,),
}


@dataclass(frozen=True)
class SinkOptions:
    connection: Connection
    topic: str | None
    producer_group: str
    delivery: str
    columns: tuple[str, ...]
    accepts_lost_record: bool
    rate: int | None = None  # rows a second of one task
    # Of a batch write: whose, and the how-manieth. Repeated under the same two, it is written once.
    txn_app_id: str | None = None
    txn_version: int | None = None

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    @classmethod
    def parse(cls, given: dict[str, str], schema: StructType, *, is_stream: bool) -> SinkOptions:
        options = Options(given)
        found = cls(
            connection=connection_of(options),
            topic=options.text("topic"),
            producer_group=options.text("producerGroup", DEFAULT_PRODUCER_GROUP) or DEFAULT_PRODUCER_GROUP,
            delivery=options.one_of(
                "delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE if is_stream else AT_LEAST_ONCE
            ),
            columns=tuple(field.name for field in schema),
            accepts_lost_record=options.truth("acceptLostRecord", False),
            rate=options.number("rate", least=1),
            txn_app_id=options.text("txnAppId"),
            txn_version=options.number("txnVersion"),
        )
        options.finish(*SOURCE_ONLY)
        found._check_transaction(is_stream)
        check_columns(schema, found)
        return found

    def _check_transaction(self, is_stream: bool) -> None:
        if self.txn_app_id is None and self.txn_version is None:
            return
        name = "txnVersion" if self.txn_app_id is None else "txnAppId"
        if self.txn_app_id is None or self.txn_version is None:
            raise OptionError(name, "txnAppId and txnVersion are used together")
        if is_stream:
            raise OptionError(name, "a stream numbers its batches itself; use it with df.write, as in foreachBatch")
        if not self.is_exactly_once:
            raise OptionError(name, "needs delivery=exactly-once")


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuses a DataFrame that is not one of messages, before anything is sent."""
    for item in schema:
        wanted = COLUMN_TYPES.get(item.name)
        if wanted is None:
            raise ValueError(
                f"column {item.name} is not one of a message ({', '.join(COLUMN_TYPES)}): drop it, or put it into "
                "body or properties, for example with to_json(struct(...)) as body"
            )
        if not isinstance(item.dataType, wanted):
            kinds = " or ".join(kind.typeName() if hasattr(kind, "typeName") else kind.__name__ for kind in wanted)
            raise ValueError(
                f"column {item.name} is {item.dataType.simpleString()}, but must be {kinds.replace('integral', 'int')}"
            )
    if "body" not in schema.names:
        raise ValueError("the DataFrame has no column body (binary or string)")
    if options.topic is None and "topic" not in schema.names:
        raise OptionError("topic", "say where to write: the option, or a column topic")
    if options.is_exactly_once:
        for column in ("delayLevel", "deliverTimestamp"):
            if column in schema.names:
                raise OptionError(
                    "delivery",
                    f"exactly-once is made of half messages, which cannot be delayed: drop column {column}, "
                    "or use delivery=at-least-once",
                )


@dataclass
class Sent(WriterCommitMessage):
    """What a task has done: the half messages that wait for their end, of which batch."""

    rows: int = 0
    query_id: str = ""
    halves: Halves = field(default_factory=Halves)


class _Writer:
    """What writing a partition takes, for batches and for streams."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        # Of a batch write: pickled with the writer, so that every task and the commit have the same one.
        self.query_id = uuid.uuid4().hex

    def write_partition(self, batches: Iterator[pa.RecordBatch], query_id: str, batch_id: int) -> Sent:
        cluster = cluster_of(self.options.connection)
        rows = RowReader(cluster, self.options, query_id, batch_id)
        sender = Sender(cluster, self.options.producer_group, rows.routes)
        try:
            for batch in batches if self.options.rate is None else _paced(batches, self.options.rate):
                sender.send(rows.messages(batch))
        except BaseException:
            # The task will be repeated or the batch given up; its half messages are of no use to anybody.
            # If that cannot be said now, the broker asks about them later, and is told then.
            with suppress(LinkLost, Refusal):
                roll_back(cluster, self.options.producer_group, sender.halves)
            raise
        return Sent(rows=sender.sent, query_id=query_id, halves=sender.halves)

    def end(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        sent = [message for message in messages if isinstance(message, Sent)]
        if not self.options.is_exactly_once or not sent:
            return
        halves = Halves()
        for message in sent:
            halves.merge(message.halves)
        end_batch(
            cluster_of(self.options.connection),
            self.options.producer_group,
            sent[0].query_id,
            batch_id,
            halves,
            accepts_lost_record=self.options.accepts_lost_record,
        )

    def give_up(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Spark calls this where tasks have failed, and also where a commit has, in the middle. Every task's message is
        there only in the second case: then that commit's process may live on and begin yet, and what it is about to
        make visible must not be rolled back. If it never does, brokers ask about these half messages."""
        if all(isinstance(message, Sent) for message in messages):
            return
        cluster = cluster_of(self.options.connection)
        for message in messages:
            if isinstance(message, Sent):
                give_up(cluster, self.options.producer_group, message.query_id, batch_id, message.halves)


def _paced(batches: Iterator[pa.RecordBatch], rate: int) -> Iterator[pa.RecordBatch]:
    """Hands rows out in tenths of a second, no faster than `rate` rows a second."""
    step = max(1, rate // 10)
    began = time.monotonic()
    given = 0
    for batch in batches:
        for first in range(0, batch.num_rows, step):
            ahead_s = given / rate - (time.monotonic() - began)
            if ahead_s > 0:
                time.sleep(ahead_s)
            piece = batch.slice(first, step)
            given += piece.num_rows
            yield piece


class BatchWriter(_Writer, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self.query_id = options.txn_app_id or self.query_id
        self.batch_id = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_partition(iterator, self.query_id, self.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.end(messages, self.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.give_up(messages, self.batch_id)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty("sql.streaming.queryId") or ""
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if self.options.is_exactly_once and (not query_id or batch_id < 0):
            raise RuntimeError("Spark did not say which query and batch this is, so exactly-once cannot be kept")
        return self.write_partition(iterator, query_id, batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.end(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.give_up(messages, batchId)


class RowReader:
    """Turns rows into messages and chooses their queues."""

    def __init__(self, cluster: Cluster, options: SinkOptions, query_id: str, batch_id: int) -> None:
        self.routes: dict[str, Route] = {}
        self._cluster = cluster
        self._options = options
        self._ids = UniqueIds()
        self._turn = random.randrange(1 << 16)
        self._marks = (
            {
                names.TRAN_MSG: "true",
                names.PGROUP: options.producer_group,
                QUERY_PROPERTY: query_id,
                BATCH_PROPERTY: str(batch_id),
            }
            if options.is_exactly_once
            else {}
        )

    def messages(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        empty = [None] * batch.num_rows
        rows = zip(*(columns.get(name, empty) for name in COLUMN_TYPES), strict=True)
        for body, topic, tags, keys, sharding_key, queue_id, level, deliver_at, properties in rows:
            # Rows without a key share a queue for a while, so that they travel in batches.
            self._turn += 1
            yield self._message(
                self._options.topic or topic, body, tags, keys, sharding_key, queue_id, level, deliver_at, properties
            )

    def _message(
        self,
        topic: str | None,
        body: bytes | str | None,
        tags: str | None,
        keys: str | list[str] | None,
        sharding_key: str | None,
        queue_id: int | None,
        level: int | None,
        deliver_at: datetime | int | None,
        properties: list[tuple[str, str]] | None,
    ) -> Outgoing:
        if not topic:
            raise ValueError("a row has no topic: its column topic is null, and the option topic is not given")
        if not body:
            raise ValueError("a row has an empty body, and a message must have one")
        found: dict[str, str] = {}
        if properties:
            found.update((name, value) for name, value in properties if value)
            for name in found:
                if name in names.RESERVED:
                    raise ValueError(f"property {name} is RocketMQ's own: use the column made for it, or another name")
        found[names.UNIQ_KEY] = self._ids.next()
        found[names.WAIT] = "true"
        if tags:
            found[names.TAGS] = tags
        if keys:
            found[names.KEYS] = keys if isinstance(keys, str) else " ".join(key for key in keys if key)
        if sharding_key:
            found[names.SHARDING_KEY] = sharding_key
        if level:
            found[names.DELAY] = str(level)
        if deliver_at:
            found[names.TIMER_DELIVER_MS] = str(deliver_at if isinstance(deliver_at, int) else epoch_ms(deliver_at))
        found.update(self._marks)
        data = body.encode() if isinstance(body, str) else body
        return Outgoing(self._queue(topic, sharding_key, queue_id), data, found)

    def _queue(self, topic: str, sharding_key: str | None, queue_id: int | None) -> MessageQueue:
        queues = self._writable(topic)
        if queue_id is not None:
            matching = [queue for queue in queues if queue.queue_id == queue_id]
            if not matching:
                raise ValueError(f"column queueId: topic {topic} has no queue {queue_id} to write to")
            return matching[self._turn // 64 % len(matching)]
        if sharding_key:
            return queues[abs(java_hash(sharding_key)) % len(queues)]
        return queues[self._turn // 64 % len(queues)]

    def _writable(self, topic: str) -> list[MessageQueue]:
        route = self.routes.get(topic)
        if route is None:
            found = self._cluster.route(topic) or self._made_by_sending(topic)
            if not found.writable:
                raise OptionError("topic", f"topic {topic} has no queue that may be written to")
            route = self.routes[topic] = found
        return route.writable

    def _made_by_sending(self, topic: str) -> Route:
        """A topic that does not exist is made by its first message, where brokers do that."""
        try:
            # A short while, because right after a start the NameServer knows neither.
            template = self._cluster.known_route("TBW102", patience_s=min(5.0, self._options.connection.patience_s))
        except LinkLost:
            raise OptionError(
                "topic",
                f"topic {topic} does not exist and brokers do not make topics by themselves "
                f"(autoCreateTopicEnable): create it with `arrowmq topic create {topic}`",
            ) from None
        known = self._cluster.route(topic)
        if known is not None:
            return known
        route = Route(topic, dict(template.addresses))
        route.writable = [
            MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in template.writable if queue.queue_id < 4
        ]
        return route

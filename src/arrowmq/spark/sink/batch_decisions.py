"""Batch decisions: what the exactly-once sink has decided, kept in a topic of the cluster itself.

For each batch of each query the topic has a record `begun`, which names every half message that is to become visible,
and, when all of them are, a record `done`. The first `begun` of a batch decides; everything written for that batch
afterwards (a batch that Spark repeats) is rolled back. A record larger than a message is split into parts, and counts
once its last part is there.
"""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arrowmq.spark.cluster import Cluster
from arrowmq.spark.options import OptionError
from arrowmq.spark.sink.send import Halves, Outgoing, Sender
from arrowmq.spark.source.pull import Subscription, read_range
from arrowmq.spark.source.ranges import OffsetRange, Offsets, offsets_from_json, offsets_to_json
from arrowmq.wire import properties as names
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import UniqueIds
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import Record, decode_records

TOPIC = "ARROWMQ_SPARK_BATCHES"
QUEUES = 4
PART_BYTES = 1024 * 1024
BEGUN, DONE = "begun", "done"


@dataclass
class Entry:
    """The last decision about a query."""

    query_id: str
    batch_id: int
    state: str
    halves: Halves = field(default_factory=Halves)
    # Where the target queues ended before the first half message was made visible.
    before: Offsets = field(default_factory=dict)

    def is_of(self, halves: Halves) -> bool:
        """Whether it is these half messages that are to become visible."""
        mine, given = ({name: each for name, each in some.places.items() if each} for some in (self.halves, halves))
        return self.state == BEGUN and mine == given


@dataclass
class _Page:
    """What one process has read of a queue of the decisions topic for one query."""

    next_offset: int
    entry: Entry | None = None
    parts: list[bytes] = field(default_factory=list)


class BatchDecisions:
    """Reads and writes the decisions topic. One for each process; it remembers how far it has read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pages: dict[tuple[str, MessageQueue], _Page] = {}
        self._homes: dict[str, MessageQueue] = {}
        self._ids = UniqueIds()

    def latest(self, query_id: str) -> Entry | None:
        """The newest entry of a query, wherever in the cluster it lies."""
        found: Entry | None = None
        home = self._homes.get(query_id)
        for queue in [home] if home is not None else self._queues(query_id):
            entry = self._read(query_id, queue)
            if entry is not None and (found is None or entry.batch_id >= found.batch_id):
                found = entry
                self._homes[query_id] = queue
        return found

    def write(self, entry: Entry) -> None:
        queues = self._queues(entry.query_id)
        home = self._homes.setdefault(entry.query_id, queues[java_hash(entry.query_id) % len(queues)])
        packed = zlib.compress(_encode(entry))
        pieces = [packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES)]
        sender = Sender(self._cluster, "arrowmq-spark-book", {})
        for number, piece in enumerate(pieces):
            properties = {
                names.TAGS: entry.query_id,
                names.KEYS: entry.query_id,
                names.UNIQ_KEY: self._ids.next(),
                names.WAIT: "true",
                "part": f"{number + 1}/{len(pieces)}",
                "batch": str(entry.batch_id),
                "state": entry.state,
            }
            # One after the other: a part must not overtake another.
            sender.send([Outgoing(home, piece, properties)])

    def _read(self, query_id: str, queue: MessageQueue) -> Entry | None:
        page = self._pages.get((query_id, queue))
        if page is None:
            page = self._pages[query_id, queue] = _Page(self._cluster.min_offsets([queue])[queue])
        end = self._cluster.max_offsets([queue])[queue]
        if end > page.next_offset:
            # The broker leaves out other queries by the hash of the tag; those that share it are left out here.
            subscription = Subscription(expression=query_id, fail_on_data_loss=False)
            for pulled in read_range(self._cluster, OffsetRange(queue, page.next_offset, end), subscription):
                for record in decode_records(pulled.records):
                    self._turn_page(page, query_id, record)
            page.next_offset = end
        return page.entry

    def _turn_page(self, page: _Page, query_id: str, record: Record) -> None:
        if record.tag != query_id:
            return
        number, _, count = record.properties["part"].partition("/")
        if number == "1":
            page.parts.clear()  # what is there was never finished
        if len(page.parts) != int(number) - 1:
            # A part sent twice, after a lost answer; or one of a record whose beginning is missing.
            if len(page.parts) >= int(number):
                del page.parts[int(number) - 1 :]
            else:
                return
        page.parts.append(record.decompressed_body())
        if number == count:
            entry = _decode(zlib.decompress(b"".join(page.parts)))
            page.parts.clear()
            newest = page.entry
            if newest is not None and (entry.batch_id, entry.state == DONE) <= (newest.batch_id, newest.state == DONE):
                return  # the first decision stands, and one about an earlier batch comes too late
            page.entry = entry

    def _queues(self, query_id: str) -> list[MessageQueue]:
        """The queue of this query on every broker that has the decisions topic."""
        route = self._cluster.route(TOPIC)
        if route is None or not route.writable:
            self._make_topic()
            deadline = time.monotonic() + self._cluster.connection.patience_s
            while (route := self._cluster.route(TOPIC)) is None or not route.writable:
                if time.monotonic() > deadline:
                    raise OptionError(
                        "delivery", f"exactly-once keeps its decisions in topic {TOPIC}, which cannot be made"
                    )
                time.sleep(0.05)
        number = java_hash(query_id) % QUEUES
        return sorted(queue for queue in route.writable if queue.queue_id == number) or sorted(route.writable)

    def _make_topic(self) -> None:
        names_and_addresses = self._cluster.brokers()
        for broker in names_and_addresses:
            command = Command.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {
                    "topic": TOPIC,
                    "defaultTopic": "TBW102",
                    "readQueueNums": str(QUEUES),
                    "writeQueueNums": str(QUEUES),
                    "perm": "6",
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                },
            )
            self._cluster.ask_broker(broker, command, f"making topic {TOPIC} for option delivery=exactly-once")


def _encode(entry: Entry) -> bytes:
    """JSON with the long lists as differences between neighbours, which compress to next to nothing."""
    value: dict[str, Any] = {
        "query": entry.query_id,
        "batch": entry.batch_id,
        "state": entry.state,
        "topics": sorted(entry.halves.topics),
        "before": offsets_to_json(entry.before),
        "halves": {
            broker: [
                np.diff(np.array(column, dtype=np.int64), prepend=0).tolist() for column in zip(*places, strict=True)
            ]
            for broker, places in sorted(entry.halves.places.items())
            if places
        },
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes) -> Entry:
    value = json.loads(data)
    halves = Halves(topics=set(value["topics"]))
    for broker, columns in value["halves"].items():
        queue_offsets, log_offsets = (np.cumsum(np.array(column, dtype=np.int64)).tolist() for column in columns)
        halves.places[broker] = list(zip(queue_offsets, log_offsets, strict=True))
    return Entry(value["query"], value["batch"], value["state"], halves, offsets_from_json(value["before"]))

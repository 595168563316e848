"""The way of a message from a capability of the broker into the store, and where other capabilities bend it.

A message on its way in passes three stages, each a list that capabilities add to when they are built:

  gates      every client send, before anything is looked at: is the broker taking messages at all? (flow control)
  rules      every client send, once topic and queue are settled: retry limits, half messages, transactions refused;
             of a batch, each message passes the rules that are marked for that (Apache's broker has none of its own)
  rewrites   every put, also the broker's own: a delay level becomes a place in SCHEDULE_TOPIC_XXXX, a timer its wheel

A gate or rule says no by raising `Refused`; a rewrite, which also runs for the broker's own messages where nobody waits
for an answer, by raising `PutRefused`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arrowmq.clock import Clock
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.wire import properties as names
from arrowmq.wire.headers import SendMessage
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record

Gate = Callable[[], None]
Rule = Callable[[SendMessage, Record], None]
Rewrite = Callable[[Record], None]


class PutRefused(Exception):
    """A message that must not be stored: the status a sender is told, and why in words."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class MessagePath:
    """Stores messages, after every rewrite; waits for the disk where the broker promises that."""

    def __init__(self, store: MessageStore, clock: Clock, *, sync_flush: bool, flush_timeout_ms: int) -> None:
        self.store = store
        self.clock = clock
        self.sync_flush = sync_flush
        self.flush_timeout_ms = flush_timeout_ms
        self.gates: list[Gate] = []
        self.rules: list[Rule] = []
        self.batch_rules: list[Rule] = []
        self.rewrites: list[Rewrite] = []

    def put(self, record: Record) -> Put:
        """Appends and dispatches in this turn of the loop. Raises `PutRefused`, before anything is written."""
        for rewrite in self.rewrites:
            rewrite(record)
        return self.store.put(record)

    def put_batch(self, records: list[Record]) -> Put:
        """All or nothing. Batches are stored as they came: delays inside them do not count, as in Apache's broker."""
        return self.store.put_batch(records)

    def must_wait(self, put: Put, properties: dict[str, str]) -> bool:
        """Whether the answer to this put has to wait for the disk."""
        return self.sync_flush and put.status is PutStatus.PUT_OK and properties.get(names.WAIT) != "false"

    async def flushed(self, put: Put) -> PutStatus:
        """Waits until the disk has what `put` wrote; FLUSH_DISK_TIMEOUT if that takes longer than syncFlushTimeout."""
        try:
            done = await asyncio.wait_for(self.store.flushed(put.end), self.flush_timeout_ms / 1000)
        except TimeoutError:
            done = False
        return PutStatus.PUT_OK if done else PutStatus.FLUSH_DISK_TIMEOUT


def set_properties(record: Record, properties: dict[str, str]) -> None:
    """Gives a record other properties, in its text form and in what `record.properties` has already read of it."""
    wanted = dict(properties)
    read = record.properties
    read.clear()
    read.update(wanted)
    record.properties_raw = encode_properties(wanted)

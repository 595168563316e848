"""The way of a message from a capability of the broker into the store, and where other capabilities bend it.

A message on its way in passes three stages, each a list that capabilities add to when they are built:

  gates      every client send, before anything is looked at: is the broker taking messages at all? (flow control)
  rules      every client send, once topic and queue are settled: retry limits, half messages, transactions refused;
             of a batch, each message passes the rules that are marked for that (Apache's broker has none of its own)
  rewrites   every put, also the broker's own: a delay level becomes a place in SCHEDULE_TOPIC_XXXX, a timer its wheel

A gate or rule says no by raising `Refused`; a rewrite, which also runs for the broker's own messages where nobody waits
for an answer, by raising `PutRefused`. Each is added with what it touches (`arrowmq.touches`), from which the fast path
knows what it may take past it; one that declares nothing sees every message.
"""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.clock import Clock
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.store.positions import Missed
from arrowmq.touches import Steps
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
    """Stores messages, after every rewrite; waits for what the broker promises of them."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.gates: Steps[Gate] = Steps("gate")
        self.rules: Steps[Rule] = Steps("rule")
        self.batch_rules: Steps[Rule] = Steps("batch rule")
        self.rewrites: Steps[Rewrite] = Steps("rewrite")
        self.may_wait = False  # whether more than the append may be promised later, as replicas come and go

    def put(self, record: Record) -> Put:
        """Appends and dispatches in this event loop iteration. Raises `PutRefused`, before anything is written."""
        for rewrite in self.rewrites:
            rewrite(record)
        return self.store.put(record)

    def put_batch(self, records: list[Record]) -> Put:
        """All or nothing. Batches are stored as they came: delays inside them do not count, as in Apache's broker."""
        return self.store.put_batch(records)

    @property
    def makes_wait(self) -> bool:
        """Whether a sender waits for more than the append, unless it says it will not."""
        return self.may_wait or bool(self.store.positions.promised)

    def must_wait(self, put: Put, properties: dict[str, str]) -> bool:
        """Whether the answer to this put has to wait."""
        return self.makes_wait and put.status is PutStatus.PUT_OK and properties.get(names.WAIT) != "false"

    async def kept(self, put: Put) -> PutStatus:
        """Waits until what the broker promises of `put` is true, or the time for it is over."""
        positions = self.store.positions
        return status_of(await positions.wait(put.end, positions.promised))


def status_of(missed: Missed) -> PutStatus:
    """How a sender hears of a promise that was not kept in time; of two, Apache names the replicas."""
    if Missed.AVAILABLE in missed:
        return PutStatus.SLAVE_NOT_AVAILABLE
    if Missed.REPLICATED in missed:
        return PutStatus.FLUSH_SLAVE_TIMEOUT
    return PutStatus.FLUSH_DISK_TIMEOUT if missed else PutStatus.PUT_OK


def set_properties(record: Record, properties: dict[str, str]) -> None:
    """Gives a record other properties, in its text form and in what `record.properties` has already read of it."""
    wanted = dict(properties)
    read = record.properties
    read.clear()
    read.update(wanted)
    record.properties_raw = encode_properties(wanted)

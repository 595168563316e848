"""What the log says about transactions: which half messages are open, how the others ended.

A transaction is a half message in RMQ_SYS_TRANS_HALF_TOPIC; it ends by an op record in RMQ_SYS_TRANS_OP_HALF_TOPIC that
names its offset in the half queue, as in Apache's broker, which can go on from this log and this from Apache's. Nothing
else is kept: what is in memory follows from the two queues, and is bounded by what happens between two rounds of
checks.

Apache collects op records for seconds, and so may forget in a crash that it has published. Here the record that follows
from a half message (the published one, its renewal, the parked copy) and the op record are written one right after the
other in one event loop iteration, and the former points to its half message (`preparedTransactionOffset`). So at any
moment, at most the very last record of the log can lack its op record, and `_repair` writes it.

An op record of ours also says how the half ended (`TRAN_END`) and has the transaction's id as its key. That makes an
end that is repeated after any time, and across restarts, recognisable by a look into the index.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.transactions.offset_set import OffsetSet
from arrowmq.clock import Clock
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, RecordError, decode_record
from arrowmq.wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, transaction_type, with_transaction_type

log = logging.getLogger(__name__)

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
HALF_QUEUE = 0
OP_TAG = "d"
TRAN_END = "TRAN_END"
OPS_A_READ = 256
INCARNATIONS = 64
MARKS = 64
RENEWALS = 20_000


class End(Enum):
    """How a half message left the half queue."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    RENEWED = "renewed"  # it stands again at the end of the queue, to be asked about once more
    PARKED = "parked"  # nobody decided in time: it is in TRANS_CHECK_MAX_TIME_TOPIC


DECISIONS = frozenset({End.COMMIT, End.ROLLBACK})


class NotStored(Exception):
    """The store refused a record that a transaction needs."""

    def __init__(self, put: Put) -> None:
        super().__init__(put.reason or put.status.name)
        self.put = put


def transaction_id(half: Record) -> str:
    return half.properties.get(keys.UNIQ_KEY) or half.offset_msg_id


def op_properties(how: End, decided_id: str | None) -> bytes:
    """What an op record says beside the offset of its half message. The id comes last (the fast path relies on it)."""
    properties = {keys.TAGS: OP_TAG, keys.WAIT: "false", TRAN_END: how.value}
    if decided_id is not None:
        properties[keys.KEYS] = decided_id
    return encode_properties(properties)


class TransactionLog:
    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, address: BrokerAddress, clock: Clock) -> None:
        self.store = store
        self.offsets = offsets
        self.address = address
        self.clock = clock
        self._op_offset = 0
        # The half messages that ended, as offsets in their queue; below its floor all of them are done with.
        self.ended = OffsetSet()
        # Ends of the op queue and of the half queue at some moments: op records below the one name half messages below
        # the other.
        self._marks: deque[tuple[int, int]] = deque()
        # Where half messages that were renewed lately stand now. The index knows it too, but under SYNC_FLUSH only once
        # it is on disk, and an end may come before that.
        self._renewed: dict[int, int] = {}
        # Op records that could not be written: nothing else is ended before they are.
        self._owed: list[tuple[int, End, str | None]] = []
        self.on_end: Callable[[Record], None] | None = None

    # Life

    def load(self, *, was_clean: bool) -> None:
        """Reads the op queue from where the last round of checks left it."""
        done_before = self._clamp(HALF_TOPIC, self.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE))
        self._op_offset = self._clamp(OP_HALF_TOPIC, self.offsets.get(TRANSACTION_GROUP, OP_HALF_TOPIC, HALF_QUEUE))
        self.ended = OffsetSet(done_before)
        offset = self._op_offset
        while entries := self.store.entries(OP_HALF_TOPIC, HALF_QUEUE, offset, OPS_A_READ):
            for entry in entries:
                for half_offset in self._named_by(entry.physical_offset):
                    self.ended.add(half_offset)
            offset = entries[-1].queue_offset + 1
        if not was_clean:
            self._repair()
        self.mark()

    def _clamp(self, topic: str, committed: int | None) -> int:
        lowest, highest = self.store.min_offset(topic, HALF_QUEUE), self.store.max_offset(topic, HALF_QUEUE)
        return min(max(committed or 0, lowest), highest)

    def _named_by(self, op_physical_offset: int) -> list[int]:
        try:
            op = self.store.record_at(op_physical_offset)
        except RecordError as damage:
            log.error("op record at log offset %d is damaged and ignored: %s", op_physical_offset, damage)
            return []
        if op is None:
            return []
        return [int(number) for number in op.body.decode("utf-8", "replace").split(",") if number.strip().isdecimal()]

    def _repair(self) -> None:
        """Writes the op record that a crash kept from following the last record of the log."""
        last = self._last_record()
        if last is None:
            return
        if transaction_type(last.sys_flag) == TRANSACTION_COMMIT:
            how = End.COMMIT
        elif last.topic == HALF_TOPIC:
            how = End.RENEWED
        elif last.topic == CHECK_MAX_TIME_TOPIC:
            how = End.PARKED
        else:
            return
        half = self.half_at(last.prepared_transaction_offset)
        if half is None or half.physical_offset >= last.physical_offset or transaction_id(half) != transaction_id(last):
            return
        if half.queue_offset not in self.ended:
            log.info(
                "half message %d ended (%s) as the broker crashed; its op record is written now",
                half.queue_offset,
                how.value,
            )
            self.end(half, how)

    def _last_record(self) -> Record | None:
        """The last record of the log is the last entry of its queue."""
        end = self.store.appended
        for topic, queue_ids in self.store.queues().items():
            for queue_id in queue_ids:
                newest = self.store.max_offset(topic, queue_id) - 1
                for entry in self.store.entries(topic, queue_id, newest, 1) if newest >= 0 else ():
                    if entry.physical_offset + entry.size == end:
                        return self.store.record_at(entry.physical_offset)
        return None

    # Questions

    @property
    def done_before(self) -> int:
        """Everything in the half queue before this is done with."""
        return self.ended.floor

    @property
    def owes(self) -> bool:
        """Whether an op record could not be written yet."""
        return bool(self._owed)

    def is_open(self, half_offset: int) -> bool:
        return self.ended.is_missing(half_offset)

    def next_open(self, half_offset: int) -> int:
        return self.ended.next_missing(max(half_offset, self.done_before))

    def half_at(self, physical_offset: int) -> Record | None:
        """The half message that begins there, or None if no such thing does."""
        try:
            record = self.store.record_at(physical_offset) if physical_offset >= 0 else None
        except RecordError:
            return None
        return record if record is not None and record.topic == HALF_TOPIC else None

    def half_of(self, half_offset: int) -> Record | None:
        for entry in self.store.entries(HALF_TOPIC, HALF_QUEUE, half_offset, 1):
            return self.half_at(entry.physical_offset)
        return None

    def newest(self, half: Record) -> Record:
        """The last renewal of a half message, or itself."""
        place = self._renewed.get(half.queue_offset) if half.topic == HALF_TOPIC else None
        renewal = None if place is None else self.half_at(place)
        if renewal is not None:
            return self.newest(renewal)
        found = [each for each in self._indexed(HALF_TOPIC, half) if each.physical_offset >= half.physical_offset]
        return max(found, key=lambda each: each.physical_offset, default=half)

    def decision_on(self, half: Record) -> End | None:
        """How this transaction was decided, under whichever of its half messages; None as far as the index knows."""
        for op in self._indexed(OP_HALF_TOPIC, half):
            how = op.properties.get(TRAN_END)
            if how in (End.COMMIT.value, End.ROLLBACK.value):
                return End(how)
        return None

    def is_parked(self, half: Record) -> bool:
        return any(each.physical_offset > half.physical_offset for each in self._indexed(CHECK_MAX_TIME_TOPIC, half))

    def _indexed(self, topic: str, half: Record) -> list[Record]:
        """Records of a topic with this transaction's id. The index compares hashes, so the ids are compared here."""
        wanted = transaction_id(half)
        found = self.store.query(topic, wanted, INCARNATIONS)
        records = [decode_record(each) for each in found]
        name = keys.KEYS if topic == OP_HALF_TOPIC else keys.UNIQ_KEY
        return [record for record in records if record.topic == topic and record.properties.get(name) == wanted]

    # Changes

    def end(self, half: Record, how: End) -> None:
        """Writes the op record. After this the half message is done with, in this process and in every later one."""
        self.ended.add(half.queue_offset)
        if self.on_end is not None:
            self.on_end(half)
        self._owed.append((half.queue_offset, how, transaction_id(half) if how in DECISIONS else None))
        try:
            self.settle()
        except NotStored as refused:
            log.error(
                "the op record of half message %d is owed until the store takes it: %s", half.queue_offset, refused
            )

    def settle(self) -> None:
        """Writes op records that are owed; raises `NotStored` while the store refuses them."""
        while self._owed:
            half_offset, how, decided_id = self._owed[0]
            put = self.store.put(self._op(half_offset, how, decided_id))
            if put.status is not PutStatus.PUT_OK:
                raise NotStored(put)
            del self._owed[0]

    def _op(self, half_offset: int, how: End, decided_id: str | None) -> Record:
        return Record(
            topic=OP_HALF_TOPIC,
            queue_id=HALF_QUEUE,
            born_timestamp=self.clock.now_ms(),
            born_host=self.address.store_host,
            store_host=self.address.store_host,
            body=f"{half_offset},".encode(),
            properties_raw=op_properties(how, decided_id),
        )

    def renew(self, half: Record, checks: int) -> Record:
        """Puts an open half message to the end of the half queue, and gives it as it stands there."""
        renewal = self._follow(half, HALF_TOPIC, {**half.properties, keys.TRANSACTION_CHECK_TIMES: str(checks)})
        self.end(half, End.RENEWED)
        self._renewed[half.queue_offset] = renewal.physical_offset
        if len(self._renewed) > RENEWALS:
            del self._renewed[next(iter(self._renewed))]
        return renewal

    def park(self, half: Record) -> None:
        self._follow(half, CHECK_MAX_TIME_TOPIC, half.properties)
        self.end(half, End.PARKED)

    def revive(self, parked: Record) -> None:
        """Gives a parked half message a new life, with no check counted yet."""
        self._put(self._like(parked, HALF_TOPIC, {**parked.properties, keys.TRANSACTION_CHECK_TIMES: "0"}))

    def as_sent(self, half: Record) -> Record:
        """A half message as its producer sent it, for a broker of another name."""
        properties = {**half.properties, keys.TRAN_MSG: "true"}
        topic = properties.pop(keys.REAL_TOPIC, "")
        queue_id = properties.pop(keys.REAL_QID, "0")
        record = self._like(half, topic, properties)
        record.queue_id = int(queue_id) if queue_id.isdecimal() else 0
        record.sys_flag = with_transaction_type(half.sys_flag, TRANSACTION_PREPARED)
        return record

    def _follow(self, half: Record, topic: str, properties: dict[str, str]) -> Record:
        self.settle()
        record = self._like(half, topic, properties)
        record.prepared_transaction_offset = half.physical_offset
        return self._put(record)

    def _like(self, half: Record, topic: str, properties: dict[str, str]) -> Record:
        return Record(
            topic=topic,
            queue_id=HALF_QUEUE,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_host=self.address.store_host,
            reconsume_times=half.reconsume_times,
            body=half.body,
            properties_raw=encode_properties(properties),
        )

    def _put(self, record: Record) -> Record:
        put = self.store.put(record)
        if put.status is not PutStatus.PUT_OK:
            raise NotStored(put)
        return record

    # Progress

    def done_up_to(self, half_offset: int) -> None:
        """Every half message before this is done with."""
        self.ended.forget_below(max(self.done_before, half_offset))

    async def persist_progress(self) -> None:
        """Commits the progress, as offsets of CID_RMQ_SYS_TRANS. Only what is kept counts: neither a power cut nor the
        next master may take away a renewal whose half message is no longer looked at."""
        done_before, op_offset = self.done_before, self._passed_ops()
        positions = self.store.positions
        if await positions.wait(self.store.appended, positions.kept):
            return
        self._op_offset = op_offset
        for topic, offset in ((HALF_TOPIC, done_before), (OP_HALF_TOPIC, op_offset)):
            if self.offsets.get(TRANSACTION_GROUP, topic, HALF_QUEUE) != offset:
                self.offsets.commit(TRANSACTION_GROUP, topic, HALF_QUEUE, offset)

    def _passed_ops(self) -> int:
        """Up to where op records name only half messages that are done with; by marks, because a broker that ends a
        million transactions cannot read them all again."""
        offset = self._op_offset
        while self._marks and self._marks[0][1] <= self.done_before:
            offset = self._marks.popleft()[0]
        return offset

    def mark(self) -> None:
        """Notes where both queues end now: when all half messages before that are done with, so are the op records."""
        # The op queue first: the half message of an op record that is seen is seen, too.
        ops = self.store.max_offset(OP_HALF_TOPIC, HALF_QUEUE)
        self._marks.append((ops, self.store.max_offset(HALF_TOPIC, HALF_QUEUE)))
        if len(self._marks) > MARKS:
            del self._marks[1]  # one less is no harm: the next start reads more

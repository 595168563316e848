"""The revive topic: writing check points and acks, and reading what others wrote.

What this broker writes it enters into the table in the same step. What it did not write, it reads: at its start all
since the place that was noted last, later what the timer delivers (check points and acks that Apache's broker left in
the store).

A revive queue is noted up to its first open check point (as the offset of Apache's revive group, which is that of the
last message done with). One message that stays invisible for hours would hold that place back, and the next start would
have to read all that follows; so an open check point far back is written once more at the end (`carry`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.names import revive_topic
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.check_points import CheckPoint, CheckPoints, QueueTurn, ReviveQueue
from arrowmq.broker.pop.pop_counts import ACK, CHECK_POINT, PopCounts
from arrowmq.broker.pop.revive_messages import (
    REVIVE_GROUP,
    AckMessage,
    CheckPointMessage,
    Unreadable,
    read,
    record_of,
)
from arrowmq.broker.send.message_path import MessagePath, PutRefused
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.records import Record, RecordError

log = logging.getLogger(__name__)

ENTRIES_A_READ = 256
# Messages between the noted place and the end of a revive queue above which open check points are carried on ...
CARRY_ABOVE = 50_000
# ... if there are as many for each that would have to be written again, so that carrying stays the smaller part
CARRY_FOR_EACH = 8
CARRIED_AT_ONCE = 64
LOOKS = 512


class ReviveLog:
    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        offsets: ConsumerOffsets,
        path: MessagePath,
        table: CheckPoints,
        counts: PopCounts,
        watch: Callable[[str, int, bool], None],
        clock: Clock,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.offsets = offsets
        self.path = path
        self.table = table
        self.counts = counts
        self.watch = watch
        self.clock = clock
        self.topic = revive_topic(config.broker_cluster_name)
        self.queues = [ReviveQueue(queue_id) for queue_id in range(config.revive_queue_num)]
        self.turn = QueueTurn(len(self.queues))
        self.on_read: list[Callable[[CheckPoint], None]] = []  # a check point was found in the log
        self.replay: Callable[[int, int, CheckPointMessage], None] | None = None
        self.known_since_ms = 0  # receipts from then on are in the table, or settled
        self.is_reading = False
        self._is_watching = False
        self._is_writing = False
        self._reader: asyncio.Handle | None = None

    # Life

    def begin(self) -> Iterator[None]:
        """Reads the log from the noted place to its end, a piece at a time; then follows it."""
        self.table.clear()
        for queue in self.queues:
            queue.open.clear()
            noted = self.offsets.get(REVIVE_GROUP, self.topic, queue.queue_id)
            lowest = self.store.min_offset(self.topic, queue.queue_id)
            queue.noted = -1 if noted is None else noted
            queue.read_offset = max(queue.noted + 1, lowest)
            while self._read_some(queue):
                yield
            self._was_popped(queue)
        self.known_since_ms = self.clock.now_ms()
        self.is_reading = True
        self._watch(True)

    def _watch(self, watched: bool) -> None:
        if self._is_watching != watched:
            self._is_watching = watched
            for queue in self.queues:
                self.watch(self.topic, queue.queue_id, watched)

    def stop(self) -> None:
        self.is_reading = False
        self._watch(False)
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    # Writing

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be written here: this is a slave that acts for its master."""
        return self.store.escape is not None

    def write_check_point(self, check_point: CheckPoint, since_ms: int = 0) -> Put:
        """Stores a check point. It is the caller's to enter it into the table, once it is stored."""
        put = self._put([self._record_of(self.message_of(check_point, since_ms), check_point.revive_queue)])
        if put.status is PutStatus.PUT_OK:
            self._written(check_point, put.queue_offset)
        return put

    def write_ack(self, check_point: CheckPoint, offsets: list[int], *, is_batch: bool) -> Put:
        """Stores acks; settling them in the table is the caller's."""
        message = self._ack_of(check_point, offsets, is_batch=is_batch)
        return self._put([self._record_of(message, check_point.revive_queue)])

    def write_move(self, new: CheckPoint, old: CheckPoint, offset: int, since_ms: int) -> Put:
        """Stores a check point and the ack of the one that it replaces for this message, both or none."""
        ack = self._ack_of(old, [offset], is_batch=False)
        put = self._put(
            [self._record_of(self.message_of(new, since_ms), new.revive_queue), self._record_of(ack, new.revive_queue)]
        )
        if put.status is PutStatus.PUT_OK:
            self._written(new, put.queue_offset)
        return put

    def write_merged(self, check_point: CheckPoint) -> Put:
        """Stores a check point together with the acks that it has already, all or nothing."""
        records = [self._record_of(self.message_of(check_point), check_point.revive_queue)]
        acked = check_point.acked_offsets()
        if acked and self.config.enable_pop_batch_ack:
            records.append(self._record_of(self._ack_of(check_point, acked, is_batch=True), check_point.revive_queue))
        else:
            for offset in acked:
                ack = self._ack_of(check_point, [offset], is_batch=False)
                records.append(self._record_of(ack, check_point.revive_queue))
        put = self._put(records)
        if put.status is PutStatus.PUT_OK:
            self._written(check_point, put.queue_offset)
        return put

    def write_ack_by_timer(self, ack: AckMessage, revive_queue: int, deliver_ms: int) -> Put:
        """An ack of a check point that still waits in the timer: it has to arrive behind it, as Apache's do."""
        now_ms = self.clock.now_ms()
        record = record_of(ack, self.topic, revive_queue, self.address.store_host, now_ms, deliver_ms)
        try:
            return self.path.put(record)
        except PutRefused as refused:
            return Put(refused.status, reason=refused.reason)

    @staticmethod
    def since_of(check_point: CheckPoint) -> int:
        """The time of the pop whose message this is since its invisible time was changed; 0 if that was not."""
        moved, since_ms = check_point.lane.moved.get(check_point.start_offset, (None, 0))
        return since_ms if moved is check_point else 0

    def message_of(self, check_point: CheckPoint, since_ms: int = 0) -> CheckPointMessage:
        lane = check_point.lane
        return CheckPointMessage(
            lane.topic,
            lane.group,
            lane.queue_id,
            check_point.start_offset,
            check_point.offsets(),
            check_point.pop_time,
            check_point.invisible_ms,
            check_point.broker_name,
            check_point.is_suspend,
            check_point.tries,
            since_ms or self.since_of(check_point),
        )

    def _ack_of(self, check_point: CheckPoint, offsets: list[int], *, is_batch: bool) -> AckMessage:
        lane = check_point.lane
        return AckMessage(
            lane.topic,
            lane.group,
            lane.queue_id,
            check_point.start_offset,
            check_point.pop_time,
            check_point.broker_name,
            offsets,
            is_batch,
        )

    def _record_of(self, message: CheckPointMessage | AckMessage, revive_queue: int) -> Record:
        now_ms = self.clock.now_ms()
        return record_of(message, self.topic, revive_queue, self.address.store_host, now_ms, now_ms)

    def _put(self, records: list[Record]) -> Put:
        queue = self.queues[records[0].queue_id]
        self._is_writing = True
        try:
            put = self.store.put(records[0]) if len(records) == 1 else self.store.put_batch(records)
        finally:
            self._is_writing = False
        if put.status is PutStatus.PUT_OK and queue.read_offset == put.queue_offset:
            queue.read_offset += len(records)
        return put

    def _written(self, check_point: CheckPoint, revive_offset: int) -> None:
        check_point.revive_offset = revive_offset
        self.queues[check_point.revive_queue].open.append(check_point)

    # Reading

    def arrived(self, topic: str, queue_id: int, next_offset: int, *_: object) -> None:
        """The store's listener: what this log wrote itself needs not be read."""
        if topic != self.topic or self._is_writing or not self.is_reading or self._reader is not None:
            return
        if queue_id < len(self.queues) and next_offset > self.queues[queue_id].read_offset:
            self._reader = asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._reader = None
        is_behind = [queue for queue in self.queues if self._read_some(queue)]
        if is_behind and self.is_reading:
            self._reader = asyncio.get_running_loop().call_soon(self._read_on)

    def is_behind(self, queue_id: int) -> bool:
        """Whether the log has messages, acks perhaps, that are not in the table yet."""
        return self.store.max_offset(self.topic, queue_id) > self.queues[queue_id].read_offset

    def _read_some(self, queue: ReviveQueue) -> bool:
        """True if there may be more."""
        entries = self.store.entries(self.topic, queue.queue_id, queue.read_offset, ENTRIES_A_READ)
        for entry in entries:
            self._read_one(queue, entry.queue_offset, entry.physical_offset)
            queue.read_offset = entry.queue_offset + 1
        return len(entries) == ENTRIES_A_READ

    def _read_one(self, queue: ReviveQueue, queue_offset: int, physical_offset: int) -> None:
        try:
            record = self.store.record_at(physical_offset)
            if record is None:
                raise Unreadable("it is no longer in the log")
            message = read(record, self.config.broker_name)
        except (RecordError, Unreadable) as damage:
            queue.unreadable += 1
            log.error("revive queue %d: message %d is passed over: %s", queue.queue_id, queue_offset, damage)
            return
        kind = ACK if isinstance(message, AckMessage) else CHECK_POINT
        self.counts.was_read(message.group, message.topic, queue.queue_id, kind)
        if isinstance(message, AckMessage) and self._was_moved(queue, message):
            self._enter_ack(message)
            return
        self._was_popped(queue)
        if isinstance(message, AckMessage):
            self._enter_ack(message)
        else:
            self._enter_check_point(queue, queue_offset, message, by_timer=keys.TIMER_OUT_MS in record.properties)

    def _enter_check_point(
        self, queue: ReviveQueue, queue_offset: int, message: CheckPointMessage, *, by_timer: bool
    ) -> None:
        queue.maybe_moved = (queue_offset, message)
        if len(message.offsets) != 1:
            self._was_popped(queue)
        if not message.offsets:
            return
        lane = self.table.lane(message.topic, message.group, message.queue_id)
        if lane.find(message.start_offset, message.pop_time) is not None:
            return  # written once more, because it was far back
        check_point = CheckPoint(
            lane,
            message.start_offset,
            message.pop_time,
            message.invisible_ms,
            message.offsets,
            queue.queue_id,
            message.broker_name,
            is_suspend=message.is_suspend,
            tries=message.tries,
        )
        check_point.waits_for_timer = by_timer
        self.table.add(check_point)
        if message.since_ms:
            self.table.move(message.start_offset, check_point, message.since_ms)
        self._written(check_point, queue_offset)
        for notify in self.on_read:
            notify(check_point)

    def _was_popped(self, queue: ReviveQueue) -> None:
        found, queue.maybe_moved = queue.maybe_moved, None
        if found is not None and self.replay is not None:
            self.replay(queue.queue_id, *found)

    def _was_moved(self, queue: ReviveQueue, ack: AckMessage) -> bool:
        if queue.maybe_moved is None:
            return False
        _, message = queue.maybe_moved
        is_pair = (message.topic, message.group, message.queue_id) == (ack.topic, ack.group, ack.queue_id)
        if not is_pair or list(ack.offsets) != [message.start_offset] or ack.pop_time >= message.pop_time:
            return False
        queue.maybe_moved = None
        lane = self.table.find_lane(message.topic, message.group, message.queue_id)
        check_point = None if lane is None else lane.find(message.start_offset, message.pop_time)
        if check_point is not None and not message.since_ms:
            self.table.move(message.start_offset, check_point, 0)  # Apache's broker does not say since when
        return True

    def _enter_ack(self, ack: AckMessage) -> None:
        lane = self.table.find_lane(ack.topic, ack.group, ack.queue_id)
        check_point = None if lane is None else lane.find(ack.start_offset, ack.pop_time)
        if check_point is None:
            return  # of a check point that is done with
        bits = 0
        for offset in ack.offsets:
            index = check_point.index_of(offset)
            if index >= 0:
                bits |= 1 << index
        self.table.settle(check_point, bits)

    # The noted place

    def note(self) -> None:
        """Moves the place from which the next start reads."""
        is_unfinished = [queue for queue in self.queues if self._carry(queue)]
        if is_unfinished and self.is_reading:
            asyncio.get_running_loop().call_soon(self.note)
        for queue in self.queues:
            first = queue.first_open()
            noted = (queue.read_offset if first is None else first.revive_offset) - 1
            if noted > queue.noted:
                queue.noted = noted
                self.offsets.commit(REVIVE_GROUP, self.topic, queue.queue_id, noted)

    def _carry(self, queue: ReviveQueue) -> bool:
        """True if there is more to carry."""
        first = queue.first_open()
        if first is None:
            return False
        end = queue.read_offset
        behind = end - first.revive_offset
        # An estimate will do: of a million in flight, a look at each would hold everybody else up
        if behind <= CARRY_ABOVE or behind <= CARRY_FOR_EACH * queue.open.estimate_open(LOOKS):
            return False
        for _ in range(CARRIED_AT_ONCE):
            check_point = queue.first_open()
            if check_point is None or check_point.revive_offset >= end:
                return False
            queue.open.popleft()
            before = check_point.revive_offset
            if self.write_merged(check_point).status is not PutStatus.PUT_OK:
                check_point.revive_offset = before
                queue.open.appendleft(check_point)
                return False
        return True

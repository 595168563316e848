"""POP_MESSAGE: which queues are read, what of them is handed out, and under which receipts.

A pop reads the queues of a topic in turn, from another one each time, and the retries of its group before or after
them. What it takes of a queue is one check point (`check_points`), stored before the answer leaves; then the group's
offset is moved on. If nothing is there, the request waits (`polling`).
"""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.groups.table import priority_factor
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.check_points import Chance, CheckPoint, CheckPoints, Lane
from arrowmq.broker.pop.checks import PopChecks
from arrowmq.broker.pop.merging import Merging
from arrowmq.broker.pop.order import OrderInfo, OrderTable
from arrowmq.broker.pop.polling import Polling, Waiting
from arrowmq.broker.pop.pop_counts import CHECK_POINT, PopCounts
from arrowmq.broker.pop.retry_topics import RetryTopics, flag_of, is_retry
from arrowmq.broker.pop.revive import ReviveService
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_types import PRIORITY
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import MESSAGE_TYPE, Topics
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import LATER, Answer, Call, Refused, answer_to_error, handles
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.results import EntryFilter, GetStatus, Got
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import PopMessage
from arrowmq.wire.headers.pop import (
    ORDERED_REVIVE_QUEUE,
    PopMessageResult,
    Receipt,
    msg_offset_info,
    start_offset_info,
)
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import decode_record, encode_record, record_bounds

MAX_BYTES = 64 << 20
RECENT_MS = 120_000
FROM_MIN = 0
# Of a stored record: where its queue offset lies
_QUEUE_OFFSET_AT = 20
_queue_offset = struct.Struct(">q").unpack_from

_CORRECTED = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL})
_PASSED_BY = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


def queue_offsets(pieces: list[memoryview]) -> list[int]:
    """The queue offset of each record."""
    found = []
    for piece in pieces:
        for begin, _ in record_bounds(piece):
            found.append(_queue_offset(piece, begin + _QUEUE_OFFSET_AT)[0])
    return found


class Pop:
    """One pop under way: what was asked, what is still to be read, and what was taken."""

    __slots__ = (
        *("call", "count", "gots", "group", "has_moved", "is_order", "is_over", "matches", "messages", "order_counts"),
        *("pieces", "plan", "pop_time", "request", "rest", "revive_queue", "starts", "topic"),
    )

    def __init__(
        self,
        request: PopMessage,
        call: Call,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        matches: EntryFilter | None,
        *,
        is_over: bool,
    ) -> None:
        self.request = request
        self.call = call
        self.topic = topic
        self.group = group
        self.matches = matches
        self.is_over = is_over
        self.is_order = bool(request.order)
        self.pop_time = 0
        self.revive_queue = 0
        self.plan: list[tuple[str, int]] = []  # queues still to be read, the next one last
        self.count = 0
        self.rest = 0  # messages that are there and were not taken
        self.has_moved = False
        self.gots: list[Got] = []
        self.pieces: list[memoryview] = []
        self.starts: list[tuple[str, int, int]] = []
        self.messages: list[tuple[str, int, list[int]]] = []
        self.order_counts: list[str] = []

    @property
    def key(self) -> tuple[str, str, int]:
        return self.request.topic, self.request.consumer_group, max(self.request.queue_id, -1)

    def release(self) -> None:
        for got in self.gots:
            got.release()
        self.pieces = []


class PopService:
    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        checks: PopChecks,
        table: CheckPoints,
        revive_log: ReviveLog,
        revive: ReviveService,
        merging: Merging,
        order: OrderTable,
        retry_topics: RetryTopics,
        polling: Polling,
        stats: BrokerStats,
        counts: PopCounts,
        clock: Clock,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.checks = checks
        self.table = table
        self.log = revive_log
        self.revive = revive
        self.merging = merging
        self.order = order
        self.retry_topics = retry_topics
        self.polling = polling
        self.stats = stats
        self.counts = counts
        self.clock = clock
        # For the next pop: where it begins to read, and whether retries come first
        self.chance = Chance(random.getrandbits(64))
        self.last_pops: dict[str, int] = {}  # by group
        self._tasks: set[asyncio.Task[None]] = set()
        order.on_free.append(polling.wake_for)

    def load(self) -> None:
        self.store.add_listener(self.polling.arrived)

    async def stop(self) -> None:
        self.polling.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def popping_now(self) -> set[str]:
        """Groups that have popped within the last minutes."""
        since_ms = self.clock.now_ms() - RECENT_MS
        for group in [group for group, at_ms in self.last_pops.items() if at_ms < since_ms]:
            del self.last_pops[group]
        return set(self.last_pops)

    @handles(RequestCode.POP_MESSAGE)
    def pop(self, request: PopMessage, call: Call) -> Any:
        return self._begin(request, call, is_over=False)

    def _begin(self, request: PopMessage, call: Call, *, is_over: bool) -> Any:
        topic, group = self.checks.pop(request, call.connection)
        matches = self.checks.filter_of(request.exp_type, request.exp)
        pop = Pop(request, call, topic, group, matches, is_over=is_over)
        pop.pop_time = self.clock.now_ms()
        pop.revive_queue = ORDERED_REVIVE_QUEUE if pop.is_order else self.log.turn.take()
        pop.plan = self._plan(pop, self.chance.value)
        self.chance.draw()
        self.last_pops[request.consumer_group] = pop.pop_time
        return self._go_on(pop)

    def _plan(self, pop: Pop, chance: int) -> list[tuple[str, int]]:
        """The queues in the order in which they are read, the first one last."""
        request, config = pop.request, self.config
        attributes = pop.topic.attributes or {}
        by_priority = (
            attributes.get(MESSAGE_TYPE) == PRIORITY and not pop.is_order and chance < priority_factor(pop.group)
        )
        retries_first = chance < (
            config.pop_from_retry_probability_for_priority if by_priority else config.pop_from_retry_probability
        )
        first = 0 if by_priority else chance
        if request.queue_id >= 0:
            normal = [(request.topic, request.queue_id)]
        else:
            normal = self._queues(pop.topic, first)
        if pop.is_order:
            return normal[::-1]
        retries: list[tuple[str, int]] = []
        for name in self.retry_topics.all_read(request.topic, request.consumer_group):
            retry = self.topics.get(name)
            if retry is not None:
                retries += self._queues(retry, first)
        plan = retries + normal if retries_first else normal + retries
        return plan[::-1]

    def _queues(self, topic: TopicConfig, first: int) -> list[tuple[str, int]]:
        """From the highest priority down, which is the highest queue, or the lowest."""
        count, name = topic.read_queue_nums, topic.topic_name
        if self.config.priority_order_asc:
            return [(name, (count - 1 - place + first) % count) for place in range(count)]
        return [(name, (place + first) % count) for place in range(count)]

    # Reading

    def _go_on(self, pop: Pop) -> Any:
        while pop.plan:
            if pop.count >= pop.request.max_msg_nums and not pop.is_order:
                pop.rest += sum(self._backlog(topic, queue_id, pop) for topic, queue_id in pop.plan)
                break
            topic, queue_id = pop.plan.pop()
            lane = self.table.lane(topic, pop.request.consumer_group, queue_id)
            if lane.is_busy:
                if not pop.is_order:
                    pop.rest += max(0, self.store.max_offset(topic, queue_id) - self._start_of(lane, pop))
                continue
            offset = self._first_offset(lane, pop)
            if offset is None:
                continue
            wanted = pop.request.max_msg_nums - pop.count
            got = self.store.get_if_hot(topic, queue_id, offset, wanted, MAX_BYTES, pop.matches)
            if got is None:
                return self._wait_for_disk(pop, lane, offset, wanted)
            if not self._took(pop, lane, offset, got):
                return self._wait_for_disk(pop, lane, got.next_offset, wanted)
        return self._finish(pop)

    def _backlog(self, topic: str, queue_id: int, pop: Pop) -> int:
        """What lies in a queue that is not read any more because the answer is full."""
        end = self.store.max_offset(topic, queue_id)
        if not end:
            return 0
        lane = self.table.find_lane(topic, pop.request.consumer_group, queue_id)
        if lane is None:
            lane = self.table.lane(topic, pop.request.consumer_group, queue_id)
        return max(0, end - self._start_of(lane, pop))

    def _first_offset(self, lane: Lane, pop: Pop) -> int | None:
        """Where to read a queue from; None if nothing is to be read there."""
        request = pop.request
        topic, queue_id = lane.topic, lane.queue_id
        end = self.store.max_offset(topic, queue_id)
        config = self.config
        if config.enable_pop_message_threshold and lane.in_flight > config.pop_inflight_message_threshold:
            pop.rest += max(0, end - self._start_of(lane, pop))
            return None
        reset = self.offsets.take_reset(lane.group, topic, queue_id)
        if reset is not None:
            self.order.clear(topic, lane.group, queue_id)
            self.merging.forget_steps(lane)
            self.offsets.commit(lane.group, topic, queue_id, reset)
            offset = reset
        else:
            offset = self._start_of(lane, pop, commits=True)
        if pop.is_order and self.order.is_blocked(
            request.attempt_id, topic, lane.group, queue_id, request.invisible_time
        ):
            return None
        if pop.count >= request.max_msg_nums:
            pop.rest += max(0, end - offset)
            return None
        return None if offset == end and self.store.min_offset(topic, queue_id) <= offset else offset

    def _start_of(self, lane: Lane, pop: Pop, *, commits: bool = False) -> int:
        """The offset that a group has come to in a queue; a new group begins as initMode says."""
        topic, queue_id = lane.topic, lane.queue_id
        offset = self.offsets.get(lane.group, topic, queue_id)
        if offset is None:
            offset = self._initial_offset(topic, queue_id, pop.request.init_mode)
            if commits:
                self.offsets.commit(lane.group, topic, queue_id, offset)
        ahead = self.merging.next_offset(lane)
        return offset if ahead is None else max(offset, ahead)

    def _initial_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        lowest = self.store.min_offset(topic, queue_id)
        if init_mode == FROM_MIN or is_retry(topic):
            return lowest
        if self.config.init_pop_offset_by_check_msg_in_mem and lowest <= 0:
            first = self.store.entries(topic, queue_id, 0, 1)
            if first and not self.store.is_cold(first[0].physical_offset, first[0].size):
                return 0
        return max(0, self.store.max_offset(topic, queue_id) - 1)

    def _wait_for_disk(self, pop: Pop, lane: Lane, offset: int, wanted: int) -> Any:
        """The store's thread reads what is not in memory; meanwhile nobody else pops this queue for the group."""
        lane.is_busy = True
        task = asyncio.ensure_future(self._read_cold(pop, lane, offset, wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return LATER

    async def _read_cold(self, pop: Pop, lane: Lane, offset: int, wanted: int) -> None:
        outcome: Any
        try:
            try:
                got = await self.store.get_cold(lane.topic, lane.queue_id, offset, wanted, MAX_BYTES, pop.matches)
            finally:
                lane.is_busy = False
            if not self._took(pop, lane, offset, got):
                outcome = self._wait_for_disk(pop, lane, got.next_offset, wanted)
            else:
                outcome = self._go_on(pop)
        except Exception as failure:
            pop.release()
            outcome = answer_to_error(failure, pop.call)
        if outcome is not LATER:
            pop.call.reply(outcome)
        self.polling.wake_for(pop.request.topic, lane.group, lane.queue_id)

    # Taking

    def _took(self, pop: Pop, lane: Lane, offset: int, got: Got) -> bool:
        """What was read belongs to the pop. False if it has to be read again, from where the store says."""
        if got.status in _CORRECTED:
            self._move(pop, lane, got.next_offset)
            offset, wanted = got.next_offset, pop.request.max_msg_nums - pop.count
            again = self.store.get_if_hot(lane.topic, lane.queue_id, offset, wanted, MAX_BYTES, pop.matches)
            if again is None:
                return False
            got = again
        if got.count:
            self._hand_out(pop, lane, offset, got)
        elif got.status in _PASSED_BY and got.next_offset > offset:
            self._move(pop, lane, got.next_offset)
            pop.has_moved = True
        pop.rest += max(0, got.max_offset - got.next_offset)
        return True

    def _move(self, pop: Pop, lane: Lane, offset: int) -> None:
        """The group's offset goes on without a message having been handed out."""
        if pop.is_order:
            self.offsets.commit(lane.group, lane.topic, lane.queue_id, offset)
        else:
            self.merging.popped(lane, offset, None)

    def _hand_out(self, pop: Pop, lane: Lane, offset: int, got: Got) -> None:
        offsets = queue_offsets(got.pieces)
        flag = flag_of(lane.topic)
        pop_time = pop.pop_time
        if pop.is_order:
            info = self.order.popped(
                pop.request.attempt_id,
                *(lane.topic, lane.group, lane.queue_id, pop_time, pop.request.invisible_time, offsets),
            )
            pop.order_counts += order_count_entries(flag, lane.queue_id, info)
            self.offsets.commit(lane.group, lane.topic, lane.queue_id, offset)
        elif not self._keep(pop, lane, offset, offsets, got):
            pop.rest += got.count
            got.release()
            return
        pop.starts.append((flag, lane.queue_id, offset))
        pop.messages.append((flag, lane.queue_id, offsets))
        pop.count += got.count
        self.stats.get(lane.group, lane.topic, lane.queue_id, got.count, got.total_bytes)
        if is_retry(lane.topic) and not self.config.pop_response_return_actual_retry_topic:
            for piece in got.pieces:
                pop.pieces += self._with_receipts(pop, lane, offset, piece)
            got.release()
        else:
            pop.gots.append(got)
            pop.pieces += got.pieces

    def _keep(self, pop: Pop, lane: Lane, offset: int, offsets: list[int], got: Got) -> bool:
        """Makes the check point. False if it cannot be stored: then its messages are not handed out."""
        if lane.find(offset, pop.pop_time) is not None:  # the group was sent back within this millisecond
            if pop.count:
                return False
            pop.pop_time = lane.free_pop_time(offset, pop.pop_time)
        check_point = CheckPoint(
            *(lane, offset, pop.pop_time, pop.request.invisible_time, offsets),
            *(pop.revive_queue, self.config.broker_name),
            client=pop.call.connection.peer_text,
        )
        if not self.merging.takes(check_point):
            put = self.log.write_check_point(check_point)
            self.counts.wrote(lane.group, lane.topic, CHECK_POINT, put.status.name)
            if put.status is not PutStatus.PUT_OK:
                return False
        self.table.add(check_point)
        self.revive.watch(check_point)
        self.merging.popped(lane, got.next_offset, check_point)
        return True

    def _with_receipts(self, pop: Pop, lane: Lane, start_offset: int, piece: memoryview) -> list[memoryview]:
        """A retry goes to the client under the topic that it subscribed to, and so has to carry its receipt itself."""
        found = []
        for begin, size in record_bounds(piece):
            record = decode_record(piece[begin : begin + size])
            receipt = Receipt(
                *(start_offset, pop.pop_time, pop.request.invisible_time, pop.revive_queue),
                *(flag_of(lane.topic), self.config.broker_name, record.queue_id, record.queue_offset),
            )
            properties = dict(record.properties)
            properties.setdefault(keys.POP_CK, receipt.encode())
            record = record.replace(topic=pop.request.topic, properties_raw=encode_properties(properties))
            found.append(memoryview(encode_record(record)))
        return found

    # Answering

    def _finish(self, pop: Pop) -> Any:
        if pop.count:
            if pop.rest > 0:
                self.polling.wake(pop.key)
            return self._answer(pop, ResponseCode.SUCCESS, GetStatus.FOUND)
        refusal = ResponseCode.POLLING_TIMEOUT if pop.is_over else self._wait(pop)
        if refusal is None:
            return LATER
        return self._answer(pop, refusal, GetStatus.NO_MESSAGE_IN_QUEUE)

    def _wait(self, pop: Pop) -> ResponseCode | None:
        request, call = pop.request, pop.call
        refusal = self.polling.refusal(pop.key, request.born_time, request.poll_time)
        if refusal is not None:
            return refusal
        waiting = Waiting(call, *pop.key, pop.matches, lambda is_over: self._again(request, call, is_over))
        self.polling.hold(waiting, request.born_time + request.poll_time)
        if pop.rest > 0 and pop.has_moved:
            self.polling.wake(pop.key)  # messages that the filter does not want lie before others
        return None

    def _again(self, request: PopMessage, call: Call, is_over: bool) -> None:
        outcome: Any
        try:
            outcome = self._begin(request, call, is_over=is_over)
        except Refused as refused:
            outcome = answer_to_error(refused, call)
        if outcome is not LATER:
            call.reply(outcome)

    def _answer(self, pop: Pop, code: ResponseCode, status: GetStatus) -> Answer:
        header = PopMessageResult(
            pop_time=pop.pop_time,
            invisible_time=pop.request.invisible_time,
            revive_qid=pop.revive_queue,
            rest_num=pop.rest,
            start_offset_info=start_offset_info(pop.starts),
            msg_offset_info=msg_offset_info(pop.messages),
            order_count_info=";".join(pop.order_counts) if pop.is_order else None,
        )
        if not pop.count:
            return Answer(code, header, remark=status.name)
        return Answer(code, header, pop.pieces, status.name, on_sent=pop.release)


def order_count_entries(flag: str, queue_id: int, info: OrderInfo) -> list[str]:
    """How often the messages were handed out before: each that was, and for old clients the least of all of them."""
    entries = [f"{flag} qo{queue_id}%{offset} {count}" for offset, count in info.counts.items()]
    least = min(info.counts.values()) if info.counts and len(info.counts) == len(info.offsets) else 0
    return [*entries, f"{flag} {queue_id} {least}"]

"""NOTIFICATION (tell me when there is something to pop), PEEK_MESSAGE and POLLING_INFO: looking without taking."""

from __future__ import annotations

import random
from typing import Any

from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.check_points import CheckPoints
from arrowmq.broker.pop.checks import PopChecks
from arrowmq.broker.pop.merging import Merging
from arrowmq.broker.pop.order import OrderTable
from arrowmq.broker.pop.polling import Polling, Waiting
from arrowmq.broker.pop.retry_topics import RetryTopics
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import LATER, Answer, Call, Refused, answer_to_error, handles
from arrowmq.store import MessageStore
from arrowmq.store.results import EntryFilter, GetStatus, Got
from arrowmq.wire.bodies import TopicConfig
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import Notification, PeekMessage, PollingInfo
from arrowmq.wire.headers.pop import NotificationResult, PollingInfoResult, PopMessageResult

MAX_BYTES = 64 << 20
MOST_MESSAGES = 32


class NotificationService:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        checks: PopChecks,
        table: CheckPoints,
        merging: Merging,
        order: OrderTable,
        retry_topics: RetryTopics,
        polling: Polling,
        pop_polling: Polling,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.checks = checks
        self.table = table
        self.merging = merging
        self.order = order
        self.retry_topics = retry_topics
        self.polling = polling
        self.pop_polling = pop_polling
        self.stats = stats
        self.clock = clock
        self.random = random.Random()
        order.on_free.append(polling.wake_for)

    def load(self) -> None:
        self.store.add_listener(self.polling.arrived)

    async def stop(self) -> None:
        self.polling.stop()

    # NOTIFICATION

    @handles(RequestCode.NOTIFICATION)
    def notification(self, request: Notification, call: Call) -> Any:
        return self._look(request, call, is_over=False)

    def _look(self, request: Notification, call: Call, *, is_over: bool) -> Any:
        if not request.born_time:
            request.born_time = self.clock.now_ms()
        topic, _ = self.checks.ask(request.topic, request.queue_id, request.consumer_group, call.connection)
        matches = self.checks.filter_of(request.exp_type, request.exp)
        if self._has_message(request, topic):
            return NotificationResult(has_msg=True)
        key = (request.topic, request.consumer_group, max(request.queue_id, -1))
        refusal = self.polling.refusal(key, request.born_time, request.poll_time)
        if is_over or refusal is not None:
            return NotificationResult(has_msg=False, polling_full=refusal == ResponseCode.POLLING_FULL)
        self._hold(request, call, key, matches)
        return LATER

    def _hold(self, request: Notification, call: Call, key: tuple[str, str, int], matches: EntryFilter | None) -> None:
        def again(is_over: bool) -> None:
            outcome: Any
            try:
                outcome = self._look(request, call, is_over=is_over)
            except Refused as refused:
                outcome = answer_to_error(refused, call)
            if outcome is not LATER:
                call.reply(outcome)

        self.polling.hold(Waiting(call, *key, matches, again), request.born_time + request.poll_time)

    def _has_message(self, request: Notification, topic: TopicConfig) -> bool:
        if request.queue_id >= 0:
            queues = [(request.topic, request.queue_id)]
        else:
            queues = [(request.topic, queue_id) for queue_id in range(topic.read_queue_nums)]
        queues += self._retry_queues(request.topic, request.consumer_group)
        return any(self._backlog(request, name, queue_id) > 0 for name, queue_id in queues)

    def _retry_queues(self, topic: str, group: str) -> list[tuple[str, int]]:
        found = []
        for name in self.retry_topics.all_read(topic, group):
            retry = self.topics.get(name)
            if retry is not None:
                found += [(name, queue_id) for queue_id in range(retry.read_queue_nums)]
        return found

    def _backlog(self, request: Notification, topic: str, queue_id: int) -> int:
        group = request.consumer_group
        if request.order and self.order.is_blocked(request.attempt_id, request.topic, group, queue_id, 0):
            return 0
        return self.store.max_offset(topic, queue_id) - self._offset(topic, group, queue_id)

    def _offset(self, topic: str, group: str, queue_id: int) -> int:
        offset = self.offsets.get(group, topic, queue_id)
        if offset is None:
            offset = self.store.min_offset(topic, queue_id)
        lane = self.table.find_lane(topic, group, queue_id)
        ahead = None if lane is None else self.merging.next_offset(lane)
        return offset if ahead is None else max(offset, ahead)

    # POLLING_INFO

    @handles(RequestCode.POLLING_INFO)
    def polling_info(self, request: PollingInfo, call: Call) -> PollingInfoResult:
        self.checks.ask(request.topic, request.queue_id, request.consumer_group, call.connection)
        key = (request.topic, request.consumer_group, request.queue_id)
        return PollingInfoResult(polling_num=self.pop_polling.waiting_in(key))

    # PEEK_MESSAGE

    @handles(RequestCode.PEEK_MESSAGE)
    async def peek(self, request: PeekMessage, call: Call) -> Answer:
        topic, _ = self.checks.ask(request.topic, request.queue_id, request.consumer_group, call.connection)
        wanted = min(max(request.max_msg_nums, 0), MOST_MESSAGES)
        first = self.random.randrange(100)
        if request.queue_id >= 0:
            queues = [(request.topic, request.queue_id)]
        else:
            count = topic.read_queue_nums
            queues = [(request.topic, (first + place) % count) for place in range(count)]
        retries = self._retry_queues(request.topic, request.consumer_group)
        gots: list[Got] = []
        rest = taken = 0
        for name, queue_id in retries + queues if first % 5 == 0 else queues + retries:
            offset = self._offset(name, request.consumer_group, queue_id)
            rest += max(0, self.store.max_offset(name, queue_id) - offset)
            if taken < wanted:
                got = await self._read(name, queue_id, offset, wanted - taken)
                taken += got.count
                gots.append(got)
        header = PopMessageResult(rest_num=rest)

        def release() -> None:
            for got in gots:
                got.release()

        if not taken:
            release()
            return Answer(ResponseCode.PULL_NOT_FOUND, header, remark=GetStatus.NO_MESSAGE_IN_QUEUE.name)
        for got in gots:
            if got.count:
                self.stats.get(request.consumer_group, request.topic, request.queue_id, got.count, got.total_bytes)
        pieces = [piece for got in gots for piece in got.pieces]
        return Answer(ResponseCode.SUCCESS, header, pieces, GetStatus.FOUND.name, on_sent=release)

    async def _read(self, topic: str, queue_id: int, offset: int, wanted: int) -> Got:
        got = await self._get(topic, queue_id, offset, wanted)
        if got.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
            got = await self._get(topic, queue_id, got.next_offset, wanted)
        return got

    async def _get(self, topic: str, queue_id: int, offset: int, wanted: int) -> Got:
        got = self.store.get_if_hot(topic, queue_id, offset, wanted, MAX_BYTES)
        return got if got is not None else await self.store.get_cold(topic, queue_id, offset, wanted, MAX_BYTES)

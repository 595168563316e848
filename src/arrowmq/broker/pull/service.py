"""Pulls: check, find the filter, read, answer; or, where nothing is there yet, wait (`longpoll`).

The body of an answer is the stored records themselves, as views of the mapped log. What must come from the disk is read
by the store's own thread, so that no other request waits for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from arrowmq.broker.apache_remarks import with_faq
from arrowmq.broker.groups.subscriptions import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUSPEND,
    FORBIDDEN_BROKER,
    FORBIDDEN_GROUP,
    FORBIDDEN_TOPIC,
    Subscriptions,
    forbidden,
)
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pull.longpoll import LongPoll, Waiting
from arrowmq.broker.role import MASTER_ID, BrokerRole
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.settings.config import READ, BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import LATER, Answer, Call, Refused, answer_to_error, handles
from arrowmq.store import MessageStore
from arrowmq.store.results import EntryFilter, GetStatus, Got
from arrowmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import PullMessage

MAX_BYTES = 128 * 1024 * 1024
MIN_BYTES = 100

CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class Pull:
    """One pull under way: what was asked, and what its checks found."""

    __slots__ = ("call", "group", "matches", "max_bytes", "request", "topic")

    def __init__(
        self,
        request: PullMessage,
        call: Call,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        matches: EntryFilter | None,
    ) -> None:
        self.request = request
        self.call = call
        self.topic = topic
        self.group = group
        self.matches = matches
        asked = request.max_msg_bytes
        self.max_bytes = MAX_BYTES if asked is None else min(max(asked, MIN_BYTES), MAX_BYTES)


@dataclass(eq=False, repr=False)
class PullService:
    config: BrokerConfig
    store: MessageStore
    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    subscriptions: Subscriptions
    longpoll: LongPoll
    stats: BrokerStats
    clock: Clock
    role: BrokerRole
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.subscriptions.clients.on_subscription_change.append(self._subscription_changed)

    @handles(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: PullMessage, call: Call) -> Any:
        if call.command.code == RequestCode.LITE_PULL_MESSAGE and not self.config.lite_pull_message_enable:
            raise forbidden(
                FORBIDDEN_BROKER,
                "the broker does not support lite pull: its litePullMessageEnable is false",
            )
        pull = self._checked(request, call)
        if request.sys_flag & FLAG_COMMIT_OFFSET and request.commit_offset >= 0:
            self._commit(request)
        reset = self.offsets.take_reset(request.consumer_group, request.topic, request.queue_id)
        if reset is not None:
            return self._answer(pull, self._at(request, GetStatus.OFFSET_RESET, reset))
        return self._read(pull, request.queue_offset, self._first)

    def _checked(self, request: PullMessage, call: Call) -> Pull:
        return Pull(request, call, *self.check(request, call.connection))

    def check(
        self, request: PullMessage, connection: Channel
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, EntryFilter | None]:
        """Who reads what, and with which filter; raises `Refused`."""
        if not self.config.is_readable:
            raise forbidden(
                FORBIDDEN_BROKER,
                f"the broker pulling message is forbidden: brokerPermission is {self.config.broker_permission}",
            )
        group = self.groups.find(request.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                with_faq(
                    f"subscription group [{request.consumer_group}] does not exist, "
                    f"{self.groups.why_not_created(request.consumer_group)}"
                ),
            )
        if not group.consume_enable:
            raise forbidden(
                FORBIDDEN_GROUP,
                f"subscription group no permission, {request.consumer_group}: its consumeEnable is false",
            )
        topic = self.topics.get(request.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                with_faq(
                    f"topic[{request.topic}] not exist, apply first please! Only a first message or an administrator "
                    f"creates a topic, for example with `arrowmq topic create {request.topic}`"
                ),
            )
        if not topic.perm & READ:
            raise forbidden(
                FORBIDDEN_TOPIC,
                f"the topic[{request.topic}] pulling message is forbidden: its perm is {topic.perm}, without read",
            )
        if not 0 <= request.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.peer_text}]",
            )
        return topic, group, self.subscriptions.filter_of(request, connection)

    def _commit(self, request: PullMessage) -> None:
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        if not self.offsets.has_reset(group, topic, queue_id):
            self.offsets.commit(group, topic, queue_id, request.commit_offset)

    def _at(self, request: PullMessage, status: GetStatus, offset: int) -> Got:
        """Nothing was read; the client goes on at `offset`."""
        return Got(
            status,
            offset,
            self.store.min_offset(request.topic, request.queue_id),
            self.store.max_offset(request.topic, request.queue_id),
        )

    # Reading

    def _read(self, pull: Pull, offset: int, then: Any) -> Any:
        """Reads now if that needs no disk, else in the store's thread; `then(pull, got)` answers or waits."""
        request = pull.request
        arguments = (request.topic, request.queue_id, offset, request.max_msg_nums, pull.max_bytes, pull.matches)
        got = self.store.get_if_hot(*arguments)
        if got is not None:
            return then(pull, got)
        task = asyncio.ensure_future(self._read_cold(pull, arguments, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return LATER

    async def _read_cold(self, pull: Pull, arguments: Any, then: Any) -> None:
        try:
            outcome = then(pull, await self.store.get_cold(*arguments))
        except Exception as failure:
            outcome = answer_to_error(failure, pull.call)
        if outcome is not LATER:
            pull.call.reply(outcome)

    def _first(self, pull: Pull, got: Got) -> Any:
        """The outcome of the first reading: an answer, or a place among the waiting."""
        request = pull.request
        if self._code(got, request.queue_offset) != ResponseCode.PULL_NOT_FOUND or not request.sys_flag & FLAG_SUSPEND:
            return self._answer(pull, got)
        if self.role.redirects:
            return self._answer(pull, got)
        self._hold(pull, got.next_offset if got.status is GetStatus.OFFSET_OVERFLOW_ONE else request.queue_offset)
        return LATER

    def _hold(self, pull: Pull, offset: int) -> None:
        request = pull.request
        wait_ms = request.suspend_timeout_millis
        if not self.config.long_polling_enable:
            wait_ms = self.config.short_polling_time_mills

        def again(waiting: Waiting, is_over: bool) -> None:
            self._again(pull, waiting, is_over)

        deadline_ms = self.clock.now_ms() + max(0, wait_ms)
        self._suspend(
            Waiting(
                pull.call,
                request.topic,
                request.queue_id,
                offset,
                deadline_ms,
                pull.matches,
                again,
                request.consumer_group,
            )
        )

    def _suspend(self, waiting: Waiting) -> None:
        """A message that readers do not see yet may lie in the queue: it wakes those who wait for it now, and whoever
        comes in the meantime must look again when it is confirmed. If that takes too long, the look is in vain and the
        pull comes back here."""
        self.longpoll.hold(waiting)
        topic, queue_id, positions = waiting.topic, waiting.queue_id, self.store.positions
        if self.store.queue(topic, queue_id).next_offset > waiting.offset:
            positions.when(positions.appended, positions.promised, lambda missed: self.longpoll.poke(topic, queue_id))

    def _subscription_changed(self, group: str, topic: str) -> None:
        """What waits under the old subscription would let the messages of the new one pass by."""
        known = self.topics.get(topic)
        if known is not None:
            self.longpoll.poke_group(group, topic, known.read_queue_nums)

    def _again(self, pull: Pull, waiting: Waiting, is_over: bool) -> None:
        """A waiting pull was woken, or its time is over."""
        request = pull.request
        waited_for = pull.matches
        try:
            # Group, topic or subscription may be gone by now, or closed to this reader.
            pull = self._checked(request, pull.call)
        except Refused as refused:
            pull.call.reply(answer_to_error(refused, pull.call))
            return
        if pull.matches is not waited_for:
            # Clients filter what a pull brings by the subscription they had when they sent it: messages of the new one
            # would be dropped there. So this pull ends, and the client asks again from the same place.
            pull.call.reply(self._answer(pull, self._at(request, GetStatus.NO_MATCHED_MESSAGE, waiting.offset)))
            return

        def woken(pull: Pull, got: Got) -> Any:
            may_wait = not is_over and waiting.deadline_ms > self.clock.now_ms()
            if may_wait and got.status is GetStatus.NO_MATCHED_MESSAGE:
                waiting.offset = got.next_offset
                if got.next_offset < got.max_offset:
                    return self._read(pull, got.next_offset, woken)
            if may_wait and got.status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_OVERFLOW_ONE):
                self._suspend(waiting)
                return LATER
            return self._answer(pull, got)

        reset = self.offsets.take_reset(request.consumer_group, request.topic, request.queue_id)
        outcome: Any
        try:
            if reset is not None:
                outcome = self._answer(pull, self._at(request, GetStatus.OFFSET_RESET, reset))
            else:
                outcome = self._read(pull, waiting.offset, woken)
        except Exception as failure:
            outcome = answer_to_error(failure, pull.call)
        if outcome is not LATER:
            pull.call.reply(outcome)

    # Answering

    def _code(self, got: Got, asked_offset: int) -> ResponseCode:
        if got.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return ResponseCode.PULL_NOT_FOUND if asked_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return CODES[got.status]

    def _answer(self, pull: Pull, got: Got) -> Answer:
        request = pull.request
        suggested = self.suggested_brokers(pull.group)[got.suggests_slave]
        code = self._code(got, request.queue_offset)
        if self.role.is_slave:
            code, suggested = self._on_a_slave(pull, got, code, suggested)
        self.offsets.pulled(request.consumer_group, request.topic, request.queue_id, got.next_offset)
        header = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(got.next_offset),
            "minOffset": str(got.min_offset),
            "maxOffset": str(got.max_offset),
            "topicSysFlag": str(pull.topic.topic_sys_flag),
            "groupSysFlag": str(pull.group.group_sys_flag),
        }
        if got.status is not GetStatus.FOUND:
            self.stats.get_missed()
            return Answer(code, header, remark=got.status.name)
        self.stats.get(request.consumer_group, request.topic, request.queue_id, got.count, got.total_bytes)
        return Answer(code, header, got.pieces, got.status.name, on_sent=got.release)

    def _on_a_slave(self, pull: Pull, got: Got, code: ResponseCode, suggested: int) -> tuple[ResponseCode, int]:
        """Who has caught up reads on from the master, while that is there; and an offset that this copy does not have
        is not corrected by it, unless offsetCheckInSlave is true: the master may have it."""
        if self.role.redirects and not got.suggests_slave:
            suggested = MASTER_ID
            if got.status is not GetStatus.FOUND:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code is ResponseCode.PULL_OFFSET_MOVED and not self.config.offset_check_in_slave:
            return ResponseCode.PULL_RETRY_IMMEDIATELY, pull.group.broker_id
        return code, suggested

    def suggested_brokers(self, group: SubscriptionGroupConfig) -> tuple[int, int]:
        """Where a group reads on: while it keeps up, and when it reads what lies far back."""
        if not self.config.slave_read_enable:
            return MASTER_ID, MASTER_ID
        return group.broker_id, group.which_broker_when_consume_slowly

"""One assigned queue: the loop that pulls it, with long polls, and stops while enough is held unacknowledged.

One pull is outstanding at a time. The broker holds it for up to `suspend_s` when there is nothing new, so an idle queue
costs a request every fifteen seconds and a new message arrives at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from arrowmq.client.consume.group.subscription import Subscription
from arrowmq.client.consume.process_queue import ProcessQueue
from arrowmq.client.errors import ArrowMQError, Unreachable
from arrowmq.client.message import Delivered
from arrowmq.wire import sysflag
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.client.consume.group.membership import GroupMember

log = logging.getLogger("arrowmq.client")

ANSWERS = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
PAUSE_AFTER_ERROR_S = 1.0
PAUSE_AFTER_FLOW_CONTROL_S = 0.02
QUICK_ANSWER_MS = 100
QUICK_ANSWERS_ALLOWED = 20
QUICK_ANSWER_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class FlowControl:
    """How much of one queue may be held unacknowledged before its pulls pause."""

    max_messages: int = 1000
    max_bytes: int = 100 * 1024 * 1024
    #: From the lowest unacknowledged offset to the highest: what a crash would deliver again at most.
    max_span: int = 2000
    #: For all queues of a topic together; each gets its share. None: no such limit.
    max_messages_per_topic: int | None = None
    max_bytes_per_topic: int | None = None

    def shared_by(self, queues: int) -> FlowControl:
        count, size = self.max_messages, self.max_bytes
        if self.max_messages_per_topic is not None:
            count = max(1, self.max_messages_per_topic // max(1, queues))
        if self.max_bytes_per_topic is not None:
            size = max(1, self.max_bytes_per_topic // max(1, queues))
        return FlowControl(count, size, self.max_span, self.max_messages_per_topic, self.max_bytes_per_topic)


@dataclass(frozen=True, slots=True)
class Pulling:
    """How a queue is pulled."""

    batch_size: int = 32
    batch_bytes: int = 256 * 1024
    suspend_s: float = 15.0
    timeout_s: float = 30.0
    interval_s: float = 0.0
    is_lite: bool = False


class Inbox(Protocol):
    """Where pulled messages go."""

    def arrived(self, pulled: PulledQueue, messages: Sequence[Delivered]) -> None: ...

    def dropped(self, pulled: PulledQueue) -> None: ...

    def lock_renewed(self) -> None: ...


class Lock(Enum):
    """An orderly queue may be consumed only while the broker's lock on it is ours."""

    NOT_NEEDED = 0
    HELD = 1
    LOST = 2


class PulledQueue:
    __slots__ = (
        "_quick_answers",
        "_resume",
        "_room",
        "committed",
        "flow",
        "is_dropped",
        "is_paused",
        "last_consume_ms",
        "last_pull_ms",
        "lock",
        "locked_at",
        "member",
        "next_offset",
        "process_queue",
        "queue",
        "subscription",
        "task",
        "wanted_broker_id",
    )

    def __init__(self, member: GroupMember, queue: MessageQueue, offset: int, subscription: Subscription) -> None:
        self.member = member
        self.queue = queue
        self.next_offset = offset
        self.subscription = subscription
        self.process_queue = ProcessQueue(queue)
        self.process_queue.skip_to(offset)
        self.flow = member.flow
        self.is_dropped = False
        self.is_paused = False
        self.lock = Lock.NOT_NEEDED
        self.locked_at = 0.0
        self.committed = -1
        self.wanted_broker_id = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._quick_answers = 0
        self.task: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._resume: asyncio.Future[None] | None = None

    # -- what the consumer does with it

    def acknowledged(self, offset: int) -> bool:
        if not self.process_queue.remove(offset):
            return False
        room = self._room
        if room is not None and self._has_room() and not room.done():
            room.set_result(None)
        return True

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        if self._resume is not None and not self._resume.done():
            self._resume.set_result(None)

    def drop(self) -> None:
        """Not ours any more: no further pulls, and acknowledgements no longer count."""
        self.is_dropped = True
        if self.task is not None:
            self.task.cancel()

    @property
    def is_usable(self) -> bool:
        return not self.is_dropped and self.lock is not Lock.LOST

    def _has_room(self) -> bool:
        flow, held = self.flow, self.process_queue
        return (
            held.count < flow.max_messages
            and held.held_bytes < flow.max_bytes
            and (self.lock is not Lock.NOT_NEEDED or held.span <= flow.max_span)
        )

    # -- the loop

    async def run(self) -> None:
        clock = self.member.session.clock
        while not self.is_dropped:
            if self.is_paused:
                self._resume = asyncio.get_running_loop().create_future()
                await self._resume
                continue
            if not self._has_room():
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                self._room = None
                continue
            try:
                pause_s = await self._pull()
            except (ArrowMQError, WireError, KeyError, ValueError) as error:  # the last two: an answer without sense
                pause_s = PAUSE_AFTER_ERROR_S
                self.member.pull_failed(self, error)
                if isinstance(error, Unreachable):
                    await clock.sleep(pause_s)
                    pause_s = 0.0
                    await self.member.came_back(self)
            if pause_s:
                await clock.sleep(pause_s)

    async def _pull(self) -> float:
        """One pull and what follows from its answer; gives the pause before the next."""
        member = self.member
        route = await member.session.route(self.queue.topic)
        target = route.reader(self.queue.broker_name, self.wanted_broker_id)
        if target is None:
            await member.session.refresh_route(self.queue.topic)
            return PAUSE_AFTER_ERROR_S
        broker_id, address = target
        asked_offset = self.next_offset
        self.last_pull_ms = member.session.clock.now_ms()
        accepted: tuple[int, ...] = (*ANSWERS, ResponseCode.FLOW_CONTROL)
        if member.pulling.is_lite and address not in member.without_lite_pull:
            accepted = (*accepted, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await member.session.ask(
            address,
            self._request(broker_id, address),
            f"pulling {self.queue.topic} queue {self.queue.queue_id} of {self.queue.broker_name}",
            member.pulling.timeout_s,
            accept=accepted,
        )
        if self.is_dropped or self.next_offset != asked_offset:
            return 0.0  # somebody moved the offset while the answer was under way: it belongs to the old one
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            member.without_lite_pull.add(address)
            return 0.0
        if answer.code == ResponseCode.FLOW_CONTROL:
            return PAUSE_AFTER_FLOW_CONTROL_S
        ext = answer.ext
        self.wanted_broker_id = int(ext.get("suggestWhichBrokerId", "0"))
        next_offset = int(ext["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            messages = member.decode(self, answer.body)
            self.next_offset = next_offset
            fresh = self.process_queue.put(messages)
            self.process_queue.skip_to(next_offset)
            member.count_pulled(len(fresh))
            if fresh:
                member.inbox.arrived(self, fresh)
            return member.pulling.interval_s
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await member.offset_moved(self, next_offset)
            return 0.0
        self.next_offset = next_offset
        self.process_queue.skip_to(next_offset)
        # A broker may answer "nothing new" at once instead of holding the pull (longPollingEnable=false): do not spin.
        is_quick = member.session.clock.now_ms() - self.last_pull_ms < QUICK_ANSWER_MS
        self._quick_answers = self._quick_answers + 1 if is_quick else 0
        return QUICK_ANSWER_PAUSE_S if self._quick_answers > QUICK_ANSWERS_ALLOWED else 0.0

    def _request(self, broker_id: int, address: str) -> Command:
        member, pulling = self.member, self.member.pulling
        flags = sysflag.PULL_SUSPEND | sysflag.PULL_SUBSCRIPTION
        commit = 0
        if broker_id == 0 and member.commits_at_broker:
            offset = self.process_queue.committable()
            if offset > 0 and not pulling.is_lite:
                flags |= sysflag.PULL_COMMIT_OFFSET
                commit = offset
        if pulling.is_lite:
            flags |= sysflag.PULL_LITE
        ext = {
            "consumerGroup": member.group,
            "topic": self.queue.topic,
            "queueId": str(self.queue.queue_id),
            "queueOffset": str(self.next_offset),
            "maxMsgNums": str(pulling.batch_size),
            "maxMsgBytes": str(pulling.batch_bytes),
            "sysFlag": str(flags),
            "commitOffset": str(commit),
            "suspendTimeoutMillis": str(round(pulling.suspend_s * 1000)),
            "subscription": self.subscription.expression,
            "subVersion": str(self.subscription.version),
            "expressionType": self.subscription.expression_type,
            "bname": self.queue.broker_name,
        }
        is_lite = pulling.is_lite and address not in member.without_lite_pull
        code = RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE
        return Command.request(code, ext)

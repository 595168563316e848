"""What the iterating consumer and the push consumer share: membership, settling of messages, start and end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, cast

from arrowmq.client import names
from arrowmq.client.async_scope import Scope
from arrowmq.client.consume.group.allocation import Averagely, Strategy
from arrowmq.client.consume.group.broker_requests import Callbacks
from arrowmq.client.consume.group.consume_from import ConsumeFrom, start_from
from arrowmq.client.consume.group.membership import GroupMember, Membership
from arrowmq.client.consume.group.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from arrowmq.client.consume.group.subscription import subscription
from arrowmq.client.consume.inbox import ConcurrentInbox, Inbox, OrderlyInbox
from arrowmq.client.consume.pulling import FlowControl, Pulling
from arrowmq.client.consume.send_back import FIRST_RETRY_LEVEL, Returns
from arrowmq.client.errors import InvalidUse
from arrowmq.client.hooks import Hook, Hooks
from arrowmq.client.message import Delivered, ReceivedMessage
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.session import Session
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.client")

KEPT_AGAIN_AFTER_S = 5.0
TIMED_OUT_AT_ONCE = 16
MIN_SUSPEND_S, MAX_SUSPEND_S = 0.01, 30.0


class ConsumeOptions(ConnectOptions, total=False):
    """The arguments that `Consumer` and `PushConsumer` have in common; `ConsumeRules` has the defaults."""

    #: "last" (the default), "first", or a time: where a group begins that has no progress yet.
    consume_from: ConsumeFrom | str | datetime | float
    #: One message of a queue at a time, in the queue's order.
    orderly: bool
    #: Every member gets every message.
    broadcasting: bool
    #: Broadcasting keeps its offsets here, in `<folder>/<client id>/<group>/offsets.json`.
    offset_folder: Path | None
    strategy: Strategy | None
    flow: FlowControl | None
    pulling: Pulling | None
    #: -1: sixteen, or without end when orderly.
    max_reconsume_times: int
    #: A message that is not settled so long after it was handed out is given back, and may go to somebody else.
    consume_timeout_s: float
    #: Orderly: the pause before a failed message is handed out again.
    suspend_s: float
    commit_interval_s: float
    hooks: Sequence[Hook]


@dataclass(frozen=True, slots=True)
class ConsumeRules:
    """How a group consumes: `ConsumeOptions` with every default filled in."""

    consume_from: ConsumeFrom | str | datetime | float = ConsumeFrom.LAST_OFFSET
    orderly: bool = False
    broadcasting: bool = False
    offset_folder: Path | None = None
    strategy: Strategy = field(default_factory=Averagely)
    flow: FlowControl = field(default_factory=FlowControl)
    pulling: Pulling = field(default_factory=Pulling)
    max_reconsume_times: int = -1
    consume_timeout_s: float = 15 * 60.0
    suspend_s: float = 1.0
    commit_interval_s: float = 5.0
    hooks: Sequence[Hook] = ()


def divided(options: ConsumeOptions) -> tuple[ConsumeRules, ConnectOptions]:
    """What is for the group, and what is for the connection."""
    rest: dict[str, Any] = dict(options)
    given = {each.name: rest.pop(each.name) for each in fields(ConsumeRules) if each.name in rest}
    rules = ConsumeRules(**{name: value for name, value in given.items() if value is not None})
    return rules, cast(ConnectOptions, rest)


class GroupConsumer(Scope):
    #: What messages are handed out as.
    _message_type: ClassVar[type[ReceivedMessage]] = ReceivedMessage

    def __init__(
        self,
        namesrv: str | Sequence[str] | None,
        group: str,
        topic: str | Sequence[str],
        tags: str,
        sql: str | None,
        given: ConsumeOptions,
    ) -> None:
        names.check_group(group)
        rules, connect = divided(given)
        if rules.broadcasting:
            # A stable name finds its offset file again after a restart.
            connect.setdefault("instance_name", "DEFAULT")
        options = Options.of(namesrv, connect)
        self._namespace = options.namespace
        self.group = options.namespace.wrap(group)
        self._rules = rules
        self._session = Session(options)
        self._inbox: Inbox = OrderlyInbox() if rules.orderly else ConcurrentInbox()
        membership = Membership(
            group=self.group,
            start=start_from(rules.consume_from),
            is_broadcasting=rules.broadcasting,
            is_orderly=rules.orderly,
            strategy=rules.strategy,
            flow=rules.flow,
            pulling=rules.pulling,
            message_type=self._message_type,
            commit_interval_s=rules.commit_interval_s,
        )
        self._member = GroupMember(self._session, membership, self._offset_store(), self._inbox, self)
        self._returns = Returns(self._session, self.group, rules.max_reconsume_times)
        self._hooks = Hooks(rules.hooks)
        self._callbacks = Callbacks(self._session, self._member, self)
        self._is_started = False
        self._is_closing = False
        for name in (topic,) if isinstance(topic, str) else topic:
            names.check_topic(name)
            wanted = subscription(self._namespace.wrap(name), tags, sql, self._session.clock.now_ms())
            self._member.subscribe(wanted)

    def _offset_store(self) -> OffsetStore:
        if not self._rules.broadcasting:
            return BrokerOffsets(self._session, self.group)
        folder = self._rules.offset_folder or Path.home() / ".rocketmq_offsets"
        return LocalOffsets(folder, self._session.client_id, self.group)

    # -- life

    @property
    def client_id(self) -> str:
        return self._session.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now, without the retry topic's."""
        return sorted(queue for queue in self._member.pulled if not queue.topic.startswith(names.RETRY_PREFIX))

    async def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Consume a further topic, or change the expression of one. All members of the group must say the same."""
        names.check_topic(topic)
        wanted = subscription(self._namespace.wrap(topic), tags, sql, self._session.clock.now_ms())
        if self._is_started:
            await self._member.subscribe_now(wanted)
        else:
            self._member.subscribe(wanted)

    async def unsubscribe(self, topic: str) -> None:
        await self._member.unsubscribe(self._namespace.wrap(topic))

    async def start(self) -> None:
        if not self._member.subscriptions:
            raise InvalidUse("nothing is subscribed: give a topic, or call subscribe before the start")
        await self._session.start()
        try:
            await self._member.start()
        except BaseException:
            await self._session.close()
            raise
        self._is_started = True
        self._session.spawn(self._watch_time_outs(), "consume time-outs")

    async def close(self) -> None:
        """Stop pulling, commit what is acknowledged, leave the group."""
        if self._is_closing:
            return
        self._is_closing = True
        try:
            self._inbox.close()
            if self._is_started and not self._session.is_closed:
                await self._member.stop_pulling()
                await self._finish()
                await self._member.leave()
                await self._hooks.close()
        finally:
            await self._session.close()

    async def _finish(self) -> None:
        """What must be done between the last pull and the last commit."""

    # -- settling

    def acknowledge(self, message: Delivered) -> None:
        source = message.pulled_from
        assert source is not None
        if source.acknowledged(message.queue_offset):
            self._inbox.settled(message)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """The message was not consumed. In order: it comes again here; else the broker delivers it again later."""
        source = message.source
        assert source is not None
        if source.is_dropped:
            return  # its new owner gets it anyway
        if self._rules.orderly:
            await self._again_in_order(message, delay_level)
        elif self._rules.broadcasting:
            log.warning("%r failed and is dropped: a broadcasting group has no retries", message)
            self.acknowledge(message)
        elif await self._returns.give_back(message, delay_level):
            self.acknowledge(message)
        else:
            message.extra_reconsumes += 1
            self._session.clock.call_later(KEPT_AGAIN_AFTER_S, lambda: self._inbox.again(message))

    async def _again_in_order(self, message: ReceivedMessage, delay_level: int) -> None:
        limit = self._rules.max_reconsume_times
        is_last = delay_level < 0 or (limit >= 0 and message.reconsume_times >= limit)
        if is_last and not self._rules.broadcasting:
            # The group consumes in order, so the broker makes it a dead letter instead of a retry.
            done = await (
                self._returns.give_back(message, -1) if delay_level < 0 else self._returns.send_to_retry_topic(message)
            )
            if done:
                self.acknowledge(message)
                return
        message.extra_reconsumes += 1
        pause_s = min(max(self._rules.suspend_s, MIN_SUSPEND_S), MAX_SUSPEND_S)
        self._session.clock.call_later(pause_s, lambda: self._inbox.again(message))

    async def _watch_time_outs(self) -> None:
        """Give back what was handed out and never settled, so that it does not hold the offset for ever."""
        limit_ms = self._rules.consume_timeout_s * 1000
        while True:
            await self._session.clock.sleep(min(self._rules.consume_timeout_s, 60.0))
            if self._rules.orderly or self._rules.broadcasting:
                continue
            oldest_ms = self._session.clock.now_ms() - limit_ms
            for pulled in list(self._member.pulled.values()):
                for _ in range(TIMED_OUT_AT_ONCE):
                    message = pulled.process_queue.lowest
                    if not isinstance(message, ReceivedMessage) or not 0 < message.delivered_ms < oldest_ms:
                        break
                    log.warning("%r was not settled within %g s", message, self._rules.consume_timeout_s)
                    await self.send_back(message, FIRST_RETRY_LEVEL)

    # -- progress

    async def commit(self) -> None:
        """Commit now what is acknowledged; it also happens by itself every few seconds and at the end."""
        await self._member.commit()

    def offsets(self) -> Mapping[MessageQueue, int]:
        """What would be committed now, by queue."""
        return {queue: self._member.committable(pulled) for queue, pulled in self._member.pulled.items()}

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more from these queues, or from any."""
        for queue, pulled in self._member.pulled.items():
            if not queues or queue in queues:
                pulled.pause()

    def resume(self, *queues: MessageQueue) -> None:
        for queue, pulled in self._member.pulled.items():
            if not queues or queue in queues:
                pulled.resume()

    async def consume_directly(self, message: ReceivedMessage) -> str:
        """A broker asks this member to consume one message on the spot (mqadmin's consumeMessageDirectly)."""
        raise InvalidUse("this consumer hands messages to an iteration; only a push consumer can consume on demand")

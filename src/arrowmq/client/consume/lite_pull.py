"""The lite pull consumer: the program asks for messages and decides itself what it has consumed, and where to read.

Queues come by `topic` (divided among the group's members) or by `assign` (fixed). There are no retries and no dead
letters; progress is the offset that is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from arrowmq.client import names
from arrowmq.client.async_scope import Scope
from arrowmq.client.consume.group.allocation import Averagely, Strategy
from arrowmq.client.consume.group.broker_requests import Callbacks
from arrowmq.client.consume.group.consume_from import ConsumeFrom, max_offset, min_offset, offset_at, start_from
from arrowmq.client.consume.group.membership import GroupMember, Membership
from arrowmq.client.consume.group.offsets import BrokerOffsets
from arrowmq.client.consume.group.subscription import Subscription, subscription
from arrowmq.client.consume.pulling import FlowControl, PulledQueue, Pulling
from arrowmq.client.errors import InvalidUse
from arrowmq.client.message import Delivered, ReceivedMessage
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.session import Session
from arrowmq.wire.message_queue import MessageQueue


class _Lists:
    """Pulled messages, one list a pull, in the order they arrived."""

    def __init__(self) -> None:
        self.ready: deque[tuple[PulledQueue, list[ReceivedMessage]]] = deque()
        self.arrival = asyncio.Event()

    def arrived(self, pulled: PulledQueue, messages: Sequence[Delivered]) -> None:
        self.ready.append((pulled, [each for each in messages if isinstance(each, ReceivedMessage)]))
        self.arrival.set()

    def dropped(self, pulled: PulledQueue) -> None:
        self.ready = deque(entry for entry in self.ready if entry[0] is not pulled)

    def lock_renewed(self) -> None:
        """Lite pull takes no locks."""


class LitePullConsumer(Scope):
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | Sequence[str] = (),
        tags: str = "*",
        sql: str | None = None,
        consume_from: ConsumeFrom | str | datetime | float = ConsumeFrom.LAST_OFFSET,
        auto_commit: bool = True,
        auto_commit_interval_s: float = 5.0,
        batch_size: int = 32,
        poll_timeout_s: float = 5.0,
        strategy: Strategy | None = None,
        flow: FlowControl | None = None,
        **connect: Unpack[ConnectOptions],
    ) -> None:
        names.check_group(group)
        options = Options.of(namesrv, connect)
        self._namespace = options.namespace
        self.group = options.namespace.wrap(group)
        self._session = Session(options, is_stream=True)
        self._lists = _Lists()
        self._auto_commit = auto_commit
        self._poll_timeout_s = poll_timeout_s
        membership = Membership(
            group=self.group,
            start=start_from(consume_from),
            is_active=True,
            strategy=strategy or Averagely(),
            flow=flow or FlowControl(),
            pulling=Pulling(batch_size=batch_size, suspend_s=20.0, timeout_s=30.0, is_lite=True),
            commit_interval_s=max(1.0, auto_commit_interval_s),
        )
        self._member = _LiteMember(self._session, membership, self._lists, auto_commit)
        self._callbacks = Callbacks(self._session, self._member, self)
        self._expression = (tags, sql)
        self._is_started = False
        for name in (topic,) if isinstance(topic, str) else topic:
            self._member.subscribe(self._subscription(name))

    def _subscription(self, topic: str) -> Subscription:
        names.check_topic(topic)
        tags, sql = self._expression
        return subscription(self._namespace.wrap(topic), tags, sql, self._session.clock.now_ms())

    # -- life

    @property
    def client_id(self) -> str:
        return self._session.client_id

    async def start(self) -> None:
        await self._session.start()
        try:
            await self._member.start()
        except BaseException:
            await self._session.close()
            raise
        self._is_started = True

    async def close(self) -> None:
        if self._session.is_closed:
            return
        try:
            if self._is_started:
                await self._member.leave()
        finally:
            await self._session.close()

    # -- which queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that may be read."""
        self._session.check_usable()
        return list((await self._session.route(self._namespace.wrap(topic))).subscribe_queues)

    @property
    def assignment(self) -> list[MessageQueue]:
        return sorted(self._member.pulled)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else is in the group."""
        wanted = set(queues)
        if self._member.fixed_queues is None and self._member.subscriptions:
            raise InvalidUse("topics are subscribed: queues come by division among the group, or by assign, not both")
        self._member.fixed_queues = wanted
        self._member.subscriptions = {queue.topic: self._subscription(queue.topic) for queue in wanted}
        if self._is_started:
            for queue in wanted:
                await self._session.route(queue.topic)
            await self._session.heartbeat()
            await self._member.rebalance()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._held(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._held(queue).resume()

    def _held(self, queue: MessageQueue) -> PulledQueue:
        pulled = self._member.pulled.get(queue)
        if pulled is None:
            raise InvalidUse(
                f"{queue.topic} queue {queue.queue_id} of {queue.broker_name} is not assigned to this consumer"
            )
        return pulled

    # -- reading

    async def poll(self, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """The next messages, all of one queue; an empty list when none came in time.

        Asking for the next list says that the one before is consumed: with auto-commit its offset is committed then.
        """
        self._session.check_usable()
        self._member.all_consumed()
        timeout_s = self._poll_timeout_s if timeout_s is None else timeout_s
        lists = self._lists
        try:
            async with asyncio.timeout(timeout_s):
                while not lists.ready:
                    lists.arrival.clear()
                    await lists.arrival.wait()
        except TimeoutError:
            return []
        pulled, messages = lists.ready.popleft()
        self._member.handed_out(pulled, messages)
        return messages

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            for message in await self.poll():
                yield message

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read on at this offset."""
        pulled = self._held(queue)
        lowest, highest = await min_offset(self._session, queue), await max_offset(self._session, queue)
        if not lowest <= offset <= highest:
            raise InvalidUse(f"{queue.topic} queue {queue.queue_id} has offsets {lowest} to {highest}, not {offset}")
        self._lists.dropped(pulled)
        self._member.seek(pulled, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self.seek(queue, await min_offset(self._session, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self.seek(queue, await max_offset(self._session, queue))

    async def offset_for_time(self, queue: MessageQueue, moment: datetime | float) -> int:
        """The offset of the first message stored at or after this moment."""
        seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
        return await offset_at(self._session, queue, round(seconds * 1000))

    # -- progress

    def position(self, queue: MessageQueue) -> int:
        """The offset that a commit would store for this queue now."""
        return self._member.committable(self._held(queue))

    async def committed(self, queue: MessageQueue) -> int | None:
        """What is stored for the group, or None."""
        return await self._member.offsets.query(queue, zero_if_young=False)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was handed out, or the offsets given."""
        if offsets is None:
            self._member.all_consumed()
            await self._member.commit_now()
        else:
            await self._member.offsets.commit(offsets)

    async def consume_directly(self, message: ReceivedMessage) -> str:
        raise InvalidUse("a lite pull consumer reads for itself; it cannot consume on demand")


class _LiteMember(GroupMember):
    """A member whose committable offset is what the program has consumed, not what was pulled."""

    def __init__(self, session: Session, membership: Membership, lists: _Lists, auto_commit: bool) -> None:
        super().__init__(session, membership, BrokerOffsets(session, membership.group), lists, _NoSettler())
        self._auto_commit = auto_commit
        self._handed_out: dict[PulledQueue, list[ReceivedMessage]] = {}

    def handed_out(self, pulled: PulledQueue, messages: list[ReceivedMessage]) -> None:
        self._handed_out.setdefault(pulled, []).extend(messages)

    def all_consumed(self) -> None:
        for pulled, messages in self._handed_out.items():
            for message in messages:
                pulled.acknowledged(message.queue_offset)
        self._handed_out.clear()

    def seek(self, pulled: PulledQueue, offset: int) -> None:
        self._handed_out.pop(pulled, None)
        held = pulled.process_queue
        held.clear()
        held.skip_to(offset)
        pulled.next_offset = offset
        # The running pull waits at the old offset: begin anew.
        if pulled.task is not None:
            pulled.task.cancel()
        pulled.task = self.session.spawn(pulled.run(), f"pull {pulled.queue.topic} {pulled.queue.queue_id}")

    async def commit(self) -> None:
        if self._auto_commit:
            await super().commit()

    async def commit_now(self) -> None:
        await super().commit()


class _NoSettler:
    def acknowledge(self, message: ReceivedMessage) -> None:
        """Progress is the list's, by the next poll."""

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        raise InvalidUse("a lite pull consumer has no retries: seek back, or send the message elsewhere")

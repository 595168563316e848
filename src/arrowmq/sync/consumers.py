"""The blocking consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from arrowmq.client import message
from arrowmq.client.consume import consumer, lite_pull, push
from arrowmq.client.consume.group_consumer import GroupConsumer
from arrowmq.client.consume.pop import popped, simple
from arrowmq.client.errors import InvalidUse
from arrowmq.sync.facade import Facade, arguments_of, blocking, iterating
from arrowmq.sync.loop_thread import LoopThread
from arrowmq.wire.message_queue import MessageQueue

RECEIVED_AT_ONCE = 64

_Group = TypeVar("_Group", bound=GroupConsumer)


class ReceivedMessage(message.ReceivedMessage):
    """A message whose `ack()` and `nack()` do not need to be awaited."""

    __slots__ = ()

    def ack(self) -> None:  # type: ignore[override]
        consumer = self._loop_consumer()
        # One wake-up of the loop serves all acknowledgements that gather until it runs.
        is_first = not consumer.acks
        consumer.acks.append(self)
        if is_first:
            consumer.thread.soon(consumer.settle_acks)

    def nack(self, delay_level: int = 0) -> None:  # type: ignore[override]
        consumer = self._loop_consumer()
        consumer.thread.call(lambda: consumer.send_back(self, delay_level))

    def _loop_consumer(self) -> LoopConsumer:
        owner = self._settler()
        if not isinstance(owner, LoopConsumer):
            raise InvalidUse("this message is settled by its handler's result, not by ack and nack")
        return owner


class LoopConsumer(consumer.Consumer):
    """The asyncio consumer behind a blocking one; its messages find their thread by it."""

    _message_type = ReceivedMessage
    thread: LoopThread
    acks: deque[message.ReceivedMessage]

    @property
    def is_acknowledging(self) -> bool:
        """Whether the iteration acknowledges (`auto_ack`)."""
        return self._auto_ack

    def settle_acks(self) -> None:
        while self.acks:
            self.acknowledge(self.acks.popleft())

    async def take(self, max_messages: int, timeout_s: float | None) -> list[ReceivedMessage]:
        taken = await super().receive(max_messages, timeout_s=timeout_s)
        return [each for each in taken if isinstance(each, ReceivedMessage)]


class _GroupFacade(Facade[_Group]):
    """What the blocking consumer and the blocking push consumer share."""

    commit = blocking(GroupConsumer.commit)
    subscribe = blocking(GroupConsumer.subscribe)
    unsubscribe = blocking(GroupConsumer.unsubscribe)

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._client.assignment


class Consumer(_GroupFacade[LoopConsumer]):
    __doc__ = consumer.Consumer.__doc__

    @arguments_of(LoopConsumer)
    def __init__(self, make: Callable[[], LoopConsumer]) -> None:
        self._begin(make)
        self._client.thread = self._thread
        self._client.acks = deque()
        self._ready: deque[ReceivedMessage] = deque()

    batches = iterating(LoopConsumer.batches)

    def receive(self, max_messages: int = 32, *, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Up to so many messages: at least one, unless `timeout_s` passes or the consumer ends before one comes."""
        if self._ready:
            return [self._ready.popleft() for _ in range(min(max_messages, len(self._ready)))]
        return self._thread.call(lambda: self._client.take(max_messages, timeout_s))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while not self._is_closed:
            if not self._ready:
                self._ready.extend(self.receive(RECEIVED_AT_ONCE))
                if not self._ready:
                    return  # the consumer was closed
            message = self._ready.popleft()
            yield message
            if self._client.is_acknowledging:
                message.ack()

    def close(self) -> None:
        if not self._is_closed:
            self._thread.call(self._settle)
        super().close()

    async def _settle(self) -> None:
        self._client.settle_acks()


class PushConsumer(_GroupFacade[push.PushConsumer]):
    """`arrowmq.PushConsumer` for plain functions: the handler runs in threads."""

    @arguments_of(push.PushConsumer)
    def __init__(self, make: Callable[[], push.PushConsumer]) -> None:
        self._begin(make)

    run = blocking(push.PushConsumer.run)


class PoppedMessage(popped.PoppedMessage):
    """A popped message whose `ack()`, `nack()` and `extend()` do not need to be awaited."""

    __slots__ = ()

    def ack(self) -> None:  # type: ignore[override]
        self._thread().call(super().ack)

    def nack(self, delay_s: float = 0.0) -> None:  # type: ignore[override]
        asked = super().nack
        self._thread().call(lambda: asked(delay_s))

    def extend(self, seconds: float) -> None:  # type: ignore[override]
        asked = super().extend
        self._thread().call(lambda: asked(seconds))

    def _thread(self) -> LoopThread:
        consumer = self._consumer()
        assert isinstance(consumer, LoopSimpleConsumer)
        return consumer.thread


class LoopSimpleConsumer(simple.SimpleConsumer):
    """The asyncio consumer behind a blocking one; its messages find their thread by it."""

    message_type = PoppedMessage
    thread: LoopThread

    async def take(self, max_messages: int, invisible_s: float | None, wait_s: float | None) -> list[PoppedMessage]:
        taken = await super().receive(max_messages, invisible_s, wait_s=wait_s)
        return [each for each in taken if isinstance(each, PoppedMessage)]


class SimpleConsumer(Facade[LoopSimpleConsumer]):
    __doc__ = simple.SimpleConsumer.__doc__

    @arguments_of(LoopSimpleConsumer)
    def __init__(self, make: Callable[[], LoopSimpleConsumer]) -> None:
        self._begin(make)
        self._client.thread = self._thread

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def receive(
        self, max_messages: int = simple.MOST_MESSAGES, invisible_s: float | None = None, *, wait_s: float | None = None
    ) -> list[PoppedMessage]:
        """Up to so many messages, which belong to the caller for `invisible_s`; an empty list if none came in time."""
        return self._thread.call(lambda: self._client.take(max_messages, invisible_s, wait_s))

    def __iter__(self) -> Iterator[PoppedMessage]:
        while not self._is_closed:
            yield from self.receive()


class LitePullConsumer(Facade[lite_pull.LitePullConsumer]):
    __doc__ = lite_pull.LitePullConsumer.__doc__

    @arguments_of(lite_pull.LitePullConsumer)
    def __init__(self, make: Callable[[], lite_pull.LitePullConsumer]) -> None:
        self._begin(make)

    queues = blocking(lite_pull.LitePullConsumer.queues)
    assign = blocking(lite_pull.LitePullConsumer.assign)
    poll = blocking(lite_pull.LitePullConsumer.poll)
    seek = blocking(lite_pull.LitePullConsumer.seek)
    seek_to_begin = blocking(lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(lite_pull.LitePullConsumer.seek_to_end)
    offset_for_time = blocking(lite_pull.LitePullConsumer.offset_for_time)
    committed = blocking(lite_pull.LitePullConsumer.committed)
    commit = blocking(lite_pull.LitePullConsumer.commit)

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._client.assignment

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        wanted = list(queues)
        self._thread.soon(lambda: self._client.pause(wanted))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        wanted = list(queues)
        self._thread.soon(lambda: self._client.resume(wanted))

    def position(self, queue: MessageQueue) -> int:
        return self._client.position(queue)

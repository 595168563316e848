"""The client for programs without an event loop: the same names and arguments, blocking calls.

    with arrowmq.sync.Producer("localhost:9876") as producer:
        producer.send("orders", b"...", tag="created")

    with arrowmq.sync.Consumer("localhost:9876", group="billing", topic="orders") as consumer:
        for message in consumer:
            message.ack()

Each client runs the asyncio client of the same name in a thread with an event loop of its own, which ends with it. The
clients may be used from several threads. After a fork the child makes its own: threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from arrowmq.client import admin as _admin
from arrowmq.client import consumer as _consumer
from arrowmq.client import lite_pull as _lite_pull
from arrowmq.client import message as _message
from arrowmq.client import producer as _producer
from arrowmq.client import push as _push
from arrowmq.client.errors import InvalidUse
from arrowmq.client.group_consumer import ConsumeOptions, GroupConsumer
from arrowmq.client.outgoing import Message, MessageDetails
from arrowmq.client.receipt import SendReceipt
from arrowmq.wire.message import MessageQueue

__all__ = ["Admin", "Consumer", "LitePullConsumer", "Message", "Producer", "PushConsumer", "ReceivedMessage"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")
_Group = TypeVar("_Group", bound=GroupConsumer)

RECEIVED_AT_ONCE = 64


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def begin(self, work: Callable[[], Awaitable[_R]]) -> concurrent.futures.Future[_R]:
        if os.getpid() != self._pid:
            raise InvalidUse("this client was made before a fork: make a new one in the child process")
        if threading.current_thread() is self._thread:
            raise InvalidUse("a blocking call inside of the client's own event loop would wait for itself")

        async def run() -> _R:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop)

    def call(self, work: Callable[[], Awaitable[_R]]) -> _R:
        """Run in the loop and wait; an interrupt (Ctrl-C) cancels what runs there."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _blocking(
    method: Callable[Concatenate[_C, _P], Awaitable[_R]],
) -> Callable[Concatenate[_Twin[_C], _P], _R]:
    """The blocking form of a coroutine method, with the same arguments and result."""

    def call(self: _Twin[_C], /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        return self._thread.call(lambda: method(self._client, *arguments, **options))

    call.__name__ = call.__qualname__ = method.__name__
    call.__doc__ = method.__doc__
    return call


class _Twin(Generic[_C]):
    """Life of a blocking client: the thread begins with it and ends with it."""

    _client: _C
    _is_closed = False

    def _begin(self, make: Callable[[], _C]) -> None:
        self._thread = LoopThread(f"arrowmq {type(self).__name__}")

        async def build() -> _C:
            return make()

        try:
            self._client = self._thread.call(build)
        except BaseException:
            self._thread.stop()
            raise

    def start(self) -> None:
        client: Any = self._client
        try:
            self._thread.call(client.start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        client: Any = self._client
        try:
            self._thread.call(client.close)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Transaction:
    """The blocking form of `arrowmq.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: Any) -> None:
        self._thread = thread
        self._transaction = transaction

    @property
    def msg_id(self) -> str:
        return str(self._transaction.msg_id)

    @property
    def receipt(self) -> SendReceipt:
        receipt: SendReceipt = self._transaction.receipt
        return receipt

    def commit(self) -> None:
        self._thread.call(self._transaction.commit)

    def rollback(self) -> None:
        self._thread.call(self._transaction.rollback)

    def leave_undecided(self) -> None:
        self._transaction.leave_undecided()


class Producer(_Twin[_producer.Producer]):
    __doc__ = _producer.Producer.__doc__

    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Any) -> None:
        self._begin(lambda: _producer.Producer(namesrv, **options))

    send = _blocking(_producer.Producer.send)
    send_oneway = _blocking(_producer.Producer.send_oneway)
    send_batch = _blocking(_producer.Producer.send_batch)
    send_in_transaction = _blocking(_producer.Producer.send_in_transaction)
    request = _blocking(_producer.Producer.request)
    reply = _blocking(_producer.Producer.reply)
    recall = _blocking(_producer.Producer.recall)
    queues = _blocking(_producer.Producer.queues)
    flush = _blocking(_producer.Producer.flush)

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def submit(
        self, topic: str | Message, body: bytes = b"", **details: Unpack[MessageDetails]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin a send and go on; the future has the receipt. Waits only while too much is in flight."""
        done: concurrent.futures.Future[SendReceipt] = concurrent.futures.Future()

        async def begin() -> None:
            task = await self._client.submit(topic, body, **details)
            task.add_done_callback(lambda ended: _hand_over(ended, done))

        self._thread.call(begin)
        return done

    @contextmanager
    def transaction(
        self, topic: str | Message, body: bytes = b"", **details: Unpack[MessageDetails]
    ) -> Iterator[Transaction]:
        """Commits at the end of the block, rolls back on an exception."""

        async def build() -> Any:
            return self._client.transaction(topic, body, **details)

        inner = self._thread.call(build)
        self._thread.call(inner.__aenter__)
        try:
            yield Transaction(self._thread, inner)
        except BaseException as error:
            failure = error
            self._thread.call(lambda: inner.__aexit__(type(failure), failure, None))
            raise
        self._thread.call(lambda: inner.__aexit__(None, None, None))


def _hand_over(task: asyncio.Task[SendReceipt], done: concurrent.futures.Future[SendReceipt]) -> None:
    if done.cancelled():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


class _LoopConsumer(_consumer.Consumer):
    """The asyncio consumer behind a blocking one; its messages find their thread by it."""

    thread: LoopThread
    acks: deque[_message.ReceivedMessage]

    def settle_acks(self) -> None:
        while self.acks:
            self.acknowledge(self.acks.popleft())


class ReceivedMessage(_message.ReceivedMessage):
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

    def _loop_consumer(self) -> _LoopConsumer:
        owner = self._settler()
        if not isinstance(owner, _LoopConsumer):
            raise InvalidUse("this message is settled by its handler's result, not by ack and nack")
        return owner


class _GroupTwin(_Twin[_Group]):
    """What the blocking consumer and the blocking push consumer share."""

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._client.assignment


class Consumer(_GroupTwin[_LoopConsumer]):
    __doc__ = _consumer.Consumer.__doc__

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | Sequence[str] = (),
        tags: str = "*",
        sql: str | None = None,
        auto_ack: bool = False,
        **options: Unpack[ConsumeOptions],
    ) -> None:
        self._auto_ack = auto_ack
        self._begin(
            lambda: _LoopConsumer(
                namesrv, group=group, topic=topic, tags=tags, sql=sql, message_type=ReceivedMessage, **options
            )
        )
        self._client.thread = self._thread
        self._client.acks = deque()
        self._ready: deque[ReceivedMessage] = deque()

    commit = _blocking(_LoopConsumer.commit)
    subscribe = _blocking(_LoopConsumer.subscribe)
    unsubscribe = _blocking(_LoopConsumer.unsubscribe)

    def receive(self, max_messages: int = 32, *, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Up to so many messages: at least one, unless `timeout_s` passes or the consumer ends before one comes."""
        if self._ready:
            return [self._ready.popleft() for _ in range(min(max_messages, len(self._ready)))]
        found: Any = self._thread.call(lambda: self._client.receive(max_messages, timeout_s=timeout_s))
        return list(found)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while not self._is_closed:
            if not self._ready:
                self._ready.extend(self.receive(RECEIVED_AT_ONCE))
                if not self._ready:
                    return  # the consumer was closed
            message = self._ready.popleft()
            yield message
            if self._auto_ack:
                message.ack()

    def batches(self, max_messages: int = 1024, *, linger_s: float = 0.1) -> Iterator[Any]:
        """Messages as Arrow record batches; each is acknowledged when the next one is asked for."""
        batches = self._client.batches(max_messages, linger_s=linger_s)
        while True:
            try:
                yield self._thread.call(lambda: _next_of(batches))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        if not self._is_closed:
            self._thread.call(self._settle)
        super().close()

    async def _settle(self) -> None:
        self._client.settle_acks()


async def _next_of(batches: Any) -> Any:
    return await anext(batches)


class PushConsumer(_GroupTwin[_push.PushConsumer]):
    """`arrowmq.PushConsumer` for plain functions: the handler runs in threads."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        handler: _push.Handler,
        topic: str | Sequence[str] = (),
        tags: str = "*",
        sql: str | None = None,
        concurrency: int = 20,
        batch_size: int = 1,
        message_timeout_s: float | None = None,
        close_timeout_s: float = 30.0,
        **options: Unpack[ConsumeOptions],
    ) -> None:
        self._begin(
            lambda: _push.PushConsumer(
                namesrv,
                group=group,
                handler=handler,
                topic=topic,
                tags=tags,
                sql=sql,
                concurrency=concurrency,
                batch_size=batch_size,
                message_timeout_s=message_timeout_s,
                close_timeout_s=close_timeout_s,
                **options,
            )
        )

    run = _blocking(_push.PushConsumer.run)
    commit = _blocking(_push.PushConsumer.commit)
    subscribe = _blocking(_push.PushConsumer.subscribe)
    unsubscribe = _blocking(_push.PushConsumer.unsubscribe)


class LitePullConsumer(_Twin[_lite_pull.LitePullConsumer]):
    __doc__ = _lite_pull.LitePullConsumer.__doc__

    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Any) -> None:
        self._begin(lambda: _lite_pull.LitePullConsumer(namesrv, **options))

    queues = _blocking(_lite_pull.LitePullConsumer.queues)
    assign = _blocking(_lite_pull.LitePullConsumer.assign)
    poll = _blocking(_lite_pull.LitePullConsumer.poll)
    seek = _blocking(_lite_pull.LitePullConsumer.seek)
    seek_to_begin = _blocking(_lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = _blocking(_lite_pull.LitePullConsumer.seek_to_end)
    offset_for_time = _blocking(_lite_pull.LitePullConsumer.offset_for_time)
    committed = _blocking(_lite_pull.LitePullConsumer.committed)
    commit = _blocking(_lite_pull.LitePullConsumer.commit)

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


class Admin(_Twin[_admin.Admin]):
    """`arrowmq.Admin` with blocking calls: every coroutine method of it is here under its name."""

    def __init__(self, namesrv: str | Sequence[str] | None = None, **options: Any) -> None:
        self._begin(lambda: _admin.Admin(namesrv, **options))

    def __getattr__(self, name: str) -> Any:
        method = getattr(_admin.Admin, name, None)
        if name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(f"Admin has no blocking call {name}")

        def call(*arguments: Any, **options: Any) -> Any:
            return self._thread.call(lambda: method(self._client, *arguments, **options))

        call.__name__, call.__doc__ = name, method.__doc__
        return call

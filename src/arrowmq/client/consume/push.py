"""The push consumer: calls a handler for every message, several at a time or in the order of the queues.

    async def bill(message):
        ...

    async with PushConsumer("localhost:9876", group="billing", topic="orders", handler=bill) as consumer:
        await consumer.run()

A handler that returns has consumed the message. One that raises, returns `RETRY` or takes longer than
`message_timeout_s` has not: the message comes again.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any, Unpack

from arrowmq.client import trace_context as tracing
from arrowmq.client.consume.group_consumer import ConsumeOptions, GroupConsumer
from arrowmq.client.consume.handler_threads import HandlerThreads
from arrowmq.client.errors import ArrowMQError, InvalidUse
from arrowmq.client.message import ReceivedMessage

log = logging.getLogger("arrowmq.client")


class ConsumeResult(Enum):
    SUCCESS = "SUCCESS"
    RETRY = "RETRY"


class RetryLater(Exception):
    """Raised by a handler to have the message again after RocketMQ's `delay_level`; -1 makes it a dead letter."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"again at delay level {delay_level}")
        self.delay_level = delay_level


#: Takes a message, or a list of them when `batch_size` is over one. A plain function runs in a thread.
Handler = Callable[[Any], Awaitable[object] | object]


class PushConsumer(GroupConsumer):
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        handler: Handler,
        topic: str | Sequence[str] = (),
        tags: str = "*",
        sql: str | None = None,
        concurrency: int = 20,
        batch_size: int = 1,
        message_timeout_s: float | None = None,
        close_timeout_s: float = 30.0,
        **options: Unpack[ConsumeOptions],
    ) -> None:
        if not callable(handler):
            raise InvalidUse(f"the handler is a function of a message, not {handler!r}")
        if concurrency < 1 or batch_size < 1:
            raise InvalidUse("concurrency and batch_size are at least 1")
        if options.get("orderly") and batch_size > 1:
            raise InvalidUse("consuming in order goes message by message: batch_size must be 1")
        super().__init__(namesrv, group, topic, tags, sql, options)
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - objects whose __call__ is async
        )
        self._threads = None if self._is_async else HandlerThreads(concurrency, self.group)
        self._concurrency = concurrency
        self._batch_size = batch_size
        self._message_timeout_s = message_timeout_s
        self._close_timeout_s = close_timeout_s
        self._workers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()

    async def start(self) -> None:
        await super().start()
        self._workers = [self._session.spawn(self._work(), f"consume {number}") for number in range(self._concurrency)]

    async def run(self) -> None:
        """Wait until the consumer is closed; cancel it, or leave the `async with`, to end it."""
        await self._ended.wait()

    async def _finish(self) -> None:
        """Let running handlers come to their end, up to the limit; what is not done is delivered to somebody else."""
        if self._threads is not None:
            self._threads.let_waiting_go()
        _, late = await asyncio.wait(self._workers, timeout=self._close_timeout_s) if self._workers else ((), ())
        if late:
            log.warning(
                "%d handlers did not end within %g s; their messages come again", len(late), self._close_timeout_s
            )
        for worker in late:
            worker.cancel()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._ended.set()
            if self._threads is not None:
                self._threads.close()

    # -- consuming

    async def _work(self) -> None:
        inbox = self._inbox
        while not inbox.is_closed:
            # A message is taken only when a thread is free for it: its time does not pass while it waits.
            if self._threads is not None and not await self._threads.one_is_free():
                return
            messages: list[ReceivedMessage] = []
            while len(messages) < self._batch_size and isinstance(message := inbox.take(), ReceivedMessage):
                messages.append(message)
            if messages:
                await self._consume(messages)
            else:
                await inbox.wait()

    async def _consume(self, messages: list[ReceivedMessage]) -> None:
        clock = self._session.clock
        now_ms = clock.now_ms()
        for message in messages:
            message.delivered_ms = now_ms
            if message.source is not None:
                message.source.last_consume_ms = now_ms
        if self._hooks:
            self._hooks.before_consume(self.group, messages)
        started = clock.monotonic()
        failure: BaseException | None = None
        delay_level = 0
        try:
            result = await self._call(messages)
            if result is ConsumeResult.RETRY or result is False:
                failure = RetryLater()
        except RetryLater as later:
            failure, delay_level = later, later.delay_level
        except asyncio.CancelledError:
            raise
        except TimeoutError as late:
            failure = late
            stuck = "" if self._threads is None else f" ({self._threads.busy} of {self._concurrency} threads are busy)"
            log.warning(
                "the handler of %s did not end within %s s%s: %r",
                self.group,
                self._message_timeout_s,
                stuck,
                messages[0],
            )
        except Exception as error:
            failure = error
            log.exception("the handler of %s failed for %r; it comes again", self.group, messages[0])
        if self._hooks:
            self._hooks.after_consume(self.group, messages, failure, (clock.monotonic() - started) * 1000)
        if failure is None:
            for message in messages:
                self.acknowledge(message)
            return
        for message in messages:
            try:
                await self.send_back(message, delay_level)
            except ArrowMQError as error:
                log.warning("%s", error)

    async def _call(self, messages: list[ReceivedMessage]) -> object:
        argument = messages[0] if self._batch_size == 1 else messages
        scope: AbstractContextManager[object] = (
            tracing.continued(messages[0]) if self._batch_size == 1 else nullcontext()
        )
        with scope:
            if self._threads is None:
                work = self._handler(argument)
                assert inspect.isawaitable(work)
            else:
                work = self._threads.run(functools.partial(tracing.in_context(self._handler), argument))
            if self._message_timeout_s is None:
                return await work
            async with asyncio.timeout(self._message_timeout_s):
                return await work

    async def consume_directly(self, message: ReceivedMessage) -> str:
        if self._threads is not None:
            await self._threads.one_is_free()
        try:
            result = await self._call([message])
        except RetryLater:
            return "CR_LATER"
        return "CR_LATER" if result is ConsumeResult.RETRY or result is False else "CR_SUCCESS"

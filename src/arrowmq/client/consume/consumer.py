"""The iterating consumer: messages one after another, each acknowledged when its work is done.

async with Consumer("localhost:9876", group="billing", topic="orders", tags="created || paid") as consumer:
    async for message in consumer:
        await message.ack()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from arrowmq.client.consume.group_consumer import ConsumeOptions, GroupConsumer
from arrowmq.client.errors import InvalidUse
from arrowmq.client.message import Delivered, ReceivedMessage

if TYPE_CHECKING:
    import pyarrow


class Consumer(GroupConsumer):
    """A member of a group. Several tasks may iterate over one consumer; each message goes to one of them.

    What is not acknowledged is delivered again: after a `nack()` as the broker's delays say, after `consume_timeout_s`,
    or to another member when this one ends. With `orderly` the next message of a queue comes when the one before it is
    settled. With `auto_ack` a message is acknowledged when the iteration asks for the next one.
    """

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
        super().__init__(namesrv, group, topic, tags, sql, options)
        self._auto_ack = auto_ack
        self._last: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._last is not None:
            self.acknowledge(self._last)
            self._last = None
        inbox = self._inbox
        message = inbox.take()
        while message is None:
            if inbox.is_closed:
                raise StopAsyncIteration
            self._session.check_usable()
            await inbox.wait()
            message = inbox.take()
        self._check_gives_messages()
        assert isinstance(message, ReceivedMessage)
        self._hand_out(message)
        if self._auto_ack:
            self._last = message
        return message

    def _hand_out(self, message: Delivered) -> None:
        now_ms = self._session.clock.now_ms()
        message.delivered_ms = now_ms
        if message.pulled_from is not None:
            message.pulled_from.last_consume_ms = now_ms
        if self._hooks and isinstance(message, ReceivedMessage):
            self._hooks.before_consume(self.group, [message])

    def acknowledge(self, message: Delivered) -> None:
        super().acknowledge(message)
        if self._hooks and isinstance(message, ReceivedMessage):
            took_ms = self._session.clock.now_ms() - message.delivered_ms
            self._hooks.after_consume(self.group, [message], None, took_ms)

    async def receive(self, max_messages: int = 32, *, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Up to so many messages: at least one, unless `timeout_s` passes or the consumer ends before one comes."""
        if max_messages < 1:
            raise ValueError(f"receive at least one message, not {max_messages}")
        taken = await self._take_some(max_messages, timeout_s=timeout_s)
        self._check_gives_messages()
        return [message for message in taken if isinstance(message, ReceivedMessage)]

    def _check_gives_messages(self) -> None:
        if self._member.keeps_chunks:
            raise InvalidUse("this consumer gives Arrow batches; make another one for single messages")

    async def _take_some(self, max_messages: int, *, timeout_s: float | None = None) -> list[Delivered]:
        inbox = self._inbox
        taken: list[Delivered] = []
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    while len(taken) < max_messages and (message := inbox.take()) is not None:
                        self._hand_out(message)
                        taken.append(message)
                    if taken or inbox.is_closed:
                        return taken
                    self._session.check_usable()
                    await inbox.wait()
        except TimeoutError:
            return taken

    async def batches(self, max_messages: int = 1024, *, linger_s: float = 0.1) -> AsyncIterator[pyarrow.RecordBatch]:
        """Messages as Arrow record batches, which pandas, Polars and DuckDB read.

        A batch is acknowledged when the next one is asked for. It leaves with `max_messages`, or when `linger_s` has
        passed since its first message.
        """
        from arrowmq.client.consume.arrow import record_batch

        clock = self._session.clock
        self._member.keeps_chunks = not self._hooks and not self._rules.orderly
        while held := await self._take_some(max_messages):
            batch = record_batch(held)
            deadline = clock.monotonic() + linger_s
            while batch.num_rows < max_messages and (left_s := deadline - clock.monotonic()) > 0:
                more = await self._take_some(max_messages - batch.num_rows, timeout_s=left_s)
                if more:
                    held += more
                    batch = record_batch(held)
            # A pull brings up to 32 messages at once, so there may be more than were asked for.
            for start in range(0, batch.num_rows, max_messages):
                yield batch.slice(start, max_messages)
            for each in held:
                self.acknowledge(each)

"""Acks that are given at the same moment leave in one request to each broker.

The first ack of an event loop iteration arranges for the request at its end; all that come until then go with it. So a
program that acknowledges a list of messages with `asyncio.gather`, or from many tasks, sends one request.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable

from arrowmq.client.consume.pop.popped import PoppedMessage
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BatchAck, BatchAckMessage
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import AckMessage

Ask = Callable[[str, Command, str], Awaitable[Command]]  # broker name, request, what it is
Spawn = Callable[[Awaitable[None]], object]
MOST_TOGETHER = 1024


class AckBatches:
    def __init__(self, group: str, ask: Ask, spawn: Callable[..., object]) -> None:
        self._group = group
        self._ask = ask
        self._spawn = spawn
        self._waiting: dict[str, list[tuple[PoppedMessage, asyncio.Future[None]]]] = {}

    async def add(self, message: PoppedMessage) -> None:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(message.broker_name, [])
        waiting.append((message, answered))
        if len(waiting) == 1:
            loop.call_soon(self._send, message.broker_name)
        elif len(waiting) >= MOST_TOGETHER:
            self._send(message.broker_name)
        await answered

    def _send(self, broker_name: str) -> None:
        batch = self._waiting.pop(broker_name, None)
        if batch:
            self._spawn(self._send_batch(broker_name, batch), "acknowledge")

    async def _send_batch(self, broker_name: str, batch: list[tuple[PoppedMessage, asyncio.Future[None]]]) -> None:
        messages = [message for message, _ in batch]
        request = self._one(messages[0]) if len(messages) == 1 else self._many(broker_name, messages)
        try:
            await self._ask(broker_name, request, f"acknowledging {len(messages)} messages of {self._group}")
        except BaseException as failure:
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(failure)
            if not isinstance(failure, Exception):
                raise
        else:
            for _, answered in batch:
                if not answered.done():
                    answered.set_result(None)

    def _one(self, message: PoppedMessage) -> Command:
        receipt = message.receipt
        header = AckMessage(
            consumer_group=self._group,
            topic=message.popped_topic,
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.queue_offset,
        )
        return Command.request(RequestCode.ACK_MESSAGE, header)

    def _many(self, broker_name: str, messages: list[PoppedMessage]) -> Command:
        """One set of bits for each receipt, which stands for all messages of one pop of one queue."""
        together: dict[tuple[str, str, int, int, int, int, int], set[int]] = {}
        for message in messages:
            receipt = message.receipt
            key = (
                message.consumer.wrapped(message.topic),
                *(receipt.retry_flag, receipt.queue_id, receipt.start_offset, receipt.pop_time),
                *(receipt.invisible_time, receipt.revive_queue_id),
            )
            together.setdefault(key, set()).add(receipt.queue_offset - receipt.start_offset)
        acks = [
            BatchAck(
                bit_set=_bits(places), consumer_group=self._group, invisible_time=key[5], pop_time=key[4],
                queue_id=key[2], retry=key[1], revive_queue_id=key[6], start_offset=key[3], topic=key[0],
            )
            for key, places in together.items()
        ]  # fmt: skip
        body = fastjson.dumps(BatchAckMessage(acks=acks, broker_name=broker_name))
        return Command.request(RequestCode.BATCH_ACK_MESSAGE, None, body)


def _bits(places: set[int]) -> str:
    """Base64 of a set of bits, the lowest first."""
    number = 0
    for place in places:
        number |= 1 << place
    return base64.b64encode(number.to_bytes(number.bit_length() + 7 >> 3, "little")).decode()

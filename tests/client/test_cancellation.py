"""Cancellation at any await, by seeds: whatever a program gives up on, nothing is lost, leaked or left hanging.

Each operation of the client runs as a task that is cancelled after a random number of turns of the event loop, many of
them at once. Afterwards what got a receipt is there, the books are empty, and nobody complains in the background. A
seed that fails can be run again by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from inside import NOTHING, under_way

import arrowmq
from arrowmq.testing import BrokerThread
from waiting import until

SEEDS = range(6)
OPERATIONS = 240
AT_ONCE = 12


class Storm:
    """One producer of each kind and one consumer of each kind, and what was confirmed to them."""

    def __init__(self, dice: random.Random, topic: str, group: str) -> None:
        self.dice, self.topic, self.group = dice, topic, group
        self.confirmed: set[bytes] = set()
        self._number = 0

    def body(self) -> bytes:
        self._number += 1
        return b"message %d" % self._number

    async def send(self, producer: arrowmq.Producer, **details: Any) -> None:
        body = self.body()
        await producer.send(self.topic, body, **details)
        self.confirmed.add(body)

    async def send_batch(self, producer: arrowmq.Producer) -> None:
        bodies = [self.body() for _ in range(3)]
        await producer.send_batch([arrowmq.Message(self.topic, body) for body in bodies])
        self.confirmed.update(bodies)

    async def submit(self, producer: arrowmq.Producer) -> None:
        body = self.body()
        await (await producer.submit(self.topic, body))
        self.confirmed.add(body)

    async def transaction(self, producer: arrowmq.Producer) -> None:
        body = self.body()
        async with producer.transaction(self.topic, body):
            await asyncio.sleep(0)
        self.confirmed.add(body)

    async def consume(self, consumer: arrowmq.Consumer) -> None:
        for message in await consumer.receive(4, timeout_s=1):
            if self.dice.random() < 0.2:
                await message.nack()
            else:
                await message.ack()

    async def come_and_go(self, namesrv: str) -> None:
        async with arrowmq.Consumer(namesrv, group=self.group, topic=self.topic) as consumer:
            await consumer.receive(1, timeout_s=0.05)


async def cancelled_somewhere(operation: Awaitable[object], turns: int) -> None:
    task = asyncio.ensure_future(operation)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, arrowmq.ArrowMQError):
        await task


@pytest.mark.parametrize("seed", SEEDS)
async def test_cancellation_at_any_await_loses_and_leaks_nothing(
    seed: int,
    arrowmq_broker: BrokerThread,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "arrowmq")
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(str(context)))
    dice = random.Random(seed)
    storm = Storm(dice, topic, group)
    namesrv = arrowmq_broker.namesrv
    async with (
        arrowmq.Producer(namesrv, group=f"{group}_p", max_in_flight=4) as producer,
        arrowmq.Producer(namesrv, group=f"{group}_g", batching=arrowmq.Batching(linger_ms=1)) as gathering,
        arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first") as consumer,
        arrowmq.LitePullConsumer(namesrv, group=f"{group}_l", topic=topic, consume_from="first") as lite,
        arrowmq.Admin(namesrv) as admin,
    ):
        await storm.send(producer)
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: storm.send(producer),
            lambda: storm.send(producer, order_key="same", tag="t", keys=["k"]),
            lambda: storm.send(gathering),
            lambda: storm.send_batch(producer),
            lambda: storm.submit(producer),
            lambda: storm.transaction(producer),
            lambda: storm.consume(consumer),
            lambda: lite.poll(1),
            lambda: lite.commit(),
            lambda: consumer.commit(),
            lambda: admin.lag(group, topic),
            lambda: storm.come_and_go(namesrv),
        ]
        left = iter(range(OPERATIONS))

        async def worker() -> None:
            for _ in left:
                turns = dice.choice((0, 1, 2, 3, 5, 8, 13, 30, 80))
                await cancelled_somewhere(dice.choice(operations)(), turns)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        await producer.flush()
        await gathering.flush()
        assert NOTHING == under_way(producer)
        assert (0, 0) == under_way(gathering)[:2]
        # A batch goes on when all who gathered for it have given up; its answer, or its time, ends it.
        await until(lambda: NOTHING == under_way(gathering), timeout_s=5)
        await storm.send(producer)  # and they still work
        await storm.send(gathering)
        seen = await everything(namesrv, topic, f"{group}_all", storm.confirmed)
    assert set() == storm.confirmed - seen
    assert [] == complaints


async def everything(namesrv: str, topic: str, group: str, wanted: set[bytes]) -> set[bytes]:
    """What a new group finds, until it has all that is wanted or nothing more comes."""
    seen: set[bytes] = set()
    async with arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first") as consumer:
        while not wanted <= seen:
            found = await consumer.receive(64, timeout_s=10)
            if not found:
                break
            seen |= {message.body for message in found}
            for message in found:
                await message.ack()
    return seen

"""Goal: a simple consumer receives, acknowledges, gives back and extends; at Apache's brokers from 5 on as well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arrowmq
import arrowmq.sync
from arrowmq.testing import LocalBroker
from arrowmq.wire.codes import RequestCode


@pytest.fixture(autouse=True)
def needs_version_5(is_version_4: bool) -> None:
    if is_version_4:
        pytest.skip("RocketMQ 4 has no pop")


async def sent(cluster: str, topic: str, *bodies: bytes, **more: Any) -> None:
    async with arrowmq.Producer(cluster) as producer:
        for body in bodies:
            await producer.send(topic, body, **more)


async def received(consumer: arrowmq.SimpleConsumer, count: int) -> list[arrowmq.PoppedMessage]:
    found: list[arrowmq.PoppedMessage] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.receive()
    return found


async def test_a_message_is_received_once_and_acknowledged(cluster: str, topic: str, group: str) -> None:
    await sent(cluster, topic, b"a", b"b", b"c", tag="blue")
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic, invisible_s=60, wait_s=2) as consumer:
        messages = await received(consumer, 3)
        assert {b"a", b"b", b"c"} == {message.body for message in messages}
        assert {("blue", topic, 0)} == {(message.tag, message.topic, message.reconsume_times) for message in messages}
        await asyncio.gather(*(message.ack() for message in messages))
        assert [] == await consumer.receive(wait_s=0.2)


async def test_what_is_given_back_comes_again_and_counts(cluster: str, topic: str, group: str) -> None:
    await sent(cluster, topic, b"a")
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic, invisible_s=60, wait_s=5) as consumer:
        (message,) = await received(consumer, 1)
        await message.nack()
        (again,) = await received(consumer, 1)
        assert (b"a", topic, 1) == (again.body, again.topic, again.reconsume_times)
        await again.extend(30)
        await again.ack()


async def test_a_filter_by_tags(cluster: str, topic: str, group: str) -> None:
    await sent(cluster, topic, b"a", tag="red")
    await sent(cluster, topic, b"b", tag="blue")
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic, tags="blue || green", wait_s=2) as consumer:
        (message,) = await received(consumer, 1)
        assert b"b" == message.body
        await message.ack()


async def test_iteration_waits_for_what_comes(cluster: str, topic: str, group: str) -> None:
    await sent(cluster, topic, b"0")
    bodies = []
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic, wait_s=5) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            await message.ack()
            if len(bodies) == 3:
                break
            await sent(cluster, topic, b"%d" % len(bodies))
    assert [b"0", b"1", b"2"] == bodies


async def test_acks_of_one_moment_leave_in_one_request(arrowmq_broker: Any, topic: str, group: str) -> None:
    await sent(arrowmq_broker.namesrv, topic, *(b"%d" % number for number in range(20)))
    async with arrowmq.SimpleConsumer(arrowmq_broker.namesrv, group=group, topic=topic, wait_s=2) as consumer:
        messages = await received(consumer, 20)
        asked: list[int] = []
        ask = consumer._session.ask

        async def counted(address: str, request: Any, *more: Any, **options: Any) -> Any:
            asked.append(request.code)
            return await ask(address, request, *more, **options)

        consumer._session.ask = counted  # type: ignore[method-assign]
        await asyncio.gather(*(message.ack() for message in messages))
        assert [RequestCode.BATCH_ACK_MESSAGE] == asked


async def test_time_is_over_on_virtual_time_as_well(topic: str, group: str) -> None:
    async with LocalBroker() as broker:
        await sent(broker.namesrv, topic, b"a")
        async with arrowmq.SimpleConsumer(broker.namesrv, group=group, topic=topic, invisible_s=3600) as consumer:
            (message,) = await received(consumer, 1)
            assert [] == await consumer.receive(wait_s=0)
            await broker.clock.advance(3601)
            (again,) = await received(consumer, 1)
            assert 1 == again.reconsume_times
            with pytest.raises(arrowmq.Refused, match="is stale"):
                await message.extend(10)
            await again.ack()


async def test_in_order_nothing_more_comes_before_the_ack(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        for body in (b"a", b"b", b"c"):
            await producer.send(topic, body, order_key="one")
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic, wait_s=2, in_order=True) as consumer:
        (first,) = await consumer.receive(1)
        assert (b"a", []) == (first.body, await consumer.receive(1, wait_s=0.2))
        await first.ack()
        assert [b"b", b"c"] == [message.body for message in await received(consumer, 2)]


async def test_what_makes_no_sense_is_refused_at_once(cluster: str, topic: str, group: str) -> None:
    with pytest.raises(arrowmq.InvalidUse, match="invisible_s=0"):
        arrowmq.SimpleConsumer(cluster, group=group, topic=topic, invisible_s=0)
    with pytest.raises(arrowmq.InvalidUse, match="needs a topic"):
        arrowmq.SimpleConsumer(cluster, group=group, topic=[])
    await sent(cluster, topic, b"a")
    async with arrowmq.SimpleConsumer(cluster, group=group, topic=topic) as consumer:
        with pytest.raises(arrowmq.InvalidUse, match="max_messages=33"):
            await consumer.receive(33)
        (message,) = await received(consumer, 1)
        with pytest.raises(arrowmq.InvalidUse, match="in the past"):
            await message.extend(-1)
    with pytest.raises(arrowmq.InvalidUse, match="closed"):
        await message.ack()


def test_the_blocking_form(cluster: str, topic: str, group: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer:
        for body in (b"a", b"b"):
            producer.send(topic, body)
    bodies = set()
    with arrowmq.sync.SimpleConsumer(cluster, group=group, topic=topic, wait_s=2) as consumer:
        for message in consumer:
            bodies.add(message.body)
            message.extend(60)
            message.ack()
            if len(bodies) == 2:
                break
        assert [] == consumer.receive(wait_s=0.2)

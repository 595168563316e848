"""Lite pull: the program asks, seeks, pauses and commits."""

from __future__ import annotations

import pytest

import arrowmq


async def fill(cluster: str, topic: str, count: int = 10, queues: int = 1) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=queues)
        for n in range(count):
            await producer.send(topic, b"%d" % n)


async def read(consumer: arrowmq.LitePullConsumer, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        found = await consumer.poll(5)
        assert found, "nothing came in time"
        numbers += [int(message.body) for message in found]
    return numbers


async def test_a_subscribed_topic_is_polled(cluster: str, topic: str, group: str) -> None:
    await fill(cluster, topic)
    async with arrowmq.LitePullConsumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        assert list(range(10)) == await read(consumer, 10)
        assert [] == await consumer.poll(0.1)
        await consumer.commit()
        assert 10 == await consumer.committed(consumer.assignment[0])


async def test_what_was_polled_last_is_not_committed_by_leaving(cluster: str, topic: str, group: str) -> None:
    await fill(cluster, topic)
    async with arrowmq.LitePullConsumer(
        cluster, group=group, topic=topic, consume_from="first", batch_size=4
    ) as consumer:
        assert [0, 1, 2, 3] == [int(message.body) for message in await consumer.poll(5)]
        assert [4, 5, 6, 7] == [int(message.body) for message in await consumer.poll(5)]
    async with arrowmq.LitePullConsumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        assert [4, 5, 6, 7, 8, 9] == await read(consumer, 6)


async def test_assigned_queues_are_read_from_where_it_is_sought(cluster: str, topic: str, group: str) -> None:
    await fill(cluster, topic)
    async with arrowmq.LitePullConsumer(cluster, group=group, consume_from="first") as consumer:
        (queue,) = await consumer.queues(topic)
        await consumer.assign([queue])
        await consumer.seek(queue, 7)
        assert [7, 8, 9] == await read(consumer, 3)
        await consumer.seek_to_begin(queue)
        assert list(range(10)) == await read(consumer, 10)
        await consumer.seek_to_end(queue)
        assert [] == await consumer.poll(0.1)
        assert 0 == await consumer.offset_for_time(queue, 0.0)
        with pytest.raises(arrowmq.InvalidUse, match="offsets 0 to 10"):
            await consumer.seek(queue, 11)


async def test_a_paused_queue_rests(cluster: str, topic: str, group: str) -> None:
    await fill(cluster, topic, 4)
    async with arrowmq.LitePullConsumer(cluster, group=group, consume_from="first") as consumer:
        (queue,) = await consumer.queues(topic)
        await consumer.assign([queue])
        assert list(range(4)) == await read(consumer, 4)
        consumer.pause([queue])
        await consumer.seek(queue, 0)
        assert [] == await consumer.poll(0.2)
        consumer.resume([queue])
        assert list(range(4)) == await read(consumer, 4)


async def test_offsets_can_be_committed_by_hand(cluster: str, topic: str, group: str) -> None:
    await fill(cluster, topic)
    async with arrowmq.LitePullConsumer(
        cluster, group=group, topic=topic, consume_from="first", auto_commit=False
    ) as consumer:
        await read(consumer, 10)
        queue = consumer.assignment[0]
        await consumer.commit({queue: 5})
    async with arrowmq.LitePullConsumer(cluster, group=group, topic=topic) as consumer:
        assert [5, 6, 7, 8, 9] == await read(consumer, 5)


async def test_subscription_and_assignment_exclude_each_other(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.LitePullConsumer(cluster, group=group, topic=topic) as consumer:
        with pytest.raises(arrowmq.InvalidUse, match="not both"):
            await consumer.assign([])
        with pytest.raises(arrowmq.InvalidUse, match="not assigned"):
            await consumer.seek(arrowmq.MessageQueue(topic, "broker-a", 77), 0)

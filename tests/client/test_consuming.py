"""Consuming by iteration: acknowledgement, retries, tags, SQL92, where a group begins, sharing and leaving."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest

import arrowmq
from arrowmq.wire.message_queue import MessageQueue
from waiting import until


async def send_numbers(cluster: str, topic: str, count: int, **details: object) -> list[arrowmq.SendReceipt]:
    async with arrowmq.Producer(cluster) as producer:
        return [await producer.send(topic, b"%d" % n, **details) for n in range(count)]  # type: ignore[arg-type]


async def consume(consumer: arrowmq.Consumer, count: int) -> list[arrowmq.ReceivedMessage]:
    """So many messages, each acknowledged."""
    messages = []
    async for message in consumer:
        await message.ack()
        messages.append(message)
        if len(messages) == count:
            return messages
    raise AssertionError("the consumer ended early")


async def test_a_message_has_everything_that_its_sender_gave_it(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        receipt = await producer.send(topic, b"body", tag="tag", keys=["a", "b"], properties={"p": "q"}, flag=7)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        (message,) = await consume(consumer, 1)
    assert (topic, b"body", "tag", ["a", "b"], "q", 7) == (
        message.topic, message.body, message.tag, message.keys, message.properties["p"], message.flag,
    )  # fmt: skip
    assert (receipt.queue_id, receipt.queue_offset, receipt.msg_id) == (
        message.queue_id,
        message.queue_offset,
        message.msg_id,
    )
    assert 0 == message.reconsume_times
    assert 0 < message.born_timestamp <= message.store_timestamp + 1000


async def test_what_was_acknowledged_does_not_come_again(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 10)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        await consume(consumer, 10)
    await send_numbers(cluster, topic, 1)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        (message,) = await consume(consumer, 1)
        assert [] == await consumer.receive(timeout_s=0.2)
    assert b"0" == message.body


async def test_what_was_not_acknowledged_comes_again_to_the_next_consumer(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=1)
    await send_numbers(cluster, topic, 10)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        for _ in range(10):
            message = await anext(consumer)
            if message.body != b"4":
                await message.ack()
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        again = await consume(consumer, 6)
    # The offset stands at the lowest message that was not acknowledged; what lies behind it is delivered again.
    assert [4, 5, 6, 7, 8, 9] == [int(message.body) for message in again]


async def test_a_message_given_back_comes_again_with_its_count(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 1)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        first = await anext(consumer)
        await first.nack(delay_level=1)
        second = await anext(consumer)
        await second.ack()
    assert (first.topic, first.body, first.msg_id) == (second.topic, second.body, second.msg_id)
    assert (0, 1) == (first.reconsume_times, second.reconsume_times)


async def test_a_message_given_up_is_found_among_the_dead_letters(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 1)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        message = await anext(consumer)
        await message.nack(delay_level=-1)
        async with arrowmq.Admin(cluster) as admin:
            letters: list[arrowmq.ReceivedMessage] = []
            async with asyncio.timeout(20):
                while not letters:
                    with contextlib.suppress(arrowmq.ArrowMQError):
                        letters = await admin.dead_letters(group)
            await admin.resend_dead_letter(letters[0])
        (again,) = await consume(consumer, 1)
    assert [b"0"] == [letter.body for letter in letters]
    assert (b"0", topic) == (again.body, again.topic)


async def test_tags_choose_messages(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        for tag in ("a", "b", "c", "a", "b", None):
            await producer.send(topic, (tag or "none").encode(), tag=tag)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, tags="a || c", consume_from="first") as consumer:
        bodies = [message.body for message in await consume(consumer, 3)]
        assert [] == await consumer.receive(timeout_s=0.2)
    assert [b"a", b"a", b"c"] == sorted(bodies)


async def test_two_tags_with_one_hash_are_told_apart(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        await producer.send(topic, b"wrong", tag="BB")  # Java's hash of BB and Aa is the same
        await producer.send(topic, b"right", tag="Aa")
    async with arrowmq.Consumer(cluster, group=group, topic=topic, tags="Aa", consume_from="first") as consumer:
        assert [b"right"] == [message.body for message in await consume(consumer, 1)]
        assert [] == await consumer.receive(timeout_s=0.2)


async def test_sql_chooses_messages_by_their_properties(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        for n in range(6):
            await producer.send(topic, b"%d" % n, properties={"n": str(n), "colour": "red" if n % 2 else "blue"})
    async with arrowmq.Consumer(
        cluster, group=group, topic=topic, sql="n > 2 AND colour = 'red'", consume_from="first"
    ) as consumer:
        bodies = sorted(message.body for message in await consume(consumer, 2))
    assert [b"3", b"5"] == bodies


async def test_a_wrong_sql_expression_fails_the_start(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 1)
    consumer = arrowmq.Consumer(cluster, group=group, topic=topic, sql="n >>> 2")
    with pytest.raises(arrowmq.Refused, match="SQL92"):
        await consumer.start()


async def test_a_group_can_begin_at_a_time(cluster: str, topic: str, group: str, is_version_4: bool) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=1)
        await send_numbers(cluster, topic, 3)
        (old,) = [message for message in await admin.messages_at(
            MessageQueue(topic, next(iter((await admin.route(topic)).addresses)), 0), 2
        ) if message.queue_offset == 2]  # fmt: skip
        # The next message must lie in another millisecond.
        await until(lambda: datetime.now(UTC).timestamp() * 1000 > old.store_timestamp + 5)
        await send_numbers(cluster, topic, 1, tag="new")
    moment = (old.store_timestamp + 1) / 1000
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from=moment) as consumer:
        (message,) = await consume(consumer, 1)
    # An old broker says "from the start" of a queue whose first message it still has in memory, whatever it is asked.
    assert ((None, 0) if is_version_4 else ("new", 3)) == (message.tag, message.queue_offset)


async def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    cluster: str, topic: str, group: str
) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=4)
    first = arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first")
    second = arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first")
    async with first:
        await until(lambda: len(first.assignment) == 4)
        async with second:
            await until(lambda: (len(first.assignment), len(second.assignment)) == (2, 2))
            assert not set(first.assignment) & set(second.assignment)
        await until(lambda: len(first.assignment) == 4)


async def test_a_consumer_takes_several_topics_and_subscribes_to_more_later(
    cluster: str, topic: str, group: str
) -> None:
    for name in ("a", "b", "c"):
        await send_numbers(cluster, f"{topic}{name}", 1)
    async with arrowmq.Consumer(
        cluster, group=group, topic=[f"{topic}a", f"{topic}b"], consume_from="first"
    ) as consumer:
        assert {f"{topic}a", f"{topic}b"} == {message.topic for message in await consume(consumer, 2)}
        await consumer.subscribe(f"{topic}c")
        assert [f"{topic}c"] == [message.topic for message in await consume(consumer, 1)]
        await consumer.unsubscribe(f"{topic}a")
        assert f"{topic}a" not in {queue.topic for queue in consumer.assignment}


async def test_pulling_pauses_while_too_much_is_unacknowledged(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=1)
    await send_numbers(cluster, topic, 60)
    flow = arrowmq.FlowControl(max_messages=10)
    pulling = arrowmq.Pulling(batch_size=5)
    async with arrowmq.Consumer(
        cluster, group=group, topic=topic, consume_from="first", flow=flow, pulling=pulling
    ) as consumer:
        held = []
        while len(held) < 10:
            held += await consumer.receive(timeout_s=5)
        assert [] == await consumer.receive(timeout_s=0.2)
        for message in held:
            await message.ack()
        await consume(consumer, 50)


async def test_auto_ack_acknowledges_what_the_iteration_has_passed(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=1)
    await send_numbers(cluster, topic, 5)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first", auto_ack=True) as consumer:
        async for message in consumer:
            if message.body == b"3":
                break
    async with arrowmq.Consumer(cluster, group=group, topic=topic) as consumer:
        assert [3, 4] == [int(message.body) for message in await consume(consumer, 2)]


async def test_paused_queues_give_nothing_until_they_are_resumed(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 1)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        await consume(consumer, 1)
        consumer.pause()
        # A pull that waits at the broker is still answered once; after it the queues rest.
        await send_numbers(cluster, topic, 16)
        early = 0
        while some := await consumer.receive(100, timeout_s=0.5):
            early += len(some)
        await send_numbers(cluster, topic, 16)
        assert [] == await consumer.receive(100, timeout_s=0.5)
        consumer.resume()
        assert 32 - early == len(await consume(consumer, 32 - early))


async def test_an_iteration_ends_when_the_consumer_is_closed(cluster: str, topic: str, group: str) -> None:
    consumer = arrowmq.Consumer(cluster, group=group, topic=topic)
    await consumer.start()
    ended = asyncio.create_task(anext(consumer, None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await consumer.close()
    assert None is await ended


async def test_orderly_consumption_waits_for_each_message(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=1)
    await send_numbers(cluster, topic, 5)
    async with arrowmq.Consumer(
        cluster, group=group, topic=topic, consume_from="first", orderly=True, suspend_s=0.05
    ) as consumer:
        first = await anext(consumer)
        assert [] == await consumer.receive(timeout_s=0.2)
        await first.nack()
        again = await anext(consumer)
        assert (first.queue_offset, 1) == (again.queue_offset, again.reconsume_times)
        await again.ack()
        assert [1, 2, 3, 4] == [int(message.body) for message in await consume(consumer, 4)]


async def test_a_reset_moves_a_running_consumer_back(cluster: str, topic: str, group: str) -> None:
    await send_numbers(cluster, topic, 4)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        await consume(consumer, 4)
        await consumer.commit()
        async with arrowmq.Admin(cluster) as admin:
            await admin.reset_offsets(group, topic, "first")
            await send_numbers(cluster, topic, 8)  # wakes the pulls that wait at the old offsets
        bodies = [int(message.body) for message in await consume(consumer, 12)]
    assert sorted([*range(4), *range(8)]) == sorted(bodies)

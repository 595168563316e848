"""Sending: what a receipt says, where messages go, what is refused before it leaves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import arrowmq
from arrowmq.client.produce.selectors import at_random, by_hash
from arrowmq.wire.ids import RecallHandle


async def test_a_receipt_says_where_the_message_lies(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster) as producer, arrowmq.Admin(cluster) as admin:
        receipt = await producer.send(topic, b"hello", tag="created", keys=["o-1", "o-2"], properties={"colour": "red"})
        stored = await admin.message_by_offset_id(receipt.offset_msg_id, topic)

    assert arrowmq.SendStatus.SEND_OK is receipt.status
    assert 32 == len(receipt.msg_id)
    assert (receipt.msg_id, receipt.queue_id, receipt.queue_offset) == (
        stored.msg_id,
        stored.queue_id,
        stored.queue_offset,
    )
    assert (b"hello", "created", ["o-1", "o-2"], "red") == (
        stored.body,
        stored.tag,
        stored.keys,
        stored.properties["colour"],
    )


async def test_messages_go_round_the_queues(cluster: str, topic: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=4)
    async with arrowmq.Producer(cluster) as producer:
        receipts = [await producer.send(topic, b"x") for _ in range(8)]
    assert [2, 2, 2, 2] == [sum(receipt.queue_id == queue for receipt in receipts) for queue in range(4)]


async def test_equal_order_keys_share_a_queue(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        receipts = [await producer.send(topic, b"x", order_key=f"order-{n % 3}") for n in range(12)]
    for remainder in range(3):
        same = receipts[remainder::3]
        assert 1 == len({receipt.queue_id for receipt in same})
        assert sorted(receipt.queue_offset for receipt in same) == [receipt.queue_offset for receipt in same]


async def test_a_queue_can_be_named_or_chosen(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        await producer.send(topic, b"first")
        queues = await producer.queues(topic)
        named = await producer.send(topic, b"x", queue=queues[-1])
        chosen = await producer.send(topic, b"x", selector=lambda queues, message: queues[1])
        hashed = await producer.send(topic, b"x", selector=by_hash("a"))
        somewhere = await producer.send(topic, b"x", selector=at_random)
        with pytest.raises(arrowmq.InvalidUse, match="queue selector"):
            await producer.send(topic, b"x", selector=lambda queues, message: None)  # type: ignore[arg-type, return-value]
    assert (queues[-1].queue_id, queues[1].queue_id) == (named.queue_id, chosen.queue_id)
    assert queues[97 % len(queues)].queue_id == hashed.queue_id  # Java's hash of "a" is 97
    assert somewhere.queue_id in {queue.queue_id for queue in queues}


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_large_bodies_travel_compressed_and_arrive_whole(
    cluster: str, topic: str, group: str, compression: str
) -> None:
    body = b"the same words again and again " * 4000
    async with (
        arrowmq.Producer(cluster, compression=compression) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, body)
        message = await anext(consumer)
        assert body == message.body
        assert len(message.record.body) < len(body) // 10
        await message.ack()


async def test_a_body_that_does_not_shrink_travels_as_it_is(cluster: str, topic: str, group: str) -> None:
    import random

    body = random.Random(5).randbytes(8000)
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, body)
        message = await anext(consumer)
        assert 0 == message.sys_flag & 1
        assert body == message.body
        await message.ack()


async def test_every_byte_of_a_body_survives(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, bytes(range(256)), tag="标签", keys=["schlüssel"], properties={"名": "värde"})
        message = await anext(consumer)
        assert bytes(range(256)) == message.body
        assert ("标签", ["schlüssel"], "värde") == (message.tag, message.keys, message.properties["名"])
        await message.ack()


async def test_a_batch_lies_one_behind_the_other(cluster: str, topic: str) -> None:
    messages = [arrowmq.Message(topic, b"%d" % n, tag="t", keys=[f"k{n}"]) for n in range(10)]
    async with arrowmq.Producer(cluster) as producer:
        receipts = await producer.send_batch(messages)
    first = receipts[0].queue_offset
    assert list(range(first, first + 10)) == [receipt.queue_offset for receipt in receipts]
    assert 1 == len({receipt.queue_id for receipt in receipts})
    assert 10 == len({receipt.msg_id for receipt in receipts}) == len({receipt.offset_msg_id for receipt in receipts})


async def test_what_cannot_travel_in_one_batch_is_refused(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster, max_message_bytes=10_000) as producer:
        with pytest.raises(arrowmq.InvalidMessage, match="one topic"):
            await producer.send_batch([arrowmq.Message(topic, b"a"), arrowmq.Message(topic + "x", b"b")])
        with pytest.raises(arrowmq.InvalidMessage, match="delayed"):
            await producer.send_batch([arrowmq.Message(topic, b"a", delay_level=1)])
        with pytest.raises(arrowmq.InvalidMessage, match="empty batch"):
            await producer.send_batch([])
        with pytest.raises(arrowmq.InvalidMessage, match="split it"):
            await producer.send_batch([arrowmq.Message(topic, b"a" * 4000) for _ in range(4)])


async def test_gathered_messages_keep_their_order_and_get_their_own_receipts(
    cluster: str, topic: str, group: str
) -> None:
    batching = arrowmq.Batching(max_bytes=2000, linger_ms=5)
    async with arrowmq.Producer(cluster, batching=batching) as producer:
        sends = [producer.send(topic, b"%d" % n, order_key="same") for n in range(100)]
        receipts = await asyncio.gather(*sends)
    assert list(range(100)) == [receipt.queue_offset for receipt in receipts]
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        bodies = []
        while len(bodies) < 100:
            for message in await consumer.receive():
                bodies.append(int(message.body))
                await message.ack()
    assert list(range(100)) == bodies


async def test_submitted_messages_can_be_awaited_later(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster, max_in_flight=4) as producer:
        tasks = [await producer.submit(topic, b"%d" % n) for n in range(20)]
        await producer.flush()
        assert all(task.done() for task in tasks)
        assert 20 == len({task.result().msg_id for task in tasks})


async def test_a_oneway_message_arrives(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send_oneway(topic, b"no answer wanted", tag="t")
        message = await anext(consumer)
        assert b"no answer wanted" == message.body
        await message.ack()


async def test_a_delayed_message_comes_later(cluster: str, topic: str, group: str) -> None:
    loop = asyncio.get_running_loop()
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, b"now")
        started = loop.time()
        await producer.send(topic, b"level", delay_level=1)
        bodies = {}
        while len(bodies) < 2:
            message = await anext(consumer)
            bodies[message.body] = loop.time() - started
            await message.ack()
    assert bodies[b"now"] < 0.9 <= bodies[b"level"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"body": b""}, "empty"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "over the limit"),
        ({"body": "text"}, "encode it first"),
        ({"body": {"a": 1}}, "serialize it first"),
        ({"properties": {"KEYS": "x"}}, "belongs to RocketMQ"),
        ({"properties": {"a": " "}}, "blank value"),
        ({"properties": {"a": 1}}, "properties are text"),
        ({"properties": {"a": "b\x01c"}}, "separates"),
        ({"tag": "a||b"}, "no subscription could name"),
        ({"tag": " "}, "a tag is a word"),
        ({"keys": ["two words"]}, "without spaces"),
        ({"delay_level": 1, "delay": 5}, "not several"),
        ({"delay": -1}, "past"),
        ({"delay_level": -1}, "negative"),
    ],
)
async def test_a_message_that_no_broker_would_take_is_refused_with_a_reason(
    cluster: str, topic: str, fields: dict[str, object], why: str
) -> None:
    async with arrowmq.Producer(cluster) as producer:
        with pytest.raises(arrowmq.InvalidMessage, match=why):
            await producer.send(topic, **{"body": b"x", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", " ", "with space", "a" * 128, "SCHEDULE_TOPIC_XXXX", "käse"])
async def test_a_topic_that_is_not_allowed_is_refused(cluster: str, name: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        with pytest.raises(arrowmq.InvalidName):
            await producer.send(name, b"x")


async def test_a_timer_message_is_delivered_at_its_time(
    cluster: str, topic: str, group: str, is_version_4: bool
) -> None:
    if is_version_4:
        async with arrowmq.Producer(cluster) as producer:
            with pytest.raises(arrowmq.ArrowMQError, match=r"older than RocketMQ 5.*delay_level"):
                await producer.send(topic, b"would come at once", delay=2)
        return
    loop = asyncio.get_running_loop()
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, b"now")
        started = loop.time()
        await producer.send(topic, b"delay", delay=timedelta(seconds=2))
        await producer.send(topic, b"at", deliver_at=datetime.now(UTC) + timedelta(seconds=2))
        arrived = {}
        while len(arrived) < 3:
            message = await anext(consumer)
            arrived[message.body] = loop.time() - started
            await message.ack()
    assert arrived[b"now"] < 0.9
    assert 0.9 <= min(arrived[b"delay"], arrived[b"at"])  # the wheel ticks in whole seconds


async def test_a_timer_message_can_be_recalled(cluster: str, topic: str, group: str, is_version_4: bool) -> None:
    if is_version_4:
        async with arrowmq.Producer(cluster) as producer:
            receipt = await producer.send(topic, b"x")
            assert receipt.recall_handle is None
            handle = RecallHandle(topic, receipt.broker_name, 0, receipt.msg_id).encode()
            with pytest.raises(arrowmq.ArrowMQError, match="REQUEST_CODE_NOT_SUPPORTED"):
                await producer.recall(topic, handle)
        return
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, b"now")
        receipt = await producer.send(topic, b"never", delay=3)
        assert receipt.recall_handle is not None
        assert receipt.msg_id == await producer.recall(topic, receipt.recall_handle)
        await producer.send(topic, b"after", delay=5)
        bodies = []
        while b"after" not in bodies:
            message = await anext(consumer)
            bodies.append(message.body)
            await message.ack()
    assert [b"now", b"after"] == bodies


async def test_hooks_see_every_send_and_may_refuse_it(cluster: str, topic: str) -> None:
    from arrowmq.client.produce.outgoing import Packed

    seen: list[object] = []

    class Watch(arrowmq.Hook):
        def refuses_send(self, packed: Packed) -> None:
            if packed.message.tag == "forbidden":
                raise PermissionError("not this tag")

        def before_send(self, packed: Packed) -> None:
            packed.properties["stamp"] = "seen"

        def after_send(
            self, packed: Packed, receipt: arrowmq.SendReceipt | None, error: BaseException | None, took_ms: float
        ) -> None:
            seen.append(receipt)
            raise RuntimeError("an error in a hook must not reach the sender")

    async with arrowmq.Producer(cluster, hooks=[Watch()]) as producer, arrowmq.Admin(cluster) as admin:
        receipt = await producer.send(topic, b"x")
        with pytest.raises(PermissionError):
            await producer.send(topic, b"x", tag="forbidden")
        stored = await admin.message_by_offset_id(receipt.offset_msg_id, topic)
    assert [receipt] == seen
    assert "seen" == stored.properties["stamp"]


async def test_hooks_see_gathered_messages_too(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster, batching=True, hooks=[arrowmq.TraceContext()]) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(5)))
        for _ in range(5):
            message = await anext(consumer)
            assert 55 == len(message.properties["traceparent"])
            await message.ack()

"""The fast path of plain messages: taken when it may be, left when it must be, with the same outcome either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from inside import NOTHING, faults_of, session_of, under_way

import arrowmq
from arrowmq.testing import BrokerThread
from arrowmq.wire.frames import SERIALIZE_JSON, FrameSplitter, encode_frame


class Counted(arrowmq.Producer):
    """Counts the messages that took the general path."""

    general = 0

    def _pack(self, *arguments: Any, **options: Any) -> Any:
        self.general += 1
        return super()._pack(*arguments, **options)


@pytest.fixture
async def producer(cluster: str, topic: str) -> AsyncIterator[Counted]:
    async with Counted(cluster) as producer:
        await producer.send(topic, b"the first one opens the way")
        await producer.send(topic, b"the topic exists now")
        producer.general = 0
        yield producer
        assert NOTHING == under_way(producer)


async def test_plain_messages_take_it_with_everything_that_belongs_to_them(
    producer: Counted, cluster: str, topic: str
) -> None:
    receipts = [
        await producer.send(topic, b"plain"),
        await producer.send(topic, b"full", tag="t", keys=["a", "b"], properties={"city": "北京"}, flag=-7),
        await producer.send(arrowmq.Message(topic, b"quick", wait_store=False)),
    ]
    assert 0 == producer.general
    async with arrowmq.Admin(cluster) as admin:
        plain, full, quick = [await admin.message_by_offset_id(each.offset_msg_id, topic) for each in receipts]
    assert [b"plain", b"full", b"quick"] == [plain.body, full.body, quick.body]
    assert ("t", ["a", "b"], "北京", -7) == (full.tag, full.keys, full.properties["city"], full.record.flag)
    assert [each.msg_id for each in receipts] == [plain.msg_id, full.msg_id, quick.msg_id]
    # A 4.9 broker does as it is told and keeps neither.
    assert plain.properties.get("WAIT") in (None, "true")
    assert quick.properties.get("WAIT") in (None, "false")


@pytest.mark.parametrize(
    "details",
    [
        {"order_key": "same"},
        {"delay_level": 1},
        {"selector": lambda queues, _message: queues[0]},
        {"body": bytearray(b"not bytes")},
        {"body": b"long enough to be compressed " * 200},
    ],
    ids=lambda details: next(iter(details)),
)
async def test_special_messages_go_the_general_way(producer: Counted, topic: str, details: dict[str, Any]) -> None:
    body = details.pop("body", b"x")
    assert arrowmq.SendStatus.SEND_OK is (await producer.send(topic, body, **details)).status
    assert 1 == producer.general


@pytest.mark.parametrize(
    ("body", "details"),
    [(b"", {}), (b"x", {"tag": "a|b"}), (b"x", {"keys": ["two words"]}), (b"x", {"properties": {"KEYS": "reserved"}})],
    ids=["empty", "tag", "key", "property"],
)
async def test_what_no_broker_would_take_is_refused_there_too(
    producer: Counted, topic: str, body: bytes, details: dict[str, Any]
) -> None:
    for _ in range(2):
        with pytest.raises(arrowmq.InvalidMessage):
            await producer.send(topic, body, **details)


async def test_a_suspected_broker_is_left_to_the_general_way_until_it_has_answered(
    producer: Counted, topic: str
) -> None:
    (queue, *_) = await producer.queues(topic)
    faults_of(producer).failed(queue.broker_name, is_reachable=True)
    await producer.send(topic, b"by the general path")
    assert 1 == producer.general
    await producer.send(topic, b"and by the short one again")
    assert 1 == producer.general


async def test_a_lost_connection_is_made_again_and_the_way_is_open_again(producer: Counted, topic: str) -> None:
    (queue, *_) = await producer.queues(topic)
    address = session_of(producer).routes[topic].master(queue.broker_name)
    assert address is not None
    session_of(producer).remoting.disconnect(address)
    ids = {(await producer.send(topic, b"%d" % n)).msg_id for n in range(4)}
    assert 4 == len(ids)
    assert producer.general <= 1


async def test_a_changed_route_closes_the_way_until_a_message_went_the_general_one(
    producer: Counted, cluster: str, topic: str
) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=16)
    await session_of(producer).refresh_route(topic)
    receipts = [await producer.send(topic, b"x") for _ in range(16)]
    assert set(range(16)) == {each.queue_id for each in receipts}
    assert 1 == producer.general


async def test_one_way_messages_take_it_too(producer: Counted, cluster: str, topic: str, group: str) -> None:
    for n in range(5):
        await producer.send_oneway(topic, b"oneway %d" % n, tag="t", keys=["k"])
    assert 0 == producer.general
    async with arrowmq.Consumer(cluster, group=group, topic=topic, tags="t", consume_from="first") as consumer:
        seen = {(await anext(consumer)).body for _ in range(5)}
    assert {b"oneway %d" % n for n in range(5)} == seen


async def test_an_answer_in_another_form_than_its_request_is_taken(arrowmq_broker: BrokerThread, topic: str) -> None:
    """Requests leave with the binary header; a broker may answer with the other one."""
    host, _, port = arrowmq_broker.broker_address.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
        splitter = FrameSplitter()

        async def ask() -> None:
            while data := await reader.read(65536):
                onward_writer.write(data)
            onward_writer.close()

        async def answer() -> None:
            while data := await onward_reader.read(65536):
                for command in splitter.feed(data):
                    command.serialize_type = SERIALIZE_JSON
                    writer.write(encode_frame(command))
            writer.close()

        await asyncio.gather(ask(), answer())

    relay = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = "{}:{}".format(*relay.sockets[0].getsockname()[:2])
    async with Counted(arrowmq_broker.namesrv) as producer:
        await producer.send(topic, b"the topic is made")
        route = await session_of(producer).refresh_route(topic)
        assert route is not None
        for by_id in route.addresses.values():
            by_id.update(dict.fromkeys(by_id, address))  # type: ignore[attr-defined]
        await producer.send(topic, b"opens the way")
        producer.general = 0
        receipts = [await producer.send(topic, b"%d" % n) for n in range(4)]
        assert 0 == producer.general
        assert [0, 1, 2, 3] == sorted(each.queue_id for each in receipts)
    relay.close()

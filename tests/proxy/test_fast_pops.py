"""Receiving and acknowledging on the broker's fast path gives and leaves what the general path does."""

from __future__ import annotations

import asyncio
import hashlib
import random
from importlib import import_module
from typing import Any

import h2.connection
import pytest
from proxy_client import Stub, message

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.server import Node

md5: Any = import_module("arrowmq.proxy.backs._md5_native")


@pytest.fixture
def taken(node: Node) -> Any:
    """How many pops and acks the fast path has served."""
    assert node.broker is not None
    assert node.proxy is not None
    assert node.proxy.service.settling.fast is not None
    handlers: Any = node.broker.fast_path.handlers  # type: ignore[union-attr]
    return lambda: (handlers["pops"].taken_pops, handlers["acks"].taken_acks)


def without_fast_path(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node.broker is not None
    monkeypatch.setattr(node.broker, "fast_path", None)


async def learnt(client: Stub, taken: Any, group: str, topic: str, **options: Any) -> None:
    """Pop until the fast path does: the general path makes the group's offsets and the queues of the revive topic."""
    await client.receive(group, topic, **options)
    before = taken()
    for _ in range(40):
        await client.send(message(topic, b"before", tag=options.get("expression", "").strip("*")))
        (found,) = await client.receive_all(group, topic, 1, **options)
        await client.ack(group, topic, found)
        if taken()[0] > before[0] and taken()[1] > before[1]:
            return
    raise AssertionError("the fast path was not taken")


KINDS: list[dict[str, Any]] = [
    {},
    {"tag": "T"},
    {"keys": ["a", "b"]},
    {"properties": {"colour": "red", "n": "1", "empty?": " "}},
    {"born_host": "here", "tag": "T", "keys": ["k"], "properties": {"a": "b" * 300}},
    {"trace_context": "00-abc-def-01"},
]


async def test_a_message_is_the_same_on_both_ways(
    node: Node, client: Stub, taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is popped by two groups, one of which has the fast path."""
    for group in ("fast", "general"):
        await client.consumes(group, "mixed")
        await client.receive(group, "mixed")
    await learnt(client, taken, "fast", "mixed")
    for each in await client.receive_all("general", "mixed", 1):
        await client.ack("general", "mixed", each)
    while rest := await client.receive("general", "mixed"):
        await client.ack("general", "mixed", *rest)
    for number, options in enumerate(KINDS):
        await client.send(message("mixed", bytes((number + 1) * 40), **options))
        await client.send(message("mixed", b"x" * 5000, v2.FIFO, message_group=f"g{number}"))
    before = taken()
    fast = await client.receive_all("fast", "mixed", 2 * len(KINDS))
    assert taken()[0] > before[0], "the fast path was not taken"
    without_fast_path(node, monkeypatch)
    general = await client.receive_all("general", "mixed", 2 * len(KINDS))
    assert len(fast) == len(general) == 2 * len(KINDS)
    by_id = {each.system_properties.message_id: each for each in general}
    for each in fast:
        other = by_id[each.system_properties.message_id]
        handle, other_handle = (one.system_properties.receipt_handle.split(" ") for one in (each, other))
        assert [other_handle[place] for place in (4, 5, 6, 7, 8)] == [handle[place] for place in (4, 5, 6, 7, 8)]
        each.system_properties.ClearField("receipt_handle")
        other.system_properties.ClearField("receipt_handle")
        assert other == each


async def test_what_is_acknowledged_does_not_come_again(client: Stub, taken: Any) -> None:
    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal")
    for number in range(8):
        await client.send(message("normal", f"{number}".encode()))
    found = await client.receive_all("group", "normal", 8, invisible_ms=1000)
    before = taken()
    answers = [await client.ack("group", "normal", each) for each in found[:6]]
    assert 6 == taken()[1] - before[1]
    for each, answer in zip(found[:6], answers, strict=True):
        assert v2.OK == answer.status.code
        assert "OK" == answer.status.message
        (entry,) = answer.entries
        assert each.system_properties.message_id == entry.message_id
        assert each.system_properties.receipt_handle == entry.receipt_handle
        assert v2.OK == entry.status.code
    again = await client.receive_all("group", "normal", 2)
    assert sorted(each.body for each in found[6:]) == sorted(each.body for each in again)


async def test_several_are_acknowledged_by_one_call(client: Stub, taken: Any) -> None:
    """Those that are not ordinary among them, too: one that was acknowledged before, and one that is no handle."""
    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal")
    for number in range(6):
        await client.send(message("normal", f"{number}".encode()))
    found = await client.receive_all("group", "normal", 6)
    await client.ack("group", "normal", found[0])
    before = taken()
    answer = await client.ack("group", "normal", *found[1:4])
    assert 3 == taken()[1] - before[1]
    assert [v2.OK] * 4 == [answer.status.code, *(entry.status.code for entry in answer.entries)]
    assert [each.system_properties.message_id for each in found[1:4]] == [each.message_id for each in answer.entries]
    answer = await client.ack("group", "normal", found[4], found[0], found[5])
    assert 3 == len(answer.entries)
    assert v2.OK == answer.entries[0].status.code == answer.entries[2].status.code
    found[5].system_properties.receipt_handle = "nonsense"
    answer = await client.ack("group", "normal", found[4], found[5])
    assert v2.INTERNAL_SERVER_ERROR == answer.entries[1].status.code


async def test_tags_are_compared_and_not_only_their_hashes(node: Node, client: Stub, taken: Any) -> None:
    """'Aa' and 'BB' have one hash."""
    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal", expression="Aa")
    before = taken()
    await client.send(message("normal", b"other", tag="BB"))
    await client.send(message("normal", b"wanted", tag="Aa"))
    found = await client.receive_all("group", "normal", 1, expression="Aa")
    assert [b"wanted"] == [each.body for each in found]
    assert taken()[0] > before[0]


async def test_a_push_consumers_messages_are_renewed_on_the_fast_path_too(node: Node, client: Stub, taken: Any) -> None:
    assert node.proxy is not None
    renewal = node.proxy.service.settling.renewal
    await client.consumes("group", "normal", v2.PUSH_CONSUMER)
    await learnt(client, taken, "group", "normal", auto_renew=True)
    for number in range(3):
        await client.send(message("normal", f"{number}".encode()))
    before = taken()
    found = await client.receive_all("group", "normal", 3, auto_renew=True)
    assert taken()[0] > before[0]
    assert 3 == len(renewal)
    await client.ack("group", "normal", found[0])
    await client.ack("group", "normal", found[1])
    assert taken()[1] > before[1]
    assert 1 == len(renewal)
    key = next(iter(renewal._held[node.proxy.service.clients.get(client.client_id)]))  # type: ignore[index]
    assert found[2].system_properties.message_id == key[1]


async def test_what_was_learnt_of_one_request_is_not_used_for_another(client: Stub, taken: Any) -> None:
    """A request may name its group twice, and the last counts: what it begins with must not stand for it."""
    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal")
    one = client.receive_request("first", "normal")
    other = calls.ReceiveMessageRequest()
    other.group.name = "second"
    twice = one.SerializeToString() + other.SerializeToString()
    assert "second" == calls.ReceiveMessageRequest.FromString(twice).group.name
    method = client.channel.unary_stream(
        "/apache.rocketmq.v2.MessagingService/ReceiveMessage",
        request_serializer=lambda data: data,
        response_deserializer=calls.ReceiveMessageResponse.FromString,
    )
    for _ in range(2):
        [answer async for answer in method(twice, metadata=client.metadata, timeout=20)]
    await client.receive("first", "normal")
    await client.send(message("normal", b"for both"))
    assert [b"for both"] == [each.body for each in await client.receive_all("first", "normal", 1)]
    assert [b"for both"] == [each.body for each in await client.receive_all("second", "normal", 1)]


async def test_a_group_that_becomes_ordered_is_looked_at_again(node: Node, client: Stub, taken: Any) -> None:
    from arrowmq.client.admin import Admin

    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal")
    async with Admin(node.namesrv_address) as admin:
        await admin.create_group("group", consume_message_orderly=True)
    before = taken()
    await client.send(message("normal"))
    await client.receive("group", "normal")
    assert before == taken()


async def test_a_receive_that_is_cancelled_at_once_takes_no_messages(node: Node, client: Stub, taken: Any) -> None:
    """Request and cancellation come in one read."""
    assert node.proxy is not None
    await client.consumes("group", "normal")
    await learnt(client, taken, "group", "normal")
    await client.send(message("normal", b"kept"))
    before = taken()
    _, writer = await asyncio.open_connection("127.0.0.1", node.proxy.port)
    peer = h2.connection.H2Connection()
    peer.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), ("content-type", "application/grpc")]
    headers.append((":path", "/apache.rocketmq.v2.MessagingService/ReceiveMessage"))
    body = client.receive_request("group", "normal").SerializeToString()
    peer.send_headers(1, sorted([*headers, *client.metadata]))
    peer.send_data(1, b"\x00" + len(body).to_bytes(4, "big") + body, end_stream=True)
    peer.reset_stream(1)
    writer.write(peer.data_to_send())
    await writer.drain()
    found = await client.receive_all("group", "normal", 1)
    assert [b"kept"] == [each.body for each in found]
    assert 1 == taken()[0] - before[0]
    writer.close()


def test_the_checksum_of_a_body_is_hashlibs() -> None:
    chance = random.Random(17)
    for size in [*range(130), 1000, 4096, 100_001]:
        data = chance.randbytes(size)
        assert hashlib.md5(data).hexdigest().upper() == md5.md5_text(data)

"""Sends on the broker's fast path leave what the general path leaves."""

from __future__ import annotations

import pytest
from proxy_client import Stub, message

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.server import Node
from arrowmq.wire.records import Record


def stored(node: Node, topic: str) -> list[Record]:
    assert node.broker is not None
    found = []
    for queue_id in range(2):
        for entry in node.broker.store.entries(topic, queue_id, 0, 100):
            record = node.broker.store.record_at(entry.physical_offset)
            assert record is not None
            found.append(record)
    return found


@pytest.mark.parametrize(
    "options", [{}, {"tag": "T"}, {"keys": ["a", "b"]}, {"properties": {"colour": "red", "n": "1"}}]
)
async def test_both_ways_store_the_same(node: Node, client: Stub, options: dict[str, object]) -> None:
    assert node.proxy is not None
    sent = message("normal", b"body", born_host="here", **options)
    answers = [await client.send(sent), await client.send(sent)]
    fast = node.proxy.service.sending.fast
    assert fast is not None
    assert [v2.OK, v2.OK] == [answer.status.code for answer in answers]
    assert [sent.system_properties.message_id] * 2 == [answer.entries[0].message_id for answer in answers]
    one, other = stored(node, "normal")
    for name in (
        "topic",
        "body",
        "properties",  # whose order means nothing: those of the user are a map
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "reconsume_times",
    ):
        assert getattr(one, name) == getattr(other, name), name


async def test_what_is_not_ordinary_is_left(node: Node, client: Stub) -> None:
    await client.send(message("normal"))  # now the topic is known
    for made, code in (
        (message("normal", b""), v2.MESSAGE_BODY_EMPTY),
        (message("normal", tag="a|b"), v2.ILLEGAL_MESSAGE_TAG),
        (message("normal", properties={"TAGS": "x"}), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("normal", kind=v2.TRANSACTION), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("normal", message_group="g"), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("normal", "ü".encode(), tag="ü"), v2.OK),
    ):
        assert code == (await client.send(made)).status.code


async def test_a_topic_that_changes_is_looked_at_again(node: Node, client: Stub) -> None:
    await client.send(message("normal"))
    await client.send(message("normal"))
    assert node.broker is not None
    assert node.broker.topics.delete("normal")
    assert v2.TOPIC_NOT_FOUND == (await client.send(message("normal"))).status.code

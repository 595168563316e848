"""Flow control and message types: what is refused, in which words, and that nothing of it was stored."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from arrowmq.broker.send.flow import FlowControl, private_memory_bytes
from arrowmq.broker.send.message_types import message_type
from arrowmq.broker.transactions.offset_set import OffsetSet
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode, ResponseCode


def flow(node: Any) -> FlowControl:
    return node.broker.services.flow


def assert_nothing_stored(node: Any) -> None:
    assert node.broker.store.appended == 0
    assert node.broker.topics.get("orders") is None


async def test_more_sends_in_a_second_than_allowed_are_refused_and_not_stored(make_node: Any) -> None:
    node = await make_node(maxSendsPerSecond="3")
    codes = [(await node.client.send("orders")).code for _ in range(5)]
    assert codes == [0, 0, 0, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    answer = await node.client.send("orders")
    assert "[REJECTREQUEST]system busy" in (answer.remark or "")
    assert "maxSendsPerSecond=3" in (answer.remark or "")
    assert flow(node).refused == {"rate limit": 3}
    assert node.broker.store.max_offset("orders", 0) == 3
    await node.clock.advance(1)
    assert (await node.client.send("orders")).code == ResponseCode.SUCCESS


async def test_a_disk_that_lags_behind_is_the_reason(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await make_node(maxUnflushedBytes="1048576")
    monkeypatch.setattr(type(node.broker.store), "unflushed_bytes", 2 << 20)
    answer = await node.client.send("orders")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "2 MiB of the log are not on disk yet, maxUnflushedBytes allows 1" in (answer.remark or "")
    assert flow(node).refused == {"flush lag": 1}
    assert_nothing_stored(node)


async def test_a_store_that_cannot_write_is_the_reason(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.broker.store.retention, "disk_full_reason", "the disk is 91 % full")
    answer = await node.client.send("orders")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "91 % full" in (answer.remark or "")
    assert flow(node).refused == {"disk": 1}
    assert_nothing_stored(node)


async def test_the_log_says_once_that_a_full_disk_refuses_and_once_that_it_is_over(
    node: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "arrowmq.broker.send.flow")
    monkeypatch.setattr(node.broker.store.retention, "disk_full_reason", "the disk is 91 % full")
    for _ in range(3):
        await node.client.send("orders")
    monkeypatch.setattr(node.broker.store.retention, "disk_full_reason", None)
    for _ in range(2):
        await node.client.send("orders")
    assert [record.message for record in caplog.records] == [
        "sends refused reason=disk: the disk is 91 % full",
        "sends taken again reason=no more disk",
    ]


async def test_a_rate_that_is_reached_every_second_is_said_once_a_minute(
    make_node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "arrowmq.broker.send.flow")
    node = await make_node(maxSendsPerSecond="1")
    for _ in range(5):
        for _ in range(3):
            await node.client.send("orders")
        await node.clock.advance(1)
    assert len(caplog.records) == 1


async def test_memory_is_the_reason(make_node: Any) -> None:
    node = await make_node(maxProcessMemoryBytes="1048576")
    assert private_memory_bytes() > 1 << 20
    flow(node).measure()
    answer = await node.client.send("orders")
    assert "maxProcessMemoryBytes allows 1" in (answer.remark or "")
    assert flow(node).refused == {"memory": 1}
    assert_nothing_stored(node)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "TRANSACTION"),
        ({"DELAY": "3"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({"__SHARDINGKEY": "k"}, "FIFO"),
        ({"DELAY": "0"}, "NORMAL"),
    ],
)
def test_the_properties_show_the_type(properties: dict[str, str], kind: str) -> None:
    assert message_type(properties) == kind


@pytest.mark.parametrize(
    ("attribute", "properties", "is_taken"),
    [
        ("NORMAL", "", True),
        ("NORMAL", "DELAY\x011\x02", False),
        ("DELAY", "DELAY\x011\x02", True),
        ("DELAY", "", False),
        ("FIFO", "__SHARDINGKEY\x01k\x02", True),
        ("FIFO", "", False),
        ("TRANSACTION", "TRAN_MSG\x01true\x02PGROUP\x01P\x02", True),
        ("TRANSACTION", "", False),
        ("MIXED", "DELAY\x011\x02", True),
    ],
)
async def test_a_topic_takes_its_own_type_only_where_that_is_checked(
    make_node: Any, attribute: str, properties: str, is_taken: bool
) -> None:
    node = await make_node(enableTopicMessageTypeCheck="true")
    topic = node.broker.topics.create_internal("orders", 4)
    topic.attributes = {"message.type": attribute}
    answer = await node.client.send("orders", properties=properties)
    assert (answer.code == ResponseCode.SUCCESS) is is_taken
    if not is_taken:
        assert "TopicMessageType validate failed, the expected type is " + attribute in (answer.remark or "")
        assert node.broker.store.max_offset("orders", 0) == 0


@pytest.mark.parametrize(("second", "is_taken"), [(b"__SHARDINGKEY\x01k\x02", True), (b"", False)])
async def test_every_message_of_a_batch_must_be_of_the_topics_type(
    make_node: Any, second: bytes, is_taken: bool
) -> None:
    node = await make_node(enableTopicMessageTypeCheck="true")
    node.broker.topics.create_internal("orders", 4).attributes = {"message.type": "FIFO"}
    header = {"a": "P", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": True}
    body = encode_batch([(0, b"a", b"__SHARDINGKEY\x01k\x02"), (0, b"b", second)])
    answer = await node.client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)
    assert (answer.code == ResponseCode.SUCCESS) is is_taken
    assert node.broker.store.max_offset("orders", 0) == (2 if is_taken else 0)


async def test_by_default_types_are_not_checked(node: Any) -> None:
    node.broker.topics.create_internal("orders", 4).attributes = {"message.type": "FIFO"}
    assert (await node.client.send("orders")).code == ResponseCode.SUCCESS


def test_an_offset_set_finds_gaps_and_forgets() -> None:
    offsets = OffsetSet(1003)
    for offset in [*range(1003, 101_000), 101_001]:
        offsets.add(offset)
    assert [offset in offsets for offset in (1002, 1003, 100_999, 101_000, 101_001, 101_002)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert offsets.next_missing(1003) == 101_000
    assert offsets.next_missing(101_001) == 101_002
    assert offsets.next_missing(200_000) == 200_000
    offsets.forget_below(101_001)
    assert offsets.memory_bytes <= 2
    assert 101_001 in offsets
    assert 50_000 not in offsets
    offsets.add(50_000)
    assert 50_000 not in offsets

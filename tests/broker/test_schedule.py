"""Delay levels: on time, in order, across restarts and crashes; a poisoned entry blocks nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arrowmq import refusals
from arrowmq.broker.delayed.delay_levels import DelayLevels
from arrowmq.broker.names import SCHEDULE_TOPIC
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record


def delay(level: object) -> str:
    return f"DELAY\x01{level}\x02"


def service(node: Any) -> DelayLevels:
    return node.broker.services.delay_levels


async def bodies(node: Any, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return node.client.bodies(await node.client.pull(topic, queue_id=queue_id))


async def test_a_delayed_message_waits_its_time_and_not_longer(node: Any) -> None:
    answer = await node.client.send("orders", b"later", queue_id=1, properties=delay(3))
    assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "1")
    await node.clock.advance(9.9)
    assert await bodies(node, queue_id=1) == []
    await node.clock.advance(0.2)
    (record,) = node.client.records(await node.client.pull("orders", queue_id=1))
    assert record.body == b"later"
    # The delivered copy shows how it came, as with Apache's broker.
    assert (record.properties["DELAY"], record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == (
        "3",
        "orders",
        "1",
    )
    assert record.properties["UNIQ_KEY"] == answer.ext["transactionId"]


async def test_each_level_keeps_its_own_time_and_order(node: Any) -> None:
    for number in range(5):
        await node.client.send("orders", b"slow %d" % number, properties=delay(2))
        await node.client.send("orders", b"fast %d" % number, properties=delay(1))
        await node.clock.advance(0.01)
    await node.clock.advance(1.1)
    assert await bodies(node) == [b"fast %d" % number for number in range(5)]
    await node.clock.advance(4.1)
    assert (await bodies(node))[5:] == [b"slow %d" % number for number in range(5)]


@pytest.mark.parametrize(("asked", "waits"), [(18, 17), (99, 17), (1, 0)])
async def test_a_level_beyond_the_last_is_the_last(node: Any, asked: int, waits: int) -> None:
    await node.client.send("orders", properties=delay(asked))
    assert node.broker.store.max_offset(SCHEDULE_TOPIC, waits) == 1


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_no_level_means_no_delay(node: Any, level: str) -> None:
    await node.client.send("orders", properties=delay(level))
    assert len(await bodies(node)) == 1


async def test_a_level_that_is_no_number_is_refused_with_a_sentence(node: Any) -> None:
    answer = await node.client.send("orders", properties=delay("soon"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "DELAY=soon" in (answer.remark or "")


async def test_levels_are_configured(make_node: Any) -> None:
    node = await make_node(messageDelayLevel="2s 1m")
    await node.client.send("orders", b"a", properties=delay(1))
    await node.client.send("orders", b"b", properties=delay(7))
    await node.clock.advance(2.1)
    assert await bodies(node) == [b"a"]
    await node.clock.advance(60)
    assert await bodies(node) == [b"a", b"b"]


async def test_a_restart_delivers_what_became_due_meanwhile_and_nothing_twice(node: Any) -> None:
    for number in range(3):
        await node.client.send("orders", b"%d" % number, properties=delay(2))
        await node.clock.advance(2)
    await node.clock.advance(0.1)
    assert await bodies(node) == [b"0"]
    await node.restart()
    stored = json.loads((node.root / "config" / "delayOffset.json").read_text())
    assert stored["offsetTable"] == {"2": 1}
    node.clock.skip(100)  # the broker was down for a while
    await node.clock.advance(0.1)
    assert await bodies(node) == [b"0", b"1", b"2"]


async def test_after_a_crash_every_message_comes_once(node: Any) -> None:
    for number in range(100):
        await node.client.send("orders", b"%d" % number, properties=delay(1))
    await node.client.send("orders", b"pending", properties=delay(2))
    await node.clock.advance(1.5)
    assert len(await bodies(node)) == 32
    assert not (node.root / "config" / "delayOffset.json").exists()
    await node.crash()
    assert service(node).levels[0].offset == 0
    await node.clock.advance(6)
    await node.eventually(lambda: node.broker.store.max_offset("orders", 0) == 101)
    assert service(node).pending(1) == service(node).pending(2) == 0
    stored = [
        node.broker.store.record_at(entry.physical_offset) for entry in node.broker.store.entries("orders", 0, 0, 200)
    ]
    assert [record.body for record in stored] == [b"%d" % number for number in range(100)] + [b"pending"]


async def test_a_crash_in_the_middle_of_delivery_loses_nothing(node: Any) -> None:
    for number in range(300):
        await node.client.send("orders", b"%d" % number, properties=delay(1))
    await node.clock.advance(1.0, settle_turns=1)
    await node.crash()
    await node.clock.advance(10)
    await node.eventually(lambda: service(node).pending(1) == 0)
    store = node.broker.store
    seen = [store.record_at(entry.physical_offset).body for entry in store.entries("orders", 0, 0, 1000)]
    assert seen == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "orders"},
        {"REAL_TOPIC": "orders", "REAL_QID": "x"},
        {"REAL_TOPIC": "../orders", "REAL_QID": "0"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
async def test_a_poisoned_entry_blocks_nothing(node: Any, properties: dict[str, str]) -> None:
    await node.client.send("orders", b"before", properties=delay(1))
    poison = Record(SCHEDULE_TOPIC, b"poison", encode_properties({"DELAY": "1", **properties}))
    node.broker.store.put(poison)
    await node.client.send("orders", b"after", properties=delay(1))
    await node.clock.advance(1.1)
    assert await bodies(node) == [b"before", b"after"]
    assert service(node).skipped == 1


async def test_a_store_that_refuses_is_asked_again(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from arrowmq.store import Put, PutStatus

    await node.client.send("orders", b"patient", properties=delay(1))
    with monkeypatch.context() as full:
        full.setattr(node.broker.store, "put", lambda record: Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="disk full"))
        await node.clock.advance(5)
    await node.clock.advance(0.2)
    assert await bodies(node) == [b"patient"]


async def test_a_clock_that_was_set_back_makes_nothing_wait_longer_than_its_level(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.client.send("orders", b"due", properties=delay(3))
    right = node.clock.now_ms
    monkeypatch.setattr(node.clock, "now_ms", lambda: right() - 3_600_000)
    await node.clock.advance(10.2)
    assert await bodies(node) == [b"due"]


async def test_a_crash_after_the_clock_was_set_back_delivers_nothing_twice(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await node.client.send("orders", b"%d" % number, properties=delay(1))
    right = node.clock.now_ms
    monkeypatch.setattr(node.clock, "now_ms", lambda: right() - 3_600_000)
    await node.clock.advance(1.2)
    await node.client.send("orders", b"3", properties=delay(1))
    await node.crash()
    await node.clock.advance(1.2)
    assert await bodies(node) == [b"0", b"1", b"2", b"3"]


async def test_a_message_sent_while_others_wait_needs_no_timer_of_its_own(node: Any) -> None:
    for _ in range(50):
        await node.client.send("orders", properties=delay(18))
    assert sum(level.timer is not None for level in service(node).levels) == 1


async def test_the_offsets_are_told_to_a_slave(node: Any) -> None:
    await node.client.send("orders", properties=delay(1))
    await node.clock.advance(1.2)
    answer = await node.client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert json.loads(answer.body)["offsetTable"] == {"1": 1}


async def test_delay_wins_over_a_timer(node: Any) -> None:
    await node.client.send("orders", properties=delay(1) + "TIMER_DELAY_SEC\x0160\x02")
    await node.clock.advance(1.2)
    (record,) = node.client.records(await node.client.pull("orders"))
    assert "TIMER_DELAY_SEC" not in record.properties


async def test_delays_work_under_sync_flush(make_node: Any) -> None:
    node = await make_node(flushDiskType="SYNC_FLUSH")
    await node.client.send("orders", b"safe", properties=delay(1))
    await node.clock.advance(1.2)
    await node.eventually(lambda: node.broker.store.max_offset("orders", 0) == 1)
    assert await bodies(node) == [b"safe"]


async def test_a_slave_delivers_nothing_by_itself(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "BROKER_SETTINGS", ())  # the role is refused as long as it copies nothing
    node = await make_node()
    await node.client.send("orders", properties=delay(1))
    await node.client.send("orders", properties="TIMER_DELAY_SEC\x012\x02")
    await node.restart(brokerRole="SLAVE", brokerId="1")
    await node.clock.advance(60)
    assert node.broker.store.max_offset("orders", 0) == 0

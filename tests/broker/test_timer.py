"""Timer messages: to the second, days ahead, recalled, across restarts and crashes, in Apache's files."""

from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

import pytest

from arrowmq.broker.delayed.timer import TimerMessages, slot_time
from arrowmq.broker.delayed.timer_files import (
    NORMAL,
    NOWHERE,
    Checkpoint,
    Slot,
    TimerLog,
    TimerWheel,
    Unit,
    pack_checkpoint,
)
from arrowmq.broker.names import TIMER_TOPIC
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.ids import parse_recall_handle

DAY_S = 86_400


def service(node: Any) -> TimerMessages:
    return node.broker.services.timer


async def bodies(node: Any, queue_id: int = 0) -> list[bytes]:
    return node.client.bodies(await node.client.pull("orders", queue_id=queue_id))


def at(seconds: float, node: Any) -> str:
    return f"TIMER_DELIVER_MS\x01{node.clock.now_ms() + int(seconds * 1000)}\x02"


@pytest.mark.parametrize("wish", ["TIMER_DELAY_SEC\x015\x02", "TIMER_DELAY_MS\x015000\x02", "at"])
async def test_a_message_comes_when_it_is_due_and_not_before(node: Any, wish: str) -> None:
    answer = await node.client.send("orders", b"later", queue_id=1, properties=at(5, node) if wish == "at" else wish)
    assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "1")
    await node.clock.advance(4.9)
    assert await bodies(node, 1) == []
    await node.clock.advance(0.2)
    (record,) = node.client.records(await node.client.pull("orders", queue_id=1))
    assert record.body == b"later"
    assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == ("orders", "1")
    assert int(record.properties["TIMER_DEQUEUE_MS"]) - int(record.properties["TIMER_ENQUEUE_MS"]) == 5000


async def test_a_time_within_a_second_is_met_at_its_end(node: Any) -> None:
    await node.client.send("orders", properties=at(2.3, node))
    await node.clock.advance(2.9)
    assert await bodies(node) == []
    await node.clock.advance(0.2)
    assert len(await bodies(node)) == 1


async def test_messages_of_one_second_come_in_the_order_sent(node: Any) -> None:
    for number in range(300):
        await node.client.send("orders", b"%d" % number, properties=at(3, node))
    await node.clock.advance(4)
    store = node.broker.store
    seen = [store.record_at(entry.physical_offset).body for entry in store.entries("orders", 0, 0, 1000)]
    assert seen == [b"%d" % number for number in range(300)]


async def test_a_time_that_has_passed_means_now(node: Any) -> None:
    await node.client.send("orders", b"now", properties=at(-5, node))
    assert await bodies(node) == [b"now"]


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ("TIMER_DELIVER_MS\x01soon\x02", ResponseCode.MESSAGE_ILLEGAL),
        (f"TIMER_DELAY_SEC\x01{3 * DAY_S + 1}\x02", ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_time_that_cannot_be_is_refused(node: Any, properties: str, code: int) -> None:
    answer = await node.client.send("orders", properties=properties)
    assert answer.code == code
    assert "timer message illegal" in (answer.remark or "")
    assert node.broker.store.max_offset("orders", 0) == 0


async def test_a_broker_may_have_no_timers(make_node: Any) -> None:
    node = await make_node(timerWheelEnable="false")
    answer = await node.client.send("orders", properties="TIMER_DELAY_SEC\x015\x02")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "timerWheelEnable is false" in (answer.remark or "")


async def test_a_second_takes_twice_its_limit_and_no_more(make_node: Any) -> None:
    """Up to the limit all, from there on ever fewer, beyond twice the limit none; other seconds are not concerned."""
    node = await make_node(timerCongestNumEachSlot="10")
    wish, codes = at(60.5, node), []
    for _ in range(200):
        answer = await node.client.send("orders", properties=wish)
        codes.append(answer.code)
        await node.clock.advance(0.001)
    assert codes[:11] == [ResponseCode.SUCCESS] * 11
    assert codes.count(ResponseCode.SUCCESS) == 20
    assert set(codes[11:]) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    assert "timer message is under flow control, max num limit is 20" in (answer.remark or "")
    assert (await node.client.send("orders", properties=at(90, node))).code == ResponseCode.SUCCESS


async def test_a_message_due_beyond_the_window_is_put_back_and_still_comes_on_time(make_node: Any) -> None:
    node = await make_node(timerRollWindowSlot="30")
    await node.client.send("orders", b"far", properties="TIMER_DELAY_SEC\x01100\x02")
    await node.clock.advance(99)
    assert await bodies(node) == []
    assert node.broker.store.max_offset(TIMER_TOPIC, 0) > 2
    await node.clock.advance(1.1)
    (record,) = node.client.records(await node.client.pull("orders"))
    assert int(record.properties["TIMER_ROLL_TIMES"]) >= 3


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_what_became_due_while_the_broker_was_away_comes_at_once_and_once(node: Any, how: str) -> None:
    await node.client.send("orders", b"before", properties=at(2, node))
    await node.client.send("orders", b"during", properties=at(60, node))
    await node.client.send("orders", b"after", properties=at(3600, node))
    await node.clock.advance(3)
    assert await bodies(node) == [b"before"]
    await (node.restart() if how == "restart" else node.crash())
    node.clock.skip(600)
    await node.clock.advance(1.1)
    assert await bodies(node) == [b"before", b"during"]
    await node.clock.advance(3600)
    assert await bodies(node) == [b"before", b"during", b"after"]


async def test_a_crash_before_anything_was_noted_loses_nothing(node: Any) -> None:
    await node.client.send("orders", b"kept", properties=at(5, node))
    assert not (node.root / "config" / "timercheck").exists()
    await node.crash()
    await node.clock.advance(6)
    assert await bodies(node) == [b"kept"]


async def test_timers_work_under_sync_flush(make_node: Any) -> None:
    node = await make_node(flushDiskType="SYNC_FLUSH")
    await node.client.send("orders", b"safe", properties=at(2, node))
    await node.clock.advance(3)
    await node.eventually(lambda: node.broker.store.max_offset("orders", 0) == 1)
    assert await bodies(node) == [b"safe"]


async def test_what_is_due_is_delivered_while_ever_more_is_sent(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timers = service(node)
    await node.client.send("orders", b"due", properties=at(2, node))
    await node.clock.advance(1)
    enter_one, entered = timers._enter_one, []

    def entering_one_and_another_comes(record: Any, size: int) -> bool:
        entered.append(timers.delivered)
        if len(entered) < 1000:
            node.broker.store.put(copy.copy(record))
        return enter_one(record, size)

    monkeypatch.setattr(timers, "_enter_one", entering_one_and_another_comes)
    await node.client.send("orders", b"far away", properties=at(3600, node))
    node.clock.skip(2)
    await node.clock.advance(0.5)
    assert len(entered) == 1000
    assert (entered[0], entered[500]) == (0, 1)
    assert await bodies(node) == [b"due"]


# Clocks and damage


def set_back(node: Any, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    right = node.clock.now_ms
    monkeypatch.setattr(node.clock, "now_ms", lambda: right() - seconds * 1000)


@pytest.mark.parametrize("then", ["goes on", "restart", "crash"])
async def test_a_clock_that_was_set_back_makes_nothing_early_or_lost_or_twice(
    node: Any, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    await node.client.send("orders", b"before", properties=at(2, node))
    await node.client.send("orders", b"waits", properties=at(120, node))
    await node.clock.advance(60)
    await service(node).persist_if_changed()
    set_back(node, monkeypatch, 3600)
    await node.clock.advance(1.1 if then != "goes on" else 0)
    await service(node).persist_if_changed()
    if then != "goes on":
        await (node.crash() if then == "crash" else node.restart())
    await node.clock.advance(1.1)
    await node.client.send("orders", b"soon", properties=at(60, node))
    await node.clock.advance(59)
    assert await bodies(node) == [b"before"]
    await node.clock.advance(2.1)
    assert await bodies(node) == [b"before", b"soon"]
    await node.clock.advance(3650)
    assert await bodies(node) == [b"before", b"soon", b"waits"]


async def test_what_is_sent_after_a_takeover_is_not_taken_for_delivered_if_the_clock_is_set_back(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = service(node)
    await timers.suspend()
    timers.take_checkpoint(checkpoint_at(node.clock.now_ms()))
    timers.resume()
    set_back(node, monkeypatch, 3600)
    await node.client.send("orders", b"new", properties=at(10, node))
    await node.clock.advance(11)
    assert await bodies(node) == [b"new"]


async def test_what_a_master_delivered_whose_clock_was_ahead_is_not_delivered_again(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = service(node)
    await node.client.send("orders", b"delivered", properties=at(5, node))
    await node.clock.advance(10)
    told = timers.check_point().body
    await timers.suspend()
    set_back(node, monkeypatch, 3600)
    timers.take_checkpoint(told)
    timers.resume()
    await node.clock.advance(3700)
    assert await bodies(node) == [b"delivered"]


async def test_what_a_master_kept_whose_clock_was_behind_is_delivered(make_node: Any) -> None:
    node = await make_node(timerRollWindowSlot="600")
    timers = service(node)
    await node.client.send("orders", b"waits", properties=at(550, node))
    await node.clock.advance(10)
    told = timers.check_point().body
    await timers.suspend()
    node.clock.skip(3600)
    timers.take_checkpoint(told)
    timers.resume()
    await node.clock.advance(2)
    assert await bodies(node) == [b"waits"]


async def test_what_is_sent_to_a_master_that_is_back_is_not_taken_for_delivered_by_a_slave_whose_clock_is_ahead(
    node: Any,
) -> None:
    timers = service(node)
    await node.client.send("orders", b"delivered by the slave", properties=at(20, node))
    timers._is_running = False  # as before its role is taken up
    timers.take_back(checkpoint_at(node.clock.now_ms() + 30_000))
    timers.resume()
    await node.client.send("orders", b"new", properties=at(10, node))
    await node.clock.advance(60)
    assert await bodies(node) == [b"new"]


def checkpoint_at(time_ms: int) -> bytes:
    return pack_checkpoint(Checkpoint(time_ms - time_ms % 1000, 0, 0), time_ms, 1)


async def test_what_was_put_back_before_a_crash_comes_once(make_node: Any) -> None:
    node = await make_node(timerRollWindowSlot="30")
    await node.client.send("orders", b"far", properties="TIMER_DELAY_SEC\x01100\x02")
    await node.clock.advance(29.5)
    await service(node).persist_if_changed()
    check = node.root / "config" / "timercheck"
    noted = check.read_bytes()
    await node.clock.advance(2)
    assert node.broker.store.max_offset(TIMER_TOPIC, 0) == 2, "it was put back"
    check.write_bytes(noted)
    await node.crash()
    await node.clock.advance(100)
    assert await bodies(node) == [b"far"]


@pytest.mark.parametrize(("field", "value"), [(0, 1 << 60), (0, 0), (1, 1 << 40), (1, 52), (1, 17), (1, 0), (1, -5)])
async def test_a_damaged_checkpoint_loses_no_timer(node: Any, field: int, value: int) -> None:
    """Each field: the time read up to, the end of the log."""
    await node.client.send("orders", b"before", properties=at(2, node))
    for number in range(3):
        await node.client.send("orders", b"%d" % number, properties=at(60 + number, node))
    await node.clock.advance(10)
    path = node.root / "config" / "timercheck"
    await node.stop()
    path.write_bytes(damaged(path.read_bytes(), field, value))
    await node.start()
    await node.client.send("orders", b"new", properties=at(90, node))
    await node.clock.advance(120)
    assert await bodies(node) == [b"before", b"0", b"1", b"2", b"new"]


def damaged(checkpoint: bytes, field: int, value: int) -> bytes:
    return checkpoint[: field * 8] + struct.pack(">q", value) + checkpoint[field * 8 + 8 :]


# Recall


async def test_a_recalled_message_never_comes(make_node: Any) -> None:
    node = await make_node(recallMessageEnable="true")
    await node.client.send("orders", b"stays", properties=at(10, node))
    answer = await node.client.send("orders", b"taken back", properties=at(10, node))
    handle = parse_recall_handle(answer.ext["recallHandle"])
    assert (handle.topic, handle.broker_name, handle.unique_id) == ("orders", "broker-a", answer.ext["transactionId"])
    request = {"topic": "orders", "producerGroup": "P", "recallHandle": answer.ext["recallHandle"]}
    recalled = await node.client.ask(RequestCode.RECALL_MESSAGE, request)
    assert (recalled.code, recalled.ext["msgId"]) == (ResponseCode.SUCCESS, handle.unique_id), recalled.remark
    await node.clock.advance(12)
    assert await bodies(node) == [b"stays"]
    late = await node.client.ask(RequestCode.RECALL_MESSAGE, request)
    assert late.code == ResponseCode.ILLEGAL_OPERATION


async def test_a_recall_counts_also_if_a_crash_comes_between(make_node: Any) -> None:
    node = await make_node(recallMessageEnable="true")
    answer = await node.client.send("orders", b"taken back", properties=at(10, node))
    request = {"topic": "orders", "recallHandle": answer.ext["recallHandle"]}
    assert (await node.client.ask(RequestCode.RECALL_MESSAGE, request)).code == ResponseCode.SUCCESS
    await node.crash()
    node.clock.skip(60)
    await node.client.send("orders", b"marks the end")
    await node.clock.advance(5)
    assert await bodies(node) == [b"marks the end"]


@pytest.mark.parametrize("is_entered", [True, False])
@pytest.mark.parametrize("what", ["crash", "restart", "stall"])
async def test_a_recall_counts_also_if_it_is_entered_after_its_second(
    make_node: Any, what: str, is_entered: bool
) -> None:
    """Told that a message is taken back, its sender relies on it, however long the broker was busy or away then."""
    node = await make_node(recallMessageEnable="true")
    await node.client.send("orders", b"stays", properties=at(10, node))
    answer = await node.client.send("orders", b"taken back", properties=at(10, node))
    if is_entered:
        await node.clock.advance(2)
        assert service(node).not_entered == 0
    request = {"topic": "orders", "recallHandle": answer.ext["recallHandle"]}
    assert (await node.client.ask(RequestCode.RECALL_MESSAGE, request)).code == ResponseCode.SUCCESS
    assert service(node).not_entered == (1 if is_entered else 3)
    if what != "stall":
        await (node.crash() if what == "crash" else node.restart())
    node.clock.skip(60)
    await node.clock.advance(5)
    assert await bodies(node) == [b"stays"]


async def test_a_recall_that_names_nothing_is_refused(make_node: Any) -> None:
    node = await make_node(recallMessageEnable="true")
    await node.client.send("orders")
    for topic, handle, code in [
        ("orders", "nonsense", ResponseCode.ILLEGAL_OPERATION),
        ("nothing", "nonsense", ResponseCode.TOPIC_NOT_EXIST),
    ]:
        answer = await node.client.ask(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})
        assert answer.code == code


async def test_recalls_are_off_by_default(node: Any) -> None:
    answer = await node.client.ask(RequestCode.RECALL_MESSAGE, {"topic": "orders", "recallHandle": "x"})
    assert answer.code == ResponseCode.NO_PERMISSION


# Files


def test_a_due_time_is_found_under_the_second_before_it() -> None:
    assert [slot_time(time) for time in (5000, 5001, 5999, 6000)] == [4000, 5000, 5000, 5000]


def test_the_log_and_the_wheel_are_in_apaches_form(tmp_path: Path) -> None:
    log = TimerLog(tmp_path / "timerlog", 5200)
    unit = Unit(NOWHERE, NORMAL, 1794768883000, 2000, 128531, 340, 1148717942)
    assert [log.append(unit) for _ in range(99)] == [52 * number for number in range(99)]
    # No room for a further unit and the filler behind it: the next file begins.
    assert log.append(unit) == 5200
    raw = (tmp_path / "timerlog" / "00000000000000000000").read_bytes()
    assert raw[:52] == struct.pack(">iqiqiqiiq", 52, -1, 1, 1794768883000, 2000, 128531, 340, 1148717942, 0)
    assert raw[99 * 52 : 99 * 52 + 16] == struct.pack(">iqi", 52, 0, -875286124)
    log.close()
    again = TimerLog(tmp_path / "timerlog", 5200)
    again.load()
    assert len(list(again.recover())) == 100
    assert again.end == 5252
    wheel = TimerWheel(tmp_path / "timerwheel")
    wheel.put(1794768885000, Slot(0, 52, 2))
    assert wheel.slot(1794768885999) == Slot(0, 52, 2)
    assert wheel.slot(1794768885000 + 1_209_600_000) is None
    wheel.close()
    assert (tmp_path / "timerwheel").stat().st_size == 38_707_200


async def test_a_message_with_a_delay_level_and_a_time_goes_by_its_level(node: Any) -> None:
    """As with Apache's broker: the level is looked at first, and the time is then no longer there."""
    await node.client.send("orders", properties=f"DELAY\x012\x02{at(100, node)}")
    await node.clock.advance(5.1)
    (record,) = node.client.records(await node.client.pull("orders"))
    assert "TIMER_DELIVER_MS" not in record.properties

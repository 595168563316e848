"""A real broker in a test: quick to start, real to clients, and quick to let days pass."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

import arrowmq
import arrowmq.sync
from arrowmq.store.disk import Disk, DiskUsage
from arrowmq.testing import BrokerThread, LeapClock, LocalBroker


def test_a_broker_is_ready_in_under_a_tenth_of_a_second(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "warm"):
        pass  # the first one pays for imports
    spent = []
    for number in range(5):
        begun = time.process_time()
        with BrokerThread(tmp_path / str(number)):
            spent.append(time.process_time() - begun)
    # CPU time: other work on the machine must not decide.
    assert min(spent) < 0.1


def test_a_blocking_test_sends_and_consumes(arrowmq_broker: BrokerThread) -> None:
    with (
        arrowmq.sync.Producer(arrowmq_broker.namesrv) as producer,
        arrowmq.sync.Consumer(arrowmq_broker.namesrv, group="g", topic="orders", consume_from="first") as consumer,
    ):
        producer.send("orders", b"hello")
        (message,) = consumer.receive(timeout_s=10)
        message.ack()
        assert b"hello" == message.body


async def test_a_disk_that_is_nearly_full_does_not_decide_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "usage", lambda disk, path: DiskUsage(used=97, usable=3))
    often = {"cleanResourceInterval": "10"}
    async with LocalBroker(settings=often) as broker, arrowmq.Producer(broker.namesrv) as producer:
        receipts = []
        for _ in range(5):
            await asyncio.sleep(0.02)  # rounds of retention look at the disk meanwhile
            receipts.append(await producer.send("orders", b"x"))
    assert 5 == len({receipt.offset_msg_id for receipt in receipts})


async def test_each_test_has_an_empty_broker(arrowmq_broker: BrokerThread) -> None:
    async with arrowmq.Admin(arrowmq_broker.namesrv) as admin:
        assert "orders" not in await admin.topics()


async def test_three_days_pass_at_once(arrowmq_broker: BrokerThread) -> None:
    async with (
        arrowmq.Producer(arrowmq_broker.namesrv) as producer,
        arrowmq.Consumer(arrowmq_broker.namesrv, group="g", topic="later", consume_from="first") as consumer,
    ):
        await producer.send("later", b"in three days", delay=timedelta(days=3))
        assert [] == await consumer.receive(timeout_s=0.2)
        arrowmq_broker.advance(timedelta(days=2, hours=23))
        assert [] == await consumer.receive(timeout_s=0.2)
        arrowmq_broker.advance(timedelta(hours=2))
        (message,) = await consumer.receive(timeout_s=10)
        await message.ack()
        assert b"in three days" == message.body


async def test_a_delay_level_fires_when_its_time_has_passed(arrowmq_broker: BrokerThread) -> None:
    async with (
        arrowmq.Producer(arrowmq_broker.namesrv) as producer,
        arrowmq.Consumer(arrowmq_broker.namesrv, group="g", topic="later", consume_from="first") as consumer,
    ):
        await producer.send("later", b"in two hours", delay_level=18)
        assert [] == await consumer.receive(timeout_s=0.1)
        arrowmq_broker.advance(timedelta(hours=2))
        (message,) = await consumer.receive(timeout_s=10)
        await message.ack()
        assert b"in two hours" == message.body


async def test_clients_stay_connected_over_a_leap_of_years(arrowmq_broker: BrokerThread) -> None:
    async with (
        arrowmq.Producer(arrowmq_broker.namesrv) as producer,
        arrowmq.Consumer(arrowmq_broker.namesrv, group="g", topic="t", consume_from="first") as consumer,
        arrowmq.Admin(arrowmq_broker.namesrv) as admin,
    ):
        await producer.send("t", b"before")
        await (await anext(consumer)).ack()
        for _ in range(3):
            arrowmq_broker.advance(timedelta(days=400))
        await producer.send("t", b"after")
        message = await anext(consumer)
        await message.ack()
        assert b"after" == message.body
        assert 1 == len((await admin.consumers("g")).connection_set)


async def test_a_broker_runs_in_the_tests_own_loop() -> None:
    async with LocalBroker() as broker, arrowmq.Producer(broker.namesrv) as producer:
        receipt = await producer.send("t", b"x")
        await broker.restart()
        async with arrowmq.Admin(broker.namesrv) as admin:
            assert b"x" == (await admin.message_by_offset_id(receipt.offset_msg_id)).body
    assert not broker.folder.exists()


class TestSettings:
    @pytest.fixture
    def arrowmq_settings(self) -> dict[str, str]:
        return {"autoCreateTopicEnable": "false"}

    def test_a_test_can_set_the_broker_up(self, arrowmq_broker: BrokerThread) -> None:
        with arrowmq.sync.Producer(arrowmq_broker.namesrv) as producer, pytest.raises(arrowmq.NoRoute):
            producer.send("unknown", b"x")


async def test_a_leap_fires_each_timer_once_in_order() -> None:
    clock = LeapClock()
    fired: list[str] = []
    clock.call_later(20, lambda: fired.append("second"))
    clock.call_later(10, lambda: fired.append("first"))
    clock.call_later(5, lambda: fired.append("cancelled")).cancel()
    clock.call_later(1000, lambda: fired.append("not yet"))
    before = clock.now_ms()
    await clock.advance(500)
    assert ["first", "second"] == fired
    assert 500_000 <= clock.now_ms() - before < 510_000
    assert 400 < (clock.next_due_in_s() or 0) <= 500


async def test_between_leaps_time_runs_by_itself() -> None:
    clock = LeapClock()
    rang = asyncio.Event()
    clock.call_later(0.01, rang.set)
    async with asyncio.timeout(10):
        await rang.wait()
        await clock.sleep(0.01)
    with pytest.raises(ValueError, match="backwards"):
        await clock.advance(-1)


async def test_waiting_for_something_that_never_happens_ends(arrowmq_broker: BrokerThread) -> None:
    with pytest.raises(AssertionError, match="still does not hold"):
        await arrowmq_broker.advance_until(lambda: False, steps=3)

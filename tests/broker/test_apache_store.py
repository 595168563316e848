"""A store that Apache's broker left is continued: its pending delays, timers and transactions end here, each once."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import pytest

from arrowmq.clock import VirtualClock
from arrowmq.wire.codes import RequestCode, ResponseCode

GOLDEN = Path(__file__).parents[1] / "golden" / "store-clean.tar.xz"
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "1000",
    "mappedFileSizeTimerLog": "5200",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "fileReservedTime": "10000",
    "transactionCheckInterval": str(365 * 86_400_000),
}
LAST_MS = 1_794_769_128_500  # Apache's broker stopped a moment before this
HOUR_MS = 1_794_772_483_000  # the pending timer message of an hour, in its slot


@pytest.fixture
async def apache(make_node: Any, tmp_path: Path) -> Any:
    """A broker of ours on a copy of the store, in the hour in which Apache's was stopped."""
    with tarfile.open(GOLDEN) as tar:
        tar.extractall(tmp_path / "golden", filter="data")
    root = tmp_path / "golden" / "store-clean" / "store"
    wheel = root / "timerwheel.gz"
    if wheel.exists():
        (root / "timerwheel").write_bytes(gzip.decompress(wheel.read_bytes()))
    node = await make_node(**SETTINGS)
    await node.stop()
    node.root, node.clock = root, VirtualClock(LAST_MS)
    await node.start()
    return node


def keys_in(node: Any, topic: str) -> list[str]:
    store = node.broker.store
    found = [
        store.record_at(entry.physical_offset)
        for queue_id in store.queues().get(topic, [])
        for entry in store.entries(topic, queue_id, 0, 1000)
    ]
    return sorted(" ".join(record.keys) for record in found)


async def test_a_pending_delay_is_delivered_when_it_is_due(apache: Any) -> None:
    before = keys_in(apache, "TopicDelay")
    await apache.clock.advance(3300)
    assert keys_in(apache, "TopicDelay") == before
    await apache.clock.advance(60)
    assert keys_in(apache, "TopicDelay") == sorted([*before, "delay-17"])
    await apache.clock.advance(3600)
    assert keys_in(apache, "TopicDelay") == sorted([*before, "delay-17", "delay-18", "delay-99"])


async def test_a_pending_timer_message_is_delivered_in_its_second(apache: Any) -> None:
    before = keys_in(apache, "TopicTimer")
    timers = apache.broker.services.timer
    await apache.clock.advance((HOUR_MS - LAST_MS) / 1000 + 0.5)
    assert "timer-hour" not in keys_in(apache, "TopicTimer")
    await apache.clock.advance(1)
    assert keys_in(apache, "TopicTimer") == sorted([*before, "timer-hour"])
    assert timers.skipped == 0


async def test_a_message_beyond_apaches_window_comes_on_its_day(apache: Any) -> None:
    apache.clock.skip(85_000)  # nobody needs to watch every second of two and a half days
    await apache.clock.advance(2000)
    assert "timer-days" not in keys_in(apache, "TopicTimer")
    apache.clock.skip(1_794_984_880 - apache.clock.monotonic())
    await apache.clock.advance(10)
    assert keys_in(apache, "TopicTimer").count("timer-days") == 1


async def test_its_open_transaction_is_asked_about_and_decided_once(apache: Any) -> None:
    asked: list[Any] = []
    producer = apache.connect()
    producer.remoting.on_request(RequestCode.CHECK_TRANSACTION_STATE, lambda call: asked.append(call.command))
    await producer.heartbeat("producer", producer="GroupTransaction")
    before = keys_in(apache, "TopicTransaction")
    await apache.broker.services.transaction_checks.round()
    await apache.eventually(lambda: asked)
    (question,) = asked
    assert question.ext["tranStateTableOffset"] == "37"
    header = {
        "producerGroup": "GroupTransaction",
        "tranStateTableOffset": question.ext["tranStateTableOffset"],
        "commitLogOffset": question.ext["commitLogOffset"],
        "commitOrRollback": 8,
        "fromTransactionCheck": True,
        "msgId": question.ext["msgId"],
    }
    for _ in range(2):
        answer = await producer.ask(RequestCode.END_TRANSACTION, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert keys_in(apache, "TopicTransaction") == sorted([*before, "pending"])


async def test_what_apache_ended_stays_ended(apache: Any) -> None:
    before = keys_in(apache, "TopicTransaction")
    header = {
        "producerGroup": "GroupTransaction",
        "tranStateTableOffset": 0,
        "commitLogOffset": 119_833,
        "commitOrRollback": 8,
        "msgId": "C0000202780D4E0E2F2A4C27A8BA0036",
    }
    answer = await apache.client.ask(RequestCode.END_TRANSACTION, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "ended before" in (answer.remark or "")
    assert keys_in(apache, "TopicTransaction") == before
    assert apache.broker.services.transactions.repeated == 1


async def test_messages_in_flight_whose_acks_wait_in_apaches_timer_do_not_come_back(apache: Any) -> None:
    """Apache's broker had delivered the check points of a pop, and not yet their acks, which came a second later."""
    revive, store = apache.broker.services.pop_revive, apache.broker.store
    before = keys_in(apache, "%RETRY%GroupPopPush_TopicPopPush")
    assert 6 == revive.table.in_flight
    await apache.clock.advance(10)
    assert 0 == revive.table.in_flight
    assert before == keys_in(apache, "%RETRY%GroupPopPush_TopicPopPush")
    assert 0 == sum(queue.unreadable for queue in revive.log.queues)
    assert 6 == store.max_offset(revive.log.topic, 2) - 5  # the acks, and nothing that was taken back

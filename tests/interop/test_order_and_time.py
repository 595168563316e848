"""Order under coming, leaving and dying members; delays and retries to the millisecond, beside Apache's.

ARROWMQ_SOAK=1 plays the long form: a hundred thousand messages for each key.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from oracle import hands
from oracle.hand import HandOf
from oracle.order import assert_one_order, by_key
from oracle.raw import Asking
from oracle.scene import SOAK, Record, Scene
from oracle.target import CONFIG, Target

from arrowmq.wire.records import Record as Stored

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# Keys and messages for each key, by client. A killed member's queues stay locked for a minute, and the Go client looks
# for new owners only every twenty seconds.
SIZES = {"java-5.5-json": (4, 100_000), "go": (4, 100_000)} if SOAK else {"java-5.5-json": (16, 6_250)}


@pytest.mark.parametrize("flavour", SIZES)
def test_order_is_kept_per_key_while_members_come_leave_and_die(
    flavour: str, hand_of: HandOf, another_hand: HandOf, scene: Scene, tmp_path: Path
) -> None:
    """Every member writes down what it consumes and when; all of it together, by time, has every key in order."""
    keys, count = SIZES[flavour]
    hand, topic, group = hand_of(flavour), scene.topic(queues=4), scene.name("g")
    journals = [tmp_path / name for name in ("who stays", "who leaves", "who is killed")]

    def member(using: Any, journal: Path) -> Any:
        return scene.listener(using, topic, group, orderly=True, brief=True, batch=8, journal=str(journal))

    producer = scene.producer(hand)
    flooding: Future[Record] = hand.begin(
        "flood", producer=producer.name, topic=topic, keys=keys, count=count, threads=8
    )
    staying = member(hand, journals[0])
    assert staying.saw(keys * count // 20)
    leaving, doomed_hand = member(hand, journals[1]), another_hand(flavour)
    assert leaving.saw(keys * count // 100, 90), "the second member got nothing"
    doomed = member(doomed_hand, journals[2])
    leaving.stop()
    assert doomed.saw(keys * count // 100, 90), "the third member got nothing"
    doomed_hand.kill()
    assert flooding.result(400)["sent"] == keys * count
    wanted = {f"k{key}": set(range(count)) for key in range(keys)}
    deadline = time.monotonic() + 200
    while (found := _numbers(journals)) != wanted and time.monotonic() < deadline:
        staying.saw(len(journals[0].read_text().splitlines()) + 1, 2)
    assert found == wanted
    assert_one_order(journals)


def _numbers(journals: list[Path]) -> dict[str, set[int]]:
    lines = [line for journal in journals for line in journal.read_text().splitlines()]
    return {key: set(numbers) for key, numbers in by_key(lines).items()}


LEVELS = range(1, 19)
PENDING = 1_000
ON_TIME_MS = 200


def test_a_thousand_pending_delays_in_each_of_eighteen_levels_come_on_time(target_kind: str, tmp_path: Path) -> None:
    """Each is due so many seconds after the broker stored it, and is in its topic no later than 200 ms after that."""
    levels = " ".join(f"{level}s" for level in LEVELS)
    with (
        Target(target_kind, tmp_path / "target", **CONFIG, messageDelayLevel=levels) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(hand, "delays") as scene,
    ):
        topic = scene.topic(queues=4)
        listener, producer = scene.listener(hand, topic, brief=True), scene.producer(hand)
        for level in reversed(LEVELS):  # the longest first, so that all wait at the same time
            sent = [{"key": f"{level}-{i}", "body": f"{level}-{i}", "delay": level} for i in range(PENDING)]
            receipts = producer.send(topic, sent, "async")
            assert {"SEND_OK"} == {receipt.get("status") for receipt in receipts}
        wanted = {f"{level}-{i}" for level in LEVELS for i in range(PENDING)}
        seen = listener.seen(len(wanted), LEVELS[-1] + 60)
        assert wanted == {line.partition("@")[0] for line in seen}
        assert len(wanted) == len(seen)
        late = asyncio.run(_lateness(target.broker, topic))
    assert len(wanted) == len(late)
    assert min(late) >= 0, f"{-min(late)} ms too early"
    assert max(late) <= ON_TIME_MS, f"milliseconds after they were due, the latest: {sorted(late)[-50:]}"


async def _lateness(broker: str, topic: str) -> list[int]:
    async with Asking(broker) as asking:
        waiting: dict[str, int] = {}
        for level in LEVELS:
            for record in await asking.contents("SCHEDULE_TOPIC_XXXX", level - 1):
                waiting[record.properties["UNIQ_KEY"]] = record.store_timestamp + 1000 * level
        delivered = [record for queue in range(4) for record in await asking.contents(topic, queue)]
    return [record.store_timestamp - waiting[record.properties["UNIQ_KEY"]] for record in delivered]


RETRY_SECONDS = [1 + step % 2 for step in range(16)]  # of the retries, which begin at the third level
RETRY_LEVELS = "9s 9s " + " ".join(f"{seconds}s" for seconds in RETRY_SECONDS)
# These name the broker, the moment or the run.
OF_THE_RUN = {"ORIGIN_MESSAGE_ID", "UNIQ_KEY", "DLQ_ORIGIN_MESSAGE_ID", "CLUSTER", "REAL_TOPIC", "CONSUME_START_TIME"}


def test_retries_are_as_many_and_as_far_apart_as_with_apache_and_end_in_the_same_dead_letter(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        ours, apache = both.map(lambda kind: _all_retries(kind, tmp_path / kind), ("arrowmq", "apache"))
    for told in (ours, apache):
        assert list(range(17)) == [seen["times"] for seen in told["seen"]]
        gaps = [later["stored"] - sooner["at"] for sooner, later in zip(told["seen"], told["seen"][1:], strict=False)]
        for gap_ms, wanted_s in zip(gaps, RETRY_SECONDS, strict=True):
            assert -50 <= gap_ms - 1000 * wanted_s <= 1000, f"{gaps}"
    for mine, theirs in zip(ours["seen"], apache["seen"], strict=True):
        assert _of_the_message(mine["props"]) == _of_the_message(theirs["props"])
    assert len(ours["dead"]) == len(apache["dead"]) == 1
    mine, theirs = ours["dead"][0], apache["dead"][0]
    assert mine.body == theirs.body
    assert mine.reconsume_times == theirs.reconsume_times
    assert _of_the_message(mine.properties) == _of_the_message(theirs.properties)


def _of_the_message(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in OF_THE_RUN}


def _all_retries(kind: str, folder: Path) -> dict[str, Any]:
    """A message that always fails, with the default limit of sixteen retries."""
    with (
        Target(kind, folder / "target", **CONFIG, messageDelayLevel=RETRY_LEVELS) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, folder / "hand") as hand,
        Scene(hand, "retries") as scene,
    ):
        topic, group = "retried", "retrying"
        hand.do("create-topic", topic=topic, queues=1)
        scene.producer(hand).send(topic, [{"key": "bad", "tag": "T", "body": "x", "props": {"why": "kept"}}])
        seen = scene.listener(hand, topic, group, fail={"bad": -1}).seen(17, 120)
        dead = asyncio.run(_dead_letters(target.broker, group))
    return {"seen": seen, "dead": dead}


async def _dead_letters(broker: str, group: str) -> list[Stored]:
    async with Asking(broker) as asking:
        while not (dead := await asking.contents(f"%DLQ%{group}", 0)):
            pass  # every question is a way to the broker and back
        return dead

"""The broker is killed (-9) in the middle of the work and started again: at least once, in order, decided once.

The moments come from a seed; ARROWMQ_SEEDS says with how many seeds each scene is played. The same for every other
kind of message, with our own client and many more kills: `tests/chaos`.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from oracle import hands
from oracle.order import by_key
from oracle.scene import SOAK, Record, Scene
from oracle.target import Target

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE_S = 90
KILLS = 3
SEEDS = range(1, 1 + int(os.environ.get("ARROWMQ_SEEDS", "1")))
CONFIG = {"transactionTimeOut": 3000, "transactionCheckInterval": 3000}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flavour", ["java-5.5-json", "go"] if SOAK else ["java-5.5-json"])
def test_nothing_acknowledged_is_lost_and_order_holds_over_crashes(
    flavour: str, seed: int, target_kind: str, tmp_path: Path
) -> None:
    keys, count, chance = 8, 1_000, random.Random(seed)
    with (
        Target(target_kind, tmp_path / "target", **CONFIG) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as admin,
        hands.start(flavour, target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(admin, "crash_order") as scene,
    ):
        topic, producer = scene.topic(queues=4), scene.producer(hand, timeout=2000)
        listener = scene.listener(hand, topic, orderly=True, brief=True)
        flooding = hand.begin("flood", producer=producer.name, topic=topic, keys=keys, count=count, threads=4)
        for place in sorted(chance.sample(range(1, keys * count - 1_000), KILLS)):
            listener.saw(place)
            target.crash()
        assert flooding.result(200)["sent"] == keys * count
        wanted = {f"k{key}:{number}" for key in range(keys) for number in range(count)}
        seen, deadline = listener.seen(), time.monotonic() + PATIENCE_S
        while not wanted <= {record.partition("@")[0] for record in seen} and time.monotonic() < deadline:
            seen = listener.seen(len(seen) + 1, 5)
    assert wanted == {record.partition("@")[0] for record in seen}
    for key, numbers in by_key(seen).items():
        highest = -1
        for number in numbers:
            assert number <= highest + 1, f"{key}: {number} came before {highest + 1}"
            highest = max(highest, number)


@pytest.mark.parametrize("seed", SEEDS)
def test_delays_retries_and_transactions_survive_crashes(seed: int, target_kind: str, tmp_path: Path) -> None:
    """What a send said yes to comes, once it is due, committed or tried again; what was rolled back never does."""
    chance = random.Random(seed)
    with (
        Target(target_kind, tmp_path / "target", **CONFIG) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(hand, "crash_kinds") as scene,
    ):
        topic, group = scene.topic(), scene.name("tx")
        producer = scene.producer(hand, timeout=2000)
        transactional = scene.producer(hand, group=group, transactional=True, timeout=2000)
        delayed = [{"key": f"d{i}", "body": f"delayed {i}", "delay": 3} for i in range(300)]
        retried = [{"key": f"r{i}", "body": f"retried {i}"} for i in range(60)]
        fates = {"commit": ("commit", "commit"), "rollback": ("rollback", "rollback"), "late": ("unknown", "commit")}
        decided = [
            {"key": f"{name}{i}", "body": f"{name} {i}", "props": {"fate": fate, "check": check}}
            for i in range(30)
            for name, (fate, check) in fates.items()
        ]
        listener = scene.listener(hand, topic, fail={message["key"]: 1 for message in retried}, failDelay=2)
        working: dict[str, tuple[list[Record], Future[Any]]] = {
            "delayed": (delayed, hand.begin("send", producer=producer.name, topic=topic, messages=delayed)),
            "retried": (retried, hand.begin("send", producer=producer.name, topic=topic, messages=retried)),
            "decided": (decided, hand.begin("transact", producer=transactional.name, topic=topic, messages=decided)),
        }
        for _ in range(KILLS):
            wait([future for _, future in working.values()], timeout=0.1 + 1.5 * chance.random())
            target.crash()
        acknowledged = {
            message["body"]
            for messages, future in working.values()
            for message, receipt in zip(messages, future.result(200), strict=True)
            if receipt.get("status") == "SEND_OK"
        }
        wanted = {body for body in acknowledged if not body.startswith("rollback")}
        again = {body for body in acknowledged if body.startswith("retried")}
        assert {body.split()[0] for body in wanted} == {"delayed", "retried", "commit", "late"}
        seen, deadline = listener.seen(), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if wanted <= {record["body"] for record in seen} and again <= {r["body"] for r in seen if r["times"] > 0}:
                break
            seen = listener.seen(len(seen) + 1, 3)
        bodies = {record["body"] for record in seen}
    assert wanted <= bodies
    assert again <= {record["body"] for record in seen if record["times"] > 0}
    assert not [body for body in bodies if body.startswith("rollback")]

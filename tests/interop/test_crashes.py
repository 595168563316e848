"""The broker is killed (-9) in the middle of the work and started again: at least once, in order, decided once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from oracle import hands
from oracle.order import by_key
from oracle.scene import Scene
from oracle.target import Target

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE_S = 90
CONFIG = {"transactionTimeOut": 3000, "transactionCheckInterval": 3000}


def test_nothing_acknowledged_is_lost_and_order_holds_over_two_crashes(target_kind: str, tmp_path: Path) -> None:
    keys, count = 8, 1_500
    with (
        Target(target_kind, tmp_path / "target", **CONFIG) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(hand, "crash_order") as scene,
    ):
        topic, producer = scene.topic(queues=4), scene.producer(hand, timeout=2000)
        listener = scene.listener(hand, topic, orderly=True, brief=True)
        flooding = hand.begin("flood", producer=producer.name, topic=topic, keys=keys, count=count, threads=4)
        for part in (1_000, 4_000):
            listener.seen(part, 60)
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


def test_delays_retries_and_transactions_survive_a_crash(target_kind: str, tmp_path: Path) -> None:
    with (
        Target(target_kind, tmp_path / "target", **CONFIG) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(hand, "crash_kinds") as scene,
    ):
        topic, group = scene.topic(), scene.name("tx")
        producer = scene.producer(hand)
        transactional = scene.producer(hand, group=group, transactional=True)
        delayed = [{"key": f"d{i}", "body": f"delayed {i}", "delay": 3} for i in range(50)]
        producer.send(topic, delayed)
        fates = {"commit": ("commit", "commit"), "rollback": ("rollback", "rollback"), "late": ("unknown", "commit")}
        sent = [
            {"key": f"{name}{i}", "body": f"{name} {i}", "props": {"fate": fate, "check": check}}
            for name, (fate, check) in fates.items()
            for i in range(5)
        ]
        hand.do("transact", producer=transactional.name, topic=topic, messages=sent)
        listener = scene.listener(hand, topic, fail={"retried": 1}, failDelay=2)
        producer.send(topic, [{"key": "retried", "body": "retried"}])
        listener.seen(6)
        target.crash()
        wanted = {f"delayed {i}" for i in range(50)} | {f"{name} {i}" for name in ("commit", "late") for i in range(5)}
        seen, deadline = listener.seen(), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            times = [record["times"] for record in seen if record["key"] == "retried"]
            if wanted <= {record["body"] for record in seen} and max(times, default=0) >= 1:
                break
            seen = listener.seen(len(seen) + 1, 3)
        bodies = {record["body"] for record in seen}
    assert wanted | {"retried"} == bodies
    assert not [body for body in bodies if body.startswith("rollback")]

"""The same random operations against Apache's broker and ours, and what both then hold, queue by queue and in files.

Sends, batches, ordered sends, delays, timers, transactions, messages sent back, committed and reset offsets, groups and
topics made, changed and deleted, consuming, pulls and queries, and what must be refused: `oracle/player.py`.
ARROWMQ_SEEDS says with how many seeds it is played, ARROWMQ_SEED with which one.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from oracle.player import CHANGING, FIXED, GROUPS, WEIGHTS, Player
from oracle.target import CONFIG, Target

from arrowmq.wire import fastjson

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

OPERATIONS = 2_000
FIRST_SEED = int(os.environ.get("ARROWMQ_SEED", "20260731"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("ARROWMQ_SEEDS", "1")))
SETTINGS = {**CONFIG, "transactionCheckInterval": 3_600_000, "recallMessageEnable": True}


async def _played(address: str, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    player = Player(address, seed)
    try:
        await player.play(OPERATIONS)
        await player.settle()
        return await player.observe(), dict(player.done)
    finally:
        await player.close()


def _files(store: Path) -> dict[str, Any]:
    """What a stopped broker leaves beside the log, of our own topics and groups."""

    def read(name: str) -> Any:
        return _without_nulls(fastjson.loads((store / "config" / name).read_bytes()))

    topics = {
        name: each for name, each in read("topics.json")["topicConfigTable"].items() if name in [*FIXED, *CHANGING]
    }
    groups = read("subscriptionGroup.json")["subscriptionGroupTable"]
    ours = {name: each for name, each in groups.items() if name.startswith("group-")}
    offsets = {
        key: {int(queue_id): offset for queue_id, offset in queues.items()}
        for key, queues in read("consumerOffset.json")["offsetTable"].items()
        if key.partition("@")[2] in GROUPS
    }
    delays = {int(level): offset for level, offset in read("delayOffset.json")["offsetTable"].items()}
    return {"topics": topics, "groups": ours, "offsets": offsets, "delays": delays}


def _without_nulls(value: Any) -> Any:
    """Apache's broker leaves out what is null, and reads both."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return value


def _everything(kind: str, folder: Path, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    with Target(kind, folder, **SETTINGS) as target:
        held, done = asyncio.run(_played(target.broker, seed))
    return held | {f"file of {name}": content for name, content in _files(target.store).items()}, done


@pytest.mark.parametrize("seed", SEEDS)
def test_both_brokers_answer_and_hold_the_same_after_the_same_operations(seed: int, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        played = both.map(lambda kind: _everything(kind, tmp_path / kind, seed), ("apache", "arrowmq"))
        (expected, done), (actual, _) = played
    assert set(done) == set(WEIGHTS)
    assert sum(done.values()) == OPERATIONS
    different = [what for what in {**expected, **actual} if expected.get(what) != actual.get(what)]
    for what in different[:20]:
        print(f"--- {what}\n  apache {expected.get(what)}\n  ours   {actual.get(what)}")
    assert not different, f"seed {seed}: {len(different)} of {len(expected)} differ, the first: {different[:20]}"

"""Goal: the crash machine in its short form; `make chaos` is the long one, also for Apache's broker."""

from __future__ import annotations

import random
from pathlib import Path

from crash_machine import SETTINGS, Crashes
from oracle.target import Target


async def test_nothing_acknowledged_is_lost_by_kills_and_stops(tmp_path: Path) -> None:
    with Target("arrowmq", tmp_path, **{**SETTINGS, "flushDiskType": "SYNC_FLUSH"}) as target:
        verdict = await Crashes(target, random.Random(5)).play(2, ["kill", "stop"])
    assert verdict["acknowledged"]
    assert (0, "") == (verdict["lost"], verdict["fault"])
    wrong = ("delayed lost", "delayed twice", "committed lost", "rolled back there", "committed twice")
    assert dict.fromkeys(wrong, 0) == {name: verdict[name] for name in wrong}

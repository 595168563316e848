"""Goal: the crash machine in its short form; `make chaos` is the long one, also for Apache's brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_clusters import CLUSTERS, SmallDisk
from crash_machine import CrashMachine

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("cluster", "flush", "faults", "seed"), [("one", "ASYNC_FLUSH", 5, 5), ("pair", "SYNC_FLUSH", 2, 1)]
)
async def test_nothing_that_was_answered_is_lost(
    tmp_path: Path, cluster: str, flush: str, faults: int, seed: int
) -> None:
    small_disk = cluster == "one" and SmallDisk.can_be_made()
    harms = ["kill"] if cluster == "pair" else None
    with CLUSTERS[cluster]("arrowmq", tmp_path, {"flushDiskType": flush}, small_disk=small_disk) as made:
        verdict = await CrashMachine(made, seed).play(faults, harms)
    for kind in ("acknowledged", "delayed", "decided", "timers", "popped", "resets", "topics deleted"):
        assert verdict[kind], kind
    assert ([], "") == (verdict["broken"], verdict["fault"]), verdict

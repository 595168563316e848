"""Goal: whatever happens to machines and network, what was acknowledged is kept, in order, and delivered.

ARROWMQ_SIMULATIONS=2000 plays so many seeds instead of a few, ARROWMQ_SEED is the first; the long form is `make sim`. A
failure names its seed, and the seed plays the same again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plays import trouble
from simulation import Simulation

from arrowmq.store.errors import StoreDamaged
from arrowmq.store.integrity.recovery import Recovery
from arrowmq.store.positions import APPENDED

FIRST = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ARROWMQ_SIMULATIONS", "4")))

ASYNC = {"broker-a": {"flushDiskType": "ASYNC_FLUSH"}, "broker-b": {"flushDiskType": "ASYNC_FLUSH"}}
SYNC = {"broker-a": {"flushDiskType": "SYNC_FLUSH"}, "broker-b": {"flushDiskType": "SYNC_FLUSH"}}


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_brokers_keep_what_they_acknowledged(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(trouble(simulation, ASYNC, ("kill", "stop", "part", "clock")))
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_with_sync_flush_keep_it_over_power_cuts(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(trouble(simulation, SYNC, ("kill", "power", "stop", "part", "clock")))
    assert auditor.acknowledged


def test_a_seed_plays_the_same_again(tmp_path: Path) -> None:
    digests = set()
    for attempt in ("first", "again"):
        with Simulation(FIRST, tmp_path / attempt) as simulation:
            simulation.run(trouble(simulation, SYNC, ("kill", "power", "part")))
            digests.add((simulation.digest, simulation.network.sent, simulation.loop.time()))
    assert len(digests) == 1


def _answers_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulated_disk.PowerCutDisk.force", lambda disk, path: None)


def _promises_less_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.message_store.FLUSHED", APPENDED)


def _forgets_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens a store that was not closed as if its last segment held nothing."""
    monkeypatch.setattr("arrowmq.store.integrity.recovery.Recovery.run", _emptied(Recovery.run))


def _emptied(run: Callable[..., Any]) -> Callable[..., Any]:
    def emptied(recovery: Recovery, *, was_clean: bool) -> Any:
        if not was_clean:
            for file in sorted(recovery._log.folder.iterdir())[-1:]:
                file.write_bytes(bytes(file.stat().st_size))
        return run(recovery, was_clean=was_clean)

    return emptied


@pytest.mark.parametrize("broken", [_answers_before_the_disk, _promises_less_than_it_says, _forgets_the_end_of_the_log])
def test_a_broken_build_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A test of the test: each of these loses acknowledged messages, and the auditor says so within some seeds."""
    broken(monkeypatch)
    with pytest.raises((AssertionError, StoreDamaged)):  # messages are missing, or the store refuses to open
        _play_many(tmp_path)


def _play_many(folder: Path) -> None:
    for seed in range(1, 40):
        test_brokers_with_sync_flush_keep_it_over_power_cuts(seed, folder / str(seed))

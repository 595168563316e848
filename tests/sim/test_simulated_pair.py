"""Goal: what a SYNC_MASTER with inSyncReplicas=2 acknowledged is at its slave, whatever happens to both of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from simulated_pairs import come_together_again, lose_the_master
from simulation import Simulation

FIRST = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ARROWMQ_SIMULATIONS", "4")))
ASYNC_FLUSH, SYNC_FLUSH = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slave_has_what_a_killed_master_acknowledged(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(lose_the_master(simulation, ASYNC_FLUSH, ("kill", "stop", "part")))
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slave_has_it_over_power_cuts_of_both_with_sync_flush(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(lose_the_master(simulation, SYNC_FLUSH, ("kill", "power", "stop", "part")))
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_logs_are_the_same_once_everybody_is_back(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(come_together_again(simulation, SYNC_FLUSH, ("kill", "power", "stop", "part")))
    assert auditor.acknowledged


def _acknowledges_before_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that says it has what it was merely told of."""
    monkeypatch.setattr("arrowmq.replica.follower.Copying._report", _says_what_the_master_has)


def _says_what_the_master_has(copying: object) -> None:
    copying._say(copying._copy.end + 4096)  # type: ignore[attr-defined]


def _does_not_wait_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.positions.Positions.replicated", lambda positions, replicas: 1 << 60)


@pytest.mark.parametrize("broken", [_acknowledges_before_it_wrote, _does_not_wait_for_replicas])
def test_a_broken_build_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    assert callable(broken)
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        _play_many(tmp_path)


def _play_many(folder: Path) -> None:
    for seed in range(1, 40):
        test_the_slave_has_it_over_power_cuts_of_both_with_sync_flush(seed, folder / str(seed))

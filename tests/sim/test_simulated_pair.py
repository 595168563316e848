"""Goal: what a SYNC_MASTER with inSyncReplicas=2 acknowledged is at its slave, whatever happens to both of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_pairs import come_together_again, lose_the_master
from simulation import Simulation

from arrowmq.replica.follower import Copying
from arrowmq.store.errors import StoreDamaged

FIRST = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ARROWMQ_SIMULATIONS", "3")))
ASYNC_FLUSH, SYNC_FLUSH = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slave_has_what_a_killed_master_acknowledged(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(lose_the_master(simulation, ASYNC_FLUSH, ("kill", "twice", "alone", "stop", "part")))
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slave_has_it_over_power_cuts_of_both_with_sync_flush(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(
            lose_the_master(simulation, SYNC_FLUSH, ("kill", "twice", "alone", "power", "blackout", "stop", "part"))
        )
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_logs_are_the_same_once_everybody_is_back(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(come_together_again(simulation, SYNC_FLUSH, ("kill", "power", "stop", "part")))
    assert auditor.acknowledged


def _acknowledges_before_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that says it has what is not on its disk yet."""
    monkeypatch.setattr("arrowmq.replica.follower.Copying._report", _says_what_it_got)


def _says_what_it_got(copying: Copying) -> None:
    copying._say(int(copying._copy.end))


def _does_not_wait_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.positions.Positions.replicated", lambda positions, replicas: 1 << 60)


def _promises_when_its_role_is_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was once: whoever came back sooner than that was answered without a replica."""
    monkeypatch.setattr("arrowmq.replica.feeds.Feeds.promise_replicas", lambda feeds: None)


BROKEN = [
    (_acknowledges_before_it_wrote, ("blackout",)),
    (_does_not_wait_for_replicas, ("alone",)),
    (_promises_when_its_role_is_taken_up, ("twice",)),
]


@pytest.mark.parametrize(("broken", "faults"), BROKEN)
def test_a_broken_build_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    faults: tuple[str, ...],
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, StoreDamaged)):  # messages are missing, or the store refuses to open
        _play_many(tmp_path, faults)


def _play_many(folder: Path, faults: tuple[str, ...]) -> None:
    for seed in range(1, 40):
        with Simulation(seed, folder / str(seed)) as simulation:
            simulation.run(lose_the_master(simulation, SYNC_FLUSH, faults))

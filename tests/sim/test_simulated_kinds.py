"""Goal: pops, transactions, delays and timers keep what was promised of them over kills, partitions and power cuts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kinds import kinds_in_trouble
from simulation import Simulation

FIRST = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ARROWMQ_SIMULATIONS", "2")))
ASYNC_FLUSH, SYNC_FLUSH = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_kept_by_killed_brokers(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        audit = simulation.run(kinds_in_trouble(simulation, ASYNC_FLUSH, ("kill", "stop", "part")))
    assert audit.acked
    assert audit.delayed


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_kept_over_power_cuts_with_sync_flush(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        audit = simulation.run(kinds_in_trouble(simulation, SYNC_FLUSH, ("kill", "power", "stop", "part")))
    assert audit.acked
    assert audit.delayed


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_kept_by_a_master_and_its_slave(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        audit = simulation.run(kinds_in_trouble(simulation, ASYNC_FLUSH, ("kill", "stop", "part"), has_slave=True))
    assert audit.acked
    assert audit.delayed


@pytest.mark.parametrize("has_slave", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_kept_by_brokers_whose_clocks_leap(seed: int, has_slave: bool, tmp_path: Path) -> None:
    faults = ("kill", "stop", "part", "clock", "clock")
    with Simulation(seed, tmp_path) as simulation:
        audit = simulation.run(kinds_in_trouble(simulation, ASYNC_FLUSH, faults, has_slave=has_slave))
    assert simulation.leaps
    assert audit.delayed


def _forgets_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that a popped message is done, and does not write that down."""
    monkeypatch.setattr("arrowmq.broker.pop.acks.AckService._ack", lambda service, *_, is_batch: None)


def _takes_its_queues_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted master reads nothing of its log before a slave is back (a bug that we had)."""
    monkeypatch.setattr("arrowmq.replica.feeds.Feeds.own_log_counts", lambda feeds: None)


BROKEN = [
    (_forgets_acks, test_every_kind_is_kept_by_killed_brokers),
    (_takes_its_queues_for_empty, test_every_kind_is_kept_by_a_master_and_its_slave),
]


@pytest.mark.parametrize(("broken", "play"), BROKEN)
def test_a_broken_build_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    play: Callable[[int, Path], None],
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        _play_many(play, tmp_path)


def _play_many(play: Callable[[int, Path], None], folder: Path) -> None:
    for seed in range(1, 20):
        play(seed, folder / str(seed))

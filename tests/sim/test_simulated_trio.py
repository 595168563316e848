"""Goal: masters change by elections, and what any of them acknowledged stays, over kills, power cuts, partitions and
leaps of clocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_trios import change_masters
from simulation import Simulation

from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.election import Alive

FIRST = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("ARROWMQ_SIMULATIONS", "2")))
ASYNC_FLUSH, SYNC_FLUSH = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}


@pytest.mark.parametrize("seed", SEEDS)
def test_elected_masters_have_what_killed_ones_acknowledged(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        auditor = simulation.run(change_masters(simulation, ASYNC_FLUSH, ("kill", "alone", "stop", "part", "clock")))
    assert auditor.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_elected_masters_have_it_over_power_cuts_with_sync_flush(seed: int, tmp_path: Path) -> None:
    with Simulation(seed, tmp_path) as simulation:
        faults = ("kill", "alone", "power", "stop", "part", "clock")
        auditor = simulation.run(change_masters(simulation, {**SYNC_FLUSH, "minInSyncReplicas": "2"}, faults))
    assert auditor.acknowledged


def _elects_anybody(broker_set: BrokerSet, alive: Alive, **_: object) -> int | None:
    return max(alive, default=None)


def _ignores_who_is_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elects whoever lives."""
    monkeypatch.setattr("arrowmq.controller.decisions.elect", _elects_anybody)


def _goes_on_as_master_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes messages while others may have been elected, and waits for nobody."""
    monkeypatch.setattr("arrowmq.store.positions.Positions.replicated", lambda positions, replicas: 1 << 60)
    monkeypatch.setattr("arrowmq.store.positions.Positions.members_have", lambda positions, end: None)


BROKEN = [
    (_ignores_who_is_in_sync, ("kill", "alone")),
    (_goes_on_as_master_without_a_lease, ("alone",)),
]


@pytest.mark.parametrize(("broken", "faults"), BROKEN)
def test_a_broken_build_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    faults: tuple[str, ...],
) -> None:
    """A test of the test: each of these loses acknowledged messages, or lets logs differ, within some seeds."""
    broken(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        _play_many(tmp_path, faults)


def _play_many(folder: Path, faults: tuple[str, ...]) -> None:
    for seed in range(1, 40):
        with Simulation(seed, folder / str(seed)) as simulation:
            simulation.run(change_masters(simulation, ASYNC_FLUSH, faults))

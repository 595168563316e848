"""Goal: what was acknowledged as on disk survives a loss of power at any moment, whatever pages got there.

ARROWMQ_CUTS=10000 takes that many cuts instead of some hundred; a failure names its seed, and ARROWMQ_FIRST_SEED begins
with it, or with others than those of every run.
"""

from __future__ import annotations

import os
import random
from itertools import count
from pathlib import Path

import pytest
from driving import FOREVER, TINY, Driver
from simulated_disk import PowerCutDisk, UnforcedDisk
from writing import message, opened

from arrowmq.wire.errors import RecordError

CUTS = int(os.environ.get("ARROWMQ_CUTS", "300"))
FIRST_SEED = int(os.environ.get("ARROWMQ_FIRST_SEED", "0"))
CUTS_TO_CATCH = 3000  # at most, until a broken build is caught
STEPS = 120


@pytest.mark.parametrize("troubled", [False, True], ids=["a sound disk", "a disk that fails"])
def test_no_acknowledged_message_is_lost_by_a_power_cut(tmp_path: Path, troubled: bool) -> None:
    take_cuts(tmp_path, CUTS, troubled=troubled)


def take_cuts(tmp_path: Path, cuts: int, *, troubled: bool) -> None:
    taken = refused = 0
    for seed in count(FIRST_SEED):
        driver = Driver(tmp_path / str(seed), seed, troubled=troubled)
        try:
            driver.run(STEPS)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        taken += driver.cuts
        refused += driver.refused
        if taken >= cuts:
            break
    assert taken >= cuts
    assert troubled == (refused > 0)


def test_all_keys_are_found_if_power_is_lost_after_a_clean_stop(tmp_path: Path) -> None:
    """The keys of one record went into two index files, and the name of the second was never forced: after a clean stop
    the first one said that the record was indexed (seed 403)."""
    root = tmp_path / "live"
    root.mkdir()
    disk = PowerCutDisk(root)
    store = opened(root, TINY, disk=disk)
    names = [f"k{number}" for number in range(TINY.max_index_num // 2 + 2)]  # two words each, an odd number a file
    for name in names:
        assert store.put(message(b"x", "orders", 0, keys=name, unique=f"u{name}")).is_ok
    assert len(store.index.files) == 2
    store.close()
    for seed in range(10):
        left = tmp_path / f"cut-{seed}"
        disk.cut(left, random.Random(seed))
        found = opened(left, TINY, disk=UnforcedDisk())
        missing = [name for name in names if not found.query("orders", name, 4, 0, FOREVER)]
        found.close()
        assert not missing, f"seed {seed}"


def _answers_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.log.segment.Segment.force", lambda segment: None)


def _forgets_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.log.commitlog.CommitLog.force_names", lambda log: None)


def _believes_the_log_without_its_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.integrity.recovery.CHECK_BODY_CRC", 0)


def _lets_cut_entries_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulated_disk.PowerCutDisk.force_all", lambda disk, path: None)


BROKEN = [_answers_before_fsync, _forgets_names, _believes_the_log_without_its_checksums, _lets_cut_entries_come_back]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    """A test of the test: each of these would lose acknowledged messages, and the auditor says so."""
    assert callable(broken)
    broken(monkeypatch)
    with pytest.raises((AssertionError, RecordError)):
        take_cuts(tmp_path, CUTS_TO_CATCH, troubled=False)

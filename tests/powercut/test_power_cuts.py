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
from driving import FOREVER, TINY, Driver, read_queue
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


@pytest.mark.parametrize("are_queues_forced", [False, True])
def test_what_a_topic_got_since_it_was_deleted_and_made_anew_is_found(tmp_path: Path, are_queues_forced: bool) -> None:
    """Its queue had the messages of before again, and those that were acknowledged since were not in it."""
    root = tmp_path / "live"
    root.mkdir()
    disk = PowerCutDisk(root)
    store = opened(root, TINY, disk=disk)
    for number in range(5):
        assert store.put(message(b"old %d" % number, "orders", 0)).is_ok
    store.flush()
    if are_queues_forced:
        store._flusher.force_queues()
        store.checkpoint.save()
    store.delete_topic("orders")
    new = [b"new %d" % number for number in range(3)]
    for body in new:
        assert store.put(message(body, "orders", 0)).is_ok
    store.flush()
    for seed in range(10):
        left = tmp_path / f"cut-{seed}"
        disk.cut(left, random.Random(seed))
        found = opened(left, TINY, disk=UnforcedDisk())
        assert new == read_queue(found, "orders", 0), f"seed {seed}"
        found.close()
    store.close()


def test_a_topic_that_was_deleted_stays_deleted(tmp_path: Path) -> None:
    root = tmp_path / "live"
    root.mkdir()
    disk = PowerCutDisk(root)
    store = opened(root, TINY, disk=disk)
    assert store.put(message(b"old", "orders", 0)).is_ok
    store.flush()
    store._flusher.force_queues()
    store.delete_topic("orders")
    for seed in range(10):
        disk.cut(tmp_path / f"cut-{seed}", random.Random(seed))
        assert not (tmp_path / f"cut-{seed}" / "consumequeue" / "orders").exists()
    store.close()


def _answers_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.log.segment.Segment.force", lambda segment: None)


def _forgets_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.log.commitlog.CommitLog.force_names", lambda log: None)


def _believes_the_log_without_its_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.integrity.recovery.CHECK_BODY_CRC", 0)


def _lets_cut_entries_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulated_disk.PowerCutDisk.force_all", lambda disk, path: None)


def _keeps_entries_of_a_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.store.integrity.recovery.RecoverySink.begun_anew", lambda sink, tail, *_: tail)


BROKEN = [
    _answers_before_fsync,
    _forgets_names,
    _believes_the_log_without_its_checksums,
    _lets_cut_entries_come_back,
    _keeps_entries_of_a_deleted_topic,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    """A test of the test: each of these would lose acknowledged messages, and the auditor says so."""
    assert callable(broken)
    broken(monkeypatch)
    with pytest.raises((AssertionError, RecordError)):
        take_cuts(tmp_path, CUTS_TO_CATCH, troubled=False)

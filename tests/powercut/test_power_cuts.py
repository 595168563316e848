"""Goal: what was acknowledged as on disk survives a loss of power at any moment, whatever pages got there.

ARROWMQ_CUTS=10000 takes that many cuts instead of some hundred; a failure names its seed.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from driving import Driver

from arrowmq.wire.errors import RecordError

CUTS = int(os.environ.get("ARROWMQ_CUTS", "300"))
STEPS = 120


def test_no_acknowledged_message_is_lost_by_a_power_cut(tmp_path: Path) -> None:
    taken = 0
    for seed in count():
        driver = Driver(tmp_path / str(seed), seed)
        try:
            driver.run(STEPS)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        taken += driver.cuts
        if taken >= CUTS:
            break
    assert taken >= CUTS


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
        test_no_acknowledged_message_is_lost_by_a_power_cut(tmp_path)

"""The auditor of fail-overs finds what it looks for."""

from __future__ import annotations

import pytest
from oracle.audit import Audit, epoch_at, foreign_writers, longest_gap, silence_ms

from arrowmq.wire.records import Record

pytestmark = pytest.mark.interop

ONE, TWO = (b"\x7f\x00\x00\x01", 1), (b"\x7f\x00\x00\x01", 2)
EPOCHS = [(1, 0), (2, 100)]
MASTERS = {1: ONE, 2: TWO}


def written(offset: int, by: tuple[bytes, int], topic: str = "t", queue_offset: int = 0, body: bytes = b"") -> Record:
    return Record(topic=topic, body=body, physical_offset=offset, store_host=by, queue_offset=queue_offset)


def test_what_was_acknowledged_and_not_delivered_is_lost_and_what_came_too_soon_is_out_of_order() -> None:
    audit = Audit(["k0:0@1@2@0", "k0:1@3@4@1"])
    assert {"k0:1"} == audit.lost(["k0:0"])
    assert set() == audit.lost(["k0:0", "k0:0", "k0:1"])
    assert ["k0:1"] == audit.out_of_order(["k0:1", "k0:0"])
    assert [] == audit.out_of_order(["k0:0", "k0:0", "k0:1", "k0:0"])


def test_a_message_that_lies_elsewhere_than_its_sender_was_told_is_misplaced() -> None:
    log = [written(0, ONE, queue_offset=0, body=b"k0:0"), written(50, ONE, queue_offset=1, body=b"k0:1")]
    assert [] == Audit(["k0:0@1@2@0", "k0:1@3@4@1"]).misplaced(log, "t")
    assert ["k0:0 is not at 1"] == Audit(["k0:0@1@2@1"]).misplaced(log, "t")
    assert 1 == len(Audit([]).misplaced([written(0, ONE, queue_offset=1)], "t"))


def test_who_writes_in_the_epoch_of_another_is_found() -> None:
    assert [] == foreign_writers([written(10, ONE), written(100, TWO)], [], EPOCHS, MASTERS, "t")
    assert 1 == len(foreign_writers([written(10, ONE), written(100, ONE)], [], EPOCHS, MASTERS, "t"))
    assert 1 == len(foreign_writers([written(10, TWO)], [], EPOCHS, MASTERS, "t"))
    assert [] == foreign_writers([written(10, TWO, topic="other")], [], EPOCHS, MASTERS, "t")


def test_a_tail_that_was_cut_was_written_by_the_master_of_its_epoch() -> None:
    assert [] == foreign_writers([], [(100, 1, [written(100, ONE)])], EPOCHS, MASTERS, "t")
    assert 1 == len(foreign_writers([], [(100, 1, [written(100, TWO)])], EPOCHS, MASTERS, "t"))


def test_silences() -> None:
    assert (1, 2, -1) == (epoch_at(EPOCHS, 99), epoch_at(EPOCHS, 100), epoch_at([], 5))
    assert 500 == silence_ms([5, 500, 510], 0)
    assert 0 == silence_ms([5, 10, 15], 0)
    assert (495, 500) == longest_gap([5, 500, 510], 0)
    assert None is silence_ms([5], 10)

"""Goal: a record that a disk has changed is never given out as good, is found before a reader asks, and can be brought
back from a replica."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, bodies, message, numbered, opened

from arrowmq.store import MessageStore
from arrowmq.store.integrity import scrub as scrubbing
from arrowmq.store.integrity.check import StoreCheck
from arrowmq.store.integrity.inspection import StoreView
from arrowmq.store.integrity.repair import repair

COUNT = 120


def flip(store_root: Path, physical: int, inside: int) -> None:
    """One bit of one byte, behind the back of the store; a mapped file shows it at once."""
    files = sorted((store_root / "commitlog").iterdir())
    file = next(file for file in reversed(files) if int(file.name) <= physical)
    with open(file, "r+b") as opened_file:
        opened_file.seek(physical - int(file.name) + inside)
        byte = opened_file.read(1)[0]
        opened_file.seek(-1, 1)
        opened_file.write(bytes([byte ^ 0x10]))


def written(root: Path) -> tuple[MessageStore, list[int]]:
    store = opened(root)
    places = [store.put(numbered(number)).physical_offset for number in range(COUNT)]
    store.flush()
    return store, places


def scrub_all(store: MessageStore) -> None:
    while store.scrub.take_step():
        pass


def test_a_sound_log_is_read_once_and_nothing_is_said(tmp_path: Path) -> None:
    store, _ = written(tmp_path)
    scrub_all(store)
    assert {} == store.scrub.damaged
    assert store.scrub.bytes_read >= store.appended * 9 // 10
    assert COUNT == len(bodies(store))
    store.close()


@pytest.mark.parametrize("step_bytes", [1 << 20, 700])
def test_a_changed_body_is_found_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_bytes: int) -> None:
    monkeypatch.setattr(scrubbing, "STEP_BYTES", step_bytes)
    store, places = written(tmp_path)
    for number in (17, 18, 60):
        flip(tmp_path, places[number], 90)
    scrub_all(store)
    assert {places[17], places[18], places[60]} == set(store.scrub.damaged)
    found = set(bodies(store))
    assert found == {numbered(number).body for number in range(COUNT) if number not in (17, 18, 60)}
    assert store.damaged_records > 0
    store.close()


def test_a_changed_length_costs_one_file_of_the_scrub_and_no_reader(tmp_path: Path) -> None:
    store, places = written(tmp_path)
    flip(tmp_path, places[10], 0)
    scrub_all(store)
    assert [places[10]] == list(store.scrub.damaged)
    store.close()


def test_the_scrub_is_off_unless_it_is_given_a_pace(tmp_path: Path) -> None:
    assert 0 == SMALL.scrub_bytes_per_second
    config = replace(SMALL, scrub_bytes_per_second=1_000_000)
    store = opened(tmp_path, config)
    store.put(message())
    store.flush()
    assert store.scrub._step() > 0
    store.close()


def test_damaged_records_come_back_from_a_replica(tmp_path: Path) -> None:
    store, places = written(tmp_path / "one")
    store.close()
    shutil.copytree(tmp_path / "one", tmp_path / "replica")
    for number in (3, 4, 70):
        flip(tmp_path / "one", places[number], 95)
    replica = opened(tmp_path / "replica")

    def fetch(place: int) -> bytes | None:
        record = replica.record_bytes_at(place)
        return None if record is None else bytes(record)

    result = repair(tmp_path / "one", SMALL, fetch)
    assert (3, []) == (result.records, result.left)
    replica.close()
    for file in (tmp_path / "one" / "commitlog").iterdir():
        assert (tmp_path / "replica" / "commitlog" / file.name).read_bytes() == file.read_bytes()


def test_what_the_replica_has_not_or_damaged_changes_nothing(tmp_path: Path) -> None:
    store, places = written(tmp_path)
    record = bytes(store.record_bytes_at(places[5]) or b"")
    store.close()
    flip(tmp_path, places[5], 92)
    before = sorted(file.read_bytes() for file in (tmp_path / "commitlog").iterdir())
    damaged = bytearray(record)
    damaged[93] ^= 1
    for answer in (None, bytes(damaged), record[:-1], record + record, b"", b"\0" * len(record)):
        result = repair(tmp_path, SMALL, lambda place, answer=answer: answer)  # type: ignore[misc]
        assert (0, 1) == (result.records, len(result.left))
    assert before == sorted(file.read_bytes() for file in (tmp_path / "commitlog").iterdir())


@pytest.mark.parametrize("number", [0, 30])
def test_a_damaged_place_in_its_queue_costs_one_message_when_queues_are_made_anew(tmp_path: Path, number: int) -> None:
    """The queue was filled up to the damaged offset, file after file, without end."""
    store, places = written(tmp_path)
    store.close()
    flip(tmp_path, places[number], 21)  # of its queue offset, 20 to 27
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert {numbered(each).body for each in range(COUNT) if each != number} == set(bodies(store))
    assert COUNT // 3 == store.max_offset("orders", 0)
    store.close()


def test_a_damaged_place_in_its_queue_is_named_by_a_check(tmp_path: Path) -> None:
    """Of a queue's first message it ended the check with an OverflowError."""
    store, places = written(tmp_path)
    store.close()
    flip(tmp_path, places[0], 20)
    report = StoreCheck(StoreView(tmp_path, SMALL)).run()
    assert f"log at {places[0]}" in [problem.where for problem in report.problems]


def test_a_topic_that_was_made_anew_is_checked_as_it_is_now(tmp_path: Path) -> None:
    source = opened(tmp_path)
    for number in range(30):
        assert source.put(numbered(number)).is_ok
    source.delete_topic("orders")
    for number in range(9):
        assert source.put(numbered(number)).is_ok
    source.close()
    assert [] == StoreCheck(StoreView(tmp_path, SMALL)).run().problems

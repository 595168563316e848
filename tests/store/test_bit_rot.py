"""Goal: a record that a disk has changed is never given out as good, is found before a reader asks, and can be brought
back from a replica."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, abandon, bodies, message, numbered, opened

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


# What a start makes of it


def closed(folder: Path) -> list[int]:
    store, places = written(folder)
    store.close()
    return places


def damaged(folder: Path, place: int, data: bytes) -> None:
    segment = place // SMALL.mapped_file_size_commit_log * SMALL.mapped_file_size_commit_log
    with (folder / "commitlog" / f"{segment:020d}").open("r+b") as file:
        file.seek(place - segment)
        file.write(data)


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("number", [0, 20, 49, 50, COUNT - 2, COUNT - 1])
@pytest.mark.parametrize(
    ("at", "data"), [(88, b"\xff"), (0, b"\xff\xff\xff\xff"), (0, bytes(60)), (28, b"\x7f"), (4, b"\0")]
)
def test_a_damaged_record_costs_itself_alone_at_the_next_start(
    tmp_path: Path, was_killed: bool, number: int, at: int, data: bytes
) -> None:
    """All that was acknowledged behind it was cut off and zeroed: one changed bit took up to a whole file."""
    places = closed(tmp_path)
    damaged(tmp_path, places[number] + at, data)
    if was_killed:
        (tmp_path / "abort").touch()
    store = opened(tmp_path)
    assert {numbered(each).body for each in range(COUNT) if each != number} == set(bodies(store))
    if was_killed:
        assert [places[number]] == list(store.scrub.damaged)
    else:  # only the last file is read at such a start: the others when they are asked for
        assert store.damaged_records > 0
    queue = number % 3
    ends = [len(range(queue_id, COUNT, 3)) for queue_id in range(3)]
    assert ends[queue] == store.put(message(b"new", queue_id=queue)).queue_offset
    store.close()


@pytest.mark.parametrize("number", [30, COUNT - 1])
def test_what_a_start_left_damaged_comes_back_from_a_replica(tmp_path: Path, number: int) -> None:
    places = closed(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "replica")
    damaged(tmp_path / "one", places[number], bytes(40))
    opened(tmp_path / "one").close()
    replica = opened(tmp_path / "replica")
    result = repair(tmp_path / "one", SMALL, lambda place: bytes(replica.record_bytes_at(place) or b"") or None)
    assert (1, []) == (result.records, result.left)
    replica.close()
    store = opened(tmp_path / "one")
    assert {} == store.scrub.damaged
    assert COUNT == len(bodies(store))
    store.close()


def test_damage_over_many_records_and_the_end_of_a_file_costs_those(tmp_path: Path) -> None:
    places = closed(tmp_path)
    file_bytes = SMALL.mapped_file_size_commit_log
    first = next(number for number, place in enumerate(places) if place > file_bytes - 3000)
    damaged(tmp_path, places[first], bytes(file_bytes - places[first]))
    (tmp_path / "abort").touch()
    store = opened(tmp_path)
    left = {numbered(number).body for number in range(COUNT) if not places[first] <= places[number] < file_bytes}
    assert left == set(bodies(store))
    store.close()


def test_a_check_names_what_is_damaged_and_nothing_behind_it(tmp_path: Path) -> None:
    places = closed(tmp_path)
    for number in (30, 31, 33, 70):
        damaged(tmp_path, places[number] + 88, b"\xff")
    report = StoreCheck(StoreView(tmp_path, SMALL)).run()
    assert [places[number] for number in (30, 31, 33, 70)] == [start for start, _ in report.holes]
    assert 4 == sum("checksum" in problem.what for problem in report.problems)
    assert 4 == report.problem_count, report.problems
    assert COUNT == report.queue_entries


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_last_message_that_looks_torn_is_kept_if_it_was_whole(tmp_path: Path, was_killed: bool) -> None:
    """Its sender put zeros where a torn record has them. It was cut, under SYNC_FLUSH too; and readers of older files
    left such messages out."""
    store = opened(tmp_path)
    odd = message(b"odd", "odd")
    odd.properties_raw = b"KEYS\x01a\x02odd\0\x02"
    for _ in range(2):
        store.put(odd)
    abandon(store) if was_killed else store.close()
    store = opened(tmp_path)
    store.reader.checked_from = int(store.appended)
    assert [b"odd", b"odd"] == bodies(store, "odd")
    store.close()


def test_a_last_file_that_is_gone_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places = closed(tmp_path)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    last.unlink()
    store = opened(tmp_path)
    assert f"its files end at {int(last.name)}" in caplog.text
    assert {numbered(number).body for number in range(COUNT) if places[number] < int(last.name)} == set(bodies(store))
    store.close()


@pytest.mark.parametrize("at", [88, 0])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_a_killed_process_wrote_is_kept_around_what_is_damaged(tmp_path: Path, number: int, at: int) -> None:
    """None of it was forced, but the machine was up all the time."""
    store, _ = written(tmp_path)
    store.checkpoint.save()
    puts = [store.put(numbered(COUNT + each)) for each in range(3)]
    abandon(store)
    damaged(tmp_path, puts[number].physical_offset + at, b"\xff\xff")
    store = opened(tmp_path)
    assert {numbered(each).body for each in range(COUNT + 3) if each != COUNT + number} == set(bodies(store))
    assert [puts[number].physical_offset] == list(store.scrub.damaged)
    store.close()


def test_after_a_loss_of_power_what_was_not_forced_is_cut_where_it_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a torn record may be some that were there before the log was cut, and nobody was promised more."""
    store, _ = written(tmp_path)
    forced_end = int(store.appended)
    store.checkpoint.save()
    torn, behind = (store.put(numbered(number)) for number in (COUNT, COUNT + 1))
    abandon(store)
    damaged(tmp_path, torn.physical_offset + 95, b"\xff")
    monkeypatch.setattr("arrowmq.store.disk.Disk.boot", lambda disk: 5)
    store = opened(tmp_path)
    assert forced_end == int(store.appended) < behind.physical_offset
    assert {} == store.scrub.damaged
    store.close()


def test_what_a_cut_takes_never_comes_back_as_what_is_behind_damage(tmp_path: Path) -> None:
    """Killed amid the cut, with the log zeroed in part and the queues as they were."""
    store, places = written(tmp_path)
    store.checkpoint.save()
    with pytest.raises(KeyboardInterrupt), store.cutting(places[COUNT - 10]):
        raise KeyboardInterrupt
    abandon(store)
    damaged(tmp_path, places[COUNT - 10], b"\xff" * 100)
    store = opened(tmp_path)
    assert places[COUNT - 10] == int(store.appended)
    assert COUNT - 10 == len(bodies(store))
    store.close()


def test_where_another_broker_wrote_the_log_ends_where_its_bytes_do(tmp_path: Path) -> None:
    """It may have cut the log before that: what it forced since, it said in its own fields of the checkpoint alone."""
    places = closed(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    data[:8] = (int.from_bytes(data[:8], "big") + 1).to_bytes(8, "big")
    checkpoint.write_bytes(data)
    damaged(tmp_path, places[COUNT - 5] + 88, b"\xff")
    store = opened(tmp_path)
    assert places[COUNT - 5] == int(store.appended)
    store.close()


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("number", [0, 5, 30, 59])
@pytest.mark.parametrize("at", range(20))
def test_a_damaged_entry_of_a_queue_costs_no_other_message(
    tmp_path: Path, was_killed: bool, number: int, at: int
) -> None:
    """Of a queue that nobody wrote to lately everything behind the entry was gone, and its offsets were given again."""
    config = replace(SMALL, mapped_file_size_consume_queue=20 * 100)
    store = opened(tmp_path, config)
    for each in range(60):
        store.put(numbered(each, "idle", 1))
    for each in range(200):
        store.put(numbered(each))
    store.close()
    (file,) = (tmp_path / "consumequeue" / "idle" / "0").iterdir()
    data = bytearray(file.read_bytes())
    data[number * 20 + at] ^= 0x84
    file.write_bytes(data)
    if was_killed:
        (tmp_path / "abort").touch()
    store = opened(tmp_path, config)
    found = bodies(store, "idle")
    assert {numbered(each).body for each in range(60) if each != number} <= set(found)
    assert len(found) == 60 or store.damaged_records > 0
    assert 60 == store.put(message(b"new", "idle")).queue_offset
    store.close()

"""Goal: whatever happens to the bytes of a store, opening it raises nothing, and no reader ever gets a wrong body."""

from __future__ import annotations

import importlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from writing import SMALL, message, numbered, opened

from arrowmq.store import MessageStore, StoreConfig
from arrowmq.store.log import _walk_plain as plain
from arrowmq.wire.records import decode_records

COUNT = 130
CHECKED = replace(SMALL, enabled_append_prop_crc=True)
EACH = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Written:
    """A closed store, its log's bytes, and where each record lies."""

    def __init__(self, folder: Path, config: StoreConfig) -> None:
        self.folder = folder
        self.config = config
        store = opened(folder, config)
        self.records: dict[int, bytes] = {}
        for number in range(COUNT):
            put = store.put(numbered(number))
            self.records[put.physical_offset] = bytes(store.record_bytes_at(put.physical_offset) or b"")
        self.end = store.appended
        store.close()
        self.segments = sorted((folder / "commitlog").iterdir())
        assert len(self.segments) == 3

    def copy(self, target: Path, *, crashed: bool) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        if crashed:
            (target / "abort").write_text("1")
        return target


@pytest.fixture(scope="module", params=["plain records", "records with checksum"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    config = CHECKED if request.param == "records with checksum" else SMALL
    return Written(tmp_path_factory.mktemp("written"), config)


def read_all(store: MessageStore) -> dict[int, bytes]:
    """Every record that readers get, from the queues and by its place."""
    found: dict[int, bytes] = {}
    for topic, numbers in store.queues().items():
        for number in numbers:
            offset, largest = store.min_offset(topic, number), store.max_offset(topic, number)
            while offset < largest:
                got = store.get(topic, number, offset, 32)
                body = got.body()
                for record in decode_records(body):
                    found[record.physical_offset] = bytes(body[: record.size])
                    body = body[record.size :]
                offset = max(got.next_offset, offset + 1)
    return found


def open_and_compare(written: Written, folder: Path) -> dict[int, bytes]:
    store = MessageStore(folder, written.config)
    store.open()
    try:
        found = read_all(store)
        for offset, record in found.items():
            assert offset in written.records
            (original,) = decode_records(written.records[offset])
            (read,) = decode_records(record)
            assert original.body == read.body
            if written.config.enabled_append_prop_crc:
                assert written.records[offset] == record
        # The log goes on where it ends, and what is put now is read back.
        put = store.put(message(b"after the damage", "later"))
        assert put.is_ok
        assert b"after the damage" == decode_records(store.get("later", 0, 0, 1).body())[0].body
    finally:
        store.close()
    return found


@EACH
@given(segment=st.integers(0, 2), place=st.integers(0, 16_383), change=st.integers(1, 255), crashed=st.booleans())
def test_one_damaged_byte_of_the_log_never_gives_a_wrong_body(
    written: Written, tmp_path: Path, segment: int, place: int, change: int, crashed: bool
) -> None:
    folder = written.copy(tmp_path / "copy", crashed=crashed)
    path = folder / "commitlog" / written.segments[segment].name
    data = bytearray(path.read_bytes())
    data[place] ^= change
    path.write_bytes(data)
    open_and_compare(written, folder)


@EACH
@given(end=st.integers(0, 3 * 16_384), crashed=st.booleans())
def test_a_log_whose_end_never_reached_the_disk_keeps_every_whole_record_before_it(
    written: Written, tmp_path: Path, end: int, crashed: bool
) -> None:
    folder = written.copy(tmp_path / "copy", crashed=crashed)
    for number, segment in enumerate(written.segments):
        path = folder / "commitlog" / segment.name
        keep = max(0, min(16_384, end - number * 16_384))
        path.write_bytes(path.read_bytes()[:keep].ljust(16_384, b"\0"))
    if crashed:
        (folder / "checkpoint").unlink()
    found = open_and_compare(written, folder)
    if crashed:
        whole = {offset for offset, record in written.records.items() if offset + len(record) <= end}
        assert whole <= set(found) | {max(whole, default=0)}


@EACH
@given(
    where=st.sampled_from(["consumequeue", "index", "checkpoint"]), seed=st.integers(0, 1 << 32), crashed=st.booleans()
)
def test_damaged_queues_indexes_and_checkpoints_never_give_a_wrong_body(
    written: Written, tmp_path: Path, where: str, seed: int, crashed: bool
) -> None:
    folder = written.copy(tmp_path / "copy", crashed=crashed)
    chance = random.Random(seed)
    files = (
        [folder / where] if where == "checkpoint" else [path for path in (folder / where).rglob("*") if path.is_file()]
    )
    path = chance.choice(sorted(files))
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 40)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    store = MessageStore(folder, written.config)
    store.open()
    for offset, record in read_all(store).items():
        assert written.records[offset] == record
    for number in range(0, COUNT, 10):
        for record in store.query("orders", f"k{number}", 32, 0, 1 << 62):
            assert bytes(record) in written.records.values()
    store.close()


def test_with_the_record_checksum_no_damaged_byte_of_a_record_passes(tmp_path: Path) -> None:
    """Every byte of one record, each damaged in turn: nothing of it is ever served."""
    store = opened(tmp_path, CHECKED)
    put = store.put(message(b"body", tag="t", keys="k"))
    record = bytearray(store.record_bytes_at(0) or b"")
    store.close()
    assert put.size == len(record)
    for place in range(len(record)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(record)
            damaged[place] ^= change
            view = memoryview(bytes(damaged).ljust(4096, b"\0"))
            verdict = walk().check_record(view, 0, 4096, 0, plain.CHECK_BODY_CRC | plain.CHECK_RECORD_CRC)
            assert verdict <= 0, (place, change)


def walk() -> Any:
    try:
        return importlib.import_module("arrowmq.store.log._walk_native")
    except ModuleNotFoundError:
        return plain


@EACH
@given(seed=st.integers(0, 1 << 48), changes=st.integers(0, 6), checks=st.integers(0, 3))
def test_twins_agree_on_whole_and_on_damaged_records(written: Written, seed: int, changes: int, checks: int) -> None:
    chance = random.Random(seed)
    number = chance.randrange(3)
    data = bytearray(written.segments[number].read_bytes())
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 255, chance.randrange(256)))
    start = number * 16_384
    view = memoryview(bytes(data))
    end = chance.choice((len(data), chance.randrange(len(data))))
    assert plain.walk(view, 0, end, start, checks) == walk().walk(view, 0, end, start, checks)
    for offset in written.records:
        place = offset - start
        if 0 <= place < end:
            expected = plain.check_record(view, place, end, start, checks)
            assert expected == walk().check_record(view, place, end, start, checks)


@EACH
@given(seed=st.integers(0, 1 << 48), changes=st.integers(0, 8))
def test_twins_agree_on_repairing_an_index(written: Written, seed: int, changes: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(sorted((written.folder / "index").iterdir()))
    data = bytearray(path.read_bytes())
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 255, chance.randrange(256)))
    one, other = bytearray(data), bytearray(data)
    end = chance.choice((1 << 40, written.end, chance.randrange(written.end)))
    expected = plain.repair_index(memoryview(one), 50, 100, end)
    assert expected == walk().repair_index(memoryview(other), 50, 100, end)
    assert one == other

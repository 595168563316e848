"""Goal: a copy of another broker's log is that log, however its bytes are cut on their way."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, bodies, message, numbered, opened

from arrowmq.store import MessageStore
from arrowmq.store.config import StoreConfig
from arrowmq.store.copied_log import CopiedLog, CopyRefused

FILE_BYTES = 4 << 20
LARGE = replace(SMALL, mapped_file_size_commit_log=FILE_BYTES, max_message_size=3 << 20)


def log_of(store: MessageStore) -> bytes:
    return b"".join(bytes(segment.view) for segment in store.commit_log.segments)[: int(store.appended)]


def receive(copy: CopiedLog, data: bytes, most: int) -> None:
    """What a connection brought, from the end of the copy on: as much at a time as the copy takes, no packet over a
    file's end."""
    while data:
        rest = min(len(data), most, FILE_BYTES - int(copy.end) % FILE_BYTES)
        place = copy.place(int(copy.end), rest)
        place[:] = data[: len(place)]
        copy.received(len(place))
        data = data[len(place) :]


def written(folder: Path, config: StoreConfig = LARGE) -> MessageStore:
    """Small messages, and some that no buffer was made for; several files, each with a blank rest."""
    source = opened(folder, config)
    for number in range(1500):
        size = (2 << 20) + number if number % 300 == 7 else 0
        put = source.put(
            numbered(number) if not size else message(b"x" * size, queue_id=number % 3, unique=f"u{number}")
        )
        assert put.is_ok
    return source


@pytest.mark.parametrize("seed", range(4))
def test_bytes_cut_anywhere_make_the_same_log_queues_and_index(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    source, target = written(tmp_path / "source"), opened(tmp_path / "target", LARGE)
    copy, data = CopiedLog(target), log_of(source)
    while int(copy.end) < len(data):
        at = int(copy.end)
        receive(copy, data[at : at + chance.choice((1, 7, 100, 4096, 70_000, 1 << 20, 3 << 20))], 1 << 21)
        if chance.random() < 0.7:
            copy.dispatch()
        if chance.random() < 0.1:
            copy.cut()
    copy.dispatch()
    assert data == log_of(target)
    assert len(data) == copy.dispatched
    assert bodies(source) == bodies(target)
    for key in ("u7", "u1499", "k1498"):
        assert source.query("orders", key, 8, 0, 1 << 60) == target.query("orders", key, 8, 0, 1 << 60)
    source.close()
    target.close()


def test_a_copy_goes_on_from_where_others_cut_it(tmp_path: Path) -> None:
    """As a slave under a controller does whose last records the master does not have."""
    source, target = written(tmp_path / "source"), opened(tmp_path / "target", LARGE)
    copy, data = CopiedLog(target), log_of(source)
    receive(copy, data[:200_000], 1 << 20)
    copy.dispatch()
    whole = copy.dispatched
    receive(copy, data[int(copy.end) : int(copy.end) + 10], 1 << 20)
    target.commit_log.end_at(whole)
    target.positions.cut(whole)
    receive(copy, data[whole:], 1 << 20)
    copy.dispatch()
    assert data == log_of(target)
    assert bodies(source) == bodies(target)
    source.close()
    target.close()


def test_a_body_that_changed_on_its_way_is_refused_and_cut(tmp_path: Path) -> None:
    source, target = written(tmp_path / "source"), opened(tmp_path / "target", LARGE)
    copy, data = CopiedLog(target), bytearray(log_of(source)[:100_000])
    changed = data.index(b"5:") + 4
    data[changed] ^= 1
    receive(copy, bytes(data), 1 << 20)
    with pytest.raises(CopyRefused, match="does not match its checksum"):
        copy.dispatch()
    copy.cut()
    assert copy.dispatched == copy.end < changed
    receive(copy, log_of(source)[int(copy.end) :], 1 << 20)
    copy.dispatch()
    assert bodies(source) == bodies(target)
    source.close()
    target.close()


def test_a_place_in_its_queue_that_cannot_be_is_refused_and_fills_no_disk(tmp_path: Path) -> None:
    """Found by the fuzzers: the slave filled its queue up to the damaged offset, file after file, without end."""
    source, target = written(tmp_path / "source"), opened(tmp_path / "target", LARGE)
    copy, data = CopiedLog(target), bytearray(log_of(source)[:100_000])
    record = source.consume_queues.get("orders", 1).entry(1)
    assert record
    data[record.physical_offset + 22] = 1  # of its queue offset, 20 to 27
    receive(copy, bytes(data), 1 << 20)
    with pytest.raises(CopyRefused, match="its place there is damaged"):
        copy.dispatch()
    copy.cut()
    assert record.physical_offset == copy.dispatched == copy.end
    receive(copy, log_of(source)[int(copy.end) :], 1 << 20)
    copy.dispatch()
    assert bodies(source) == bodies(target)
    source.close()
    target.close()


@pytest.mark.parametrize("said", [-223, -1, 1, 4])
def test_an_offset_that_its_queue_has_already_is_refused_and_takes_nothing_from_it(said: int, tmp_path: Path) -> None:
    """Found by the fuzzers: the slave took it for a topic made anew, and dropped what the queue had."""
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    for number in range(30):
        assert source.put(numbered(number)).is_ok
    copy, data = CopiedLog(target), bytearray(log_of(source))
    record = source.consume_queues.get("orders", 1).entry(6)
    assert record
    data[record.physical_offset + 20 : record.physical_offset + 28] = said.to_bytes(8, "big", signed=True)
    receive(copy, bytes(data), 1 << 20)
    with pytest.raises(CopyRefused, match="its place there is damaged"):
        copy.dispatch()
    copy.cut()
    assert record.physical_offset == copy.dispatched == copy.end
    assert 6 == target.max_offset("orders", 1)
    receive(copy, log_of(source)[int(copy.end) :], 1 << 20)
    copy.dispatch()
    assert bodies(source) == bodies(target)
    source.close()
    target.close()

"""Goal: the native reader and its reference find the same records, those that the long way of a read finds too, and a
reader that is remembered keeps no file that retention deleted."""

from __future__ import annotations

import gc
import importlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from writing import SMALL, message, opened

from arrowmq import native
from arrowmq.filter import TagFilter
from arrowmq.store import MessageStore
from arrowmq.store.append._tail_plain import ENTRY
from arrowmq.store.positions import Marks
from arrowmq.store.read import _reader_plain
from arrowmq.store.read._reader_plain import COLD, FOUND, NOTHING, ODD, Limits
from arrowmq.store.read.reader import Cursor, QueueReader, Reader
from arrowmq.wire.checksum import java_hash

TAGS = ("a", "b", "c")
PAGE = 4096
WIDE = Limits(scan_bytes=16_000, memory_bytes=1 << 40, in_memory=(1 << 18, 32), on_disk=(1 << 16, 8))


def confirmed_at(store: MessageStore, end: int) -> Marks:
    marks = Marks(store.commit_log.tail)
    marks.needs_flush, marks.flushed_end = True, end
    return marks


def readers(store: MessageStore, limits: Limits, marks: Marks | None = None) -> list[Any]:
    """The reference, and the native reader where the store is native."""
    marks = marks or store.positions
    made = [(_reader_plain.QueueReader(store.commit_log, limits, marks), _reader_plain.Cursor)]
    if not native.WANTS_PURE_PYTHON and native.is_native(native.load("arrowmq.store.append._tail")):
        module: Any = importlib.import_module("arrowmq.store.read._reader_native")
        made.append((module.QueueReader(store.commit_log, limits, marks), module.Cursor))
    return made


def test_the_native_reader_is_compared_where_it_is_compiled(tmp_path: Path) -> None:
    store = opened(tmp_path)
    is_there = native.is_native(native.load("arrowmq.store.read._reader"))
    assert (2 if is_there else 1) == len(readers(store, WIDE))
    store.close()


@st.composite
def limits_of_an_answer(draw: st.DrawFn) -> Limits:
    amount = st.tuples(st.integers(1, 6000), st.integers(1, 40))
    return Limits(
        scan_bytes=draw(st.sampled_from([0, 19, 20, 200, 16_000])),
        memory_bytes=draw(st.sampled_from([0, 700, 9000, 1 << 40])),
        in_memory=draw(amount),
        on_disk=draw(amount),
    )


def damage(data: st.DataObject, store: MessageStore) -> None:
    """Entries that point elsewhere, and records whose bytes changed, as a disk may give them back."""
    queue = store.consume_queues.get("orders", 0)
    for _ in range(data.draw(st.integers(0, 2))):
        offset = data.draw(st.integers(queue.first_offset, queue.tail.next_offset - 1))
        segment = queue.segment_at(offset * 20)
        assert segment is not None
        position = offset * 20 - segment.start
        physical, size, code = ENTRY.unpack_from(segment.view, position)
        entry = data.draw(
            st.sampled_from(
                [(0, 0x7FFFFFFF, 0), (physical, 12, code), (-1, size, code), (physical + 1, size, code),
                 (physical, size + 1, code), (1 << 62, size, code), (0, size, code), (physical, size, code + (1 << 32))]
            )
        )  # fmt: skip
        ENTRY.pack_into(segment.view, position, *entry)
    for _ in range(data.draw(st.integers(0, 1))):
        log_segment = data.draw(st.sampled_from(store.commit_log.segments))
        place = data.draw(st.integers(0, min(2000, log_segment.size - 1)))
        log_segment.view[place] ^= data.draw(st.sampled_from([1, 128, 255]))


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_both_readers_find_what_the_long_way_finds(data: st.DataObject) -> None:
    config = replace(SMALL, mapped_file_size_consume_queue=data.draw(st.sampled_from([400, 20_000])))
    with tempfile.TemporaryDirectory() as root:
        store = opened(Path(root), config)
        sizes = data.draw(st.lists(st.integers(0, 900), min_size=1, max_size=70))
        tags = data.draw(st.lists(st.sampled_from(TAGS), min_size=len(sizes), max_size=len(sizes)))
        for number, (size, tag) in enumerate(zip(sizes, tags, strict=True)):
            assert store.put(message(bytes(size), tag=tag, queue_id=0 if number % 3 else number % 2)).is_ok
        assert store.put(message(b"one at least")).is_ok
        if data.draw(st.booleans()):
            damage(data, store)
        for _ in range(data.draw(st.integers(0, len(store.commit_log.segments) - 1))):
            store.commit_log.detach_first().delete()
        ends = [0, store.appended, store.appended // 2, store.appended - 1]
        checked_from, confirmed = data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends[1:]))
        cold_pages = data.draw(st.sets(st.integers(0, 4), max_size=2))
        limits = data.draw(limits_of_an_answer())
        marks = confirmed_at(store, confirmed)
        both = readers(store, limits, marks)
        for reader, _ in both:
            reader.checked_from = checked_from
            reader.residency = lambda view, at, size: cold_pages.isdisjoint(
                range(at // PAGE, (at + size - 1) // PAGE + 1)
            )
        long_way = Reader(store.commit_log, store.consume_queues, config, marks)
        long_way.limits, long_way.records = limits, both[0][0]
        queue = store.consume_queues.get("orders", 0)
        cursors = [make(queue) for _, make in both]
        for _ in range(6):
            offset = data.draw(st.integers(-1, queue.tail.next_offset + 1))
            wanted = data.draw(st.sampled_from([None, ("a",), ("a", "c"), ("none",)]))
            codes = None if wanted is None else frozenset(java_hash(tag) for tag in wanted)
            asked = (offset, data.draw(st.integers(1, 40)), data.draw(st.sampled_from([100, 1000, 1 << 27])), codes)
            found = [reader.find(cursor, *asked) for (reader, _), cursor in zip(both, cursors, strict=True)]
            assert len(set(found)) == 1, found
            event(f"outcome {found[0].outcome}")
            if found[0].outcome != FOUND:
                continue
            got = long_way._get(queue, *asked[:3], None if codes is None else TagFilter.of_codes(codes))
            assert long_way._got(found[0]) == got
            for reader, _ in both:
                assert got.body() == reader.copy(found[0])
            got.release()
        store.close()


def test_each_outcome_is_told_apart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(30):
        store.put(message(b"%d" % number * 100, tag="a"))
    queue = store.consume_queues.get("orders", 0)
    for reader, cursor_of in readers(store, WIDE):
        cursor = cursor_of(queue)
        found = reader.find(cursor, 3, 5, 1 << 20, None)
        assert (FOUND, 0, 30, 8) == found[:4]
        assert 5 == len(found.starts)
        assert NOTHING == reader.find(cursor, 30, 5, 1 << 20, None).outcome
        assert NOTHING == reader.find(cursor, 3, 5, 1 << 20, frozenset({1})).outcome
        assert ODD == reader.find(cursor, 3, 5, 1 << 20, frozenset(range(65))).outcome
        reader.residency = lambda view, position, size: False
        reader.checked_from = store.appended
        assert COLD == reader.find(cursor_of(queue), 3, 5, 1 << 20, None).outcome
        assert not reader.is_in_memory(found.starts[0], 100)
        reader.checked_from = 0
        assert reader.is_in_memory(found.starts[0], 100)
    store.close()


@pytest.mark.parametrize("max_count", [1, 7, 32])
def test_no_record_behind_the_confirmed_end_is_found(tmp_path: Path, max_count: int) -> None:
    store = opened(tmp_path)
    ends = [store.put(message(b"x" * (number * 7 % 50), queue_id=number % 2)).end for number in range(60)]
    queue = store.consume_queues.get("orders", 0)
    marks = confirmed_at(store, 0)
    for reader, cursor_of in readers(store, WIDE, marks):
        cursor = cursor_of(queue)
        for number, end in enumerate(ends):
            for confirmed in (end - 1, end):
                readable = number // 2 + (1 if confirmed == end or number % 2 else 0)
                marks.flushed_end = confirmed
                assert NOTHING == reader.find(cursor, readable, max_count, 1 << 20, None).outcome
                if not readable:
                    continue
                found = reader.find(cursor, readable - 1, max_count, 1 << 20, None)
                assert (FOUND, readable) == (found.outcome, found.max_offset)
                assert all(start + size <= confirmed for start, size in zip(found.starts, found.sizes, strict=True))
    store.close()


@pytest.mark.parametrize("damaged", range(1, 14))
def test_a_damaged_entry_among_the_unconfirmed_shows_none_of_them(tmp_path: Path, damaged: int) -> None:
    """An entry that looks like a filler counts as confirmed, and may mislead who halves the queue to find its end."""
    store = opened(tmp_path, replace(SMALL, mapped_file_size_consume_queue=400))
    ends = [store.put(message(b"")).end for _ in range(14)]
    queue = store.consume_queues.get("orders", 0)
    segment = queue.segment_at(damaged * 20)
    assert segment is not None
    ENTRY.pack_into(segment.view, damaged * 20, 0, 0x7FFFFFFF, 0)
    for confirmed in ends[:-1]:
        marks = confirmed_at(store, confirmed)
        reader = Reader(store.commit_log, store.consume_queues, store.config, marks)
        both = readers(store, WIDE, marks)
        for offset in range(14):
            assert 1 == len({each.find(make(queue), offset, 32, 1 << 20, None) for each, make in both})
            got = reader.get("orders", 0, offset, 32, 1 << 20, None)
            assert got.last_physical_offset < confirmed
            got.release()
    store.close()


def mapped_files(root: Path) -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if str(root) in line}


def test_a_remembered_cursor_keeps_no_file_that_retention_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path, replace(SMALL, commit_log_max_bytes=2 * SMALL.mapped_file_size_commit_log))
    for number in range(100):
        store.put(message(b"%d" % number * 200))
    queue = store.consume_queues.get("orders", 0)
    cursor = Cursor(queue)
    reader: QueueReader = store.records
    first = reader.find(cursor, 0, 8, 1 << 20, None)
    assert FOUND == first.outcome
    assert any(name.endswith("commitlog/" + "0" * 20) for name in mapped_files(tmp_path))
    assert store.retention.run_once() > 0
    gc.collect()
    assert [] == [name for name in mapped_files(tmp_path) if "deleted" in name]
    assert FOUND != reader.find(cursor, 0, 8, 1 << 20, None).outcome
    later = reader.find(cursor, store.min_offset("orders", 0), 8, 1 << 20, None)
    assert FOUND == later.outcome
    with pytest.raises(ValueError, match="one file"):
        reader.copy(first)
    store.close()


def test_a_queue_that_is_unmapped_under_a_cursor_is_mapped_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(30):
        store.put(message(b"%d" % number * 100))
    queue = store.consume_queues.get("orders", 0)
    cursor = Cursor(queue)
    before = store.records.find(cursor, 3, 5, 1 << 20, None)
    queue.unmap()
    gc.collect()
    assert not any("consumequeue" in name for name in mapped_files(tmp_path))
    assert before == store.records.find(cursor, 3, 5, 1 << 20, None)
    store.close()

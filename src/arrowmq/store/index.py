"""The index: from a key to the places in the log where messages with that key lie.

A file is a hash table on disk: slots that hold the newest entry of a chain, and entries that name the one before. The
layout stands in `_tail_plain`. Key equality is not checked here: entries hold hashes, and clients compare keys.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from arrowmq.clock import Clock
from arrowmq.store.append._tail_plain import INDEX_ENTRY, INDEX_HEADER, INT
from arrowmq.store.append.tails import IndexTail, has_index_room, key_hash, put_key, write_index_header
from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreDamaged
from arrowmq.store.log.segment import Segment
from arrowmq.store.log.walk import repair_index

HEADER_BYTES = 40
ALLOCATION_ENTRIES = 16_384  # at once: some 80 pages, 0.1 ms
FIRST_ENTRIES = 204


class IndexFile:
    """One file: named by the local time of its creation, and as large as the settings say from the start."""

    __slots__ = ("entries_at", "max_entries", "segment", "slots")

    def __init__(self, segment: Segment, slots: int, max_entries: int) -> None:
        self.segment = segment
        self.slots = slots
        self.max_entries = max_entries
        self.entries_at = HEADER_BYTES + 4 * slots

    def header(self) -> tuple[int, int, int, int, int, int]:
        """Begin time, end time, begin offset, end offset, used slots, next entry number."""
        fields = INDEX_HEADER.unpack_from(self.segment.view, 0)
        return (*fields[:5], max(1, fields[5]))

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, physical offset, seconds since the begin time, previous entry."""
        return INDEX_ENTRY.unpack_from(self.segment.view, self.entries_at + 20 * number)

    def slot(self, hash_of_key: int) -> int:
        return INT.unpack_from(self.segment.view, HEADER_BYTES + 4 * (hash_of_key % self.slots))[0]  # type: ignore[no-any-return]

    def find(self, hash_of_key: int, max_count: int, begin: int, end: int, found: list[int]) -> None:
        """Follow the key's chain, newest first, and add what lies in the time range until there are `max_count`."""
        begin_timestamp, _, _, _, _, count = self.header()
        number = self.slot(hash_of_key)
        if number <= 0 or number > count or count <= 1 or number >= self.max_entries:
            return
        while len(found) < max_count:
            entry_hash, physical, seconds, previous = self.entry(number)
            if seconds < 0:
                return
            time = begin_timestamp + seconds * 1000
            if entry_hash == hash_of_key and begin <= time <= end:
                found.append(physical)
            if previous <= 0 or previous >= number or time < begin:
                return
            number = previous

    def is_in_range(self, begin: int, end: int) -> bool:
        begin_timestamp, end_timestamp = self.header()[:2]
        return begin <= end_timestamp and end >= begin_timestamp


class Index:
    """All files of the index, with the tail that appends to the newest."""

    def __init__(self, disk: Disk, folder: Path, config: StoreConfig, clock: Clock) -> None:
        self._disk = disk
        self.folder = folder
        self._config = config
        self._clock = clock
        self._next: IndexFile | None = None
        self._first_limit = 0  # entries with blocks in the file created last
        self._has_unforced_names = False
        self.files: list[IndexFile] = []
        self.full: list[tuple[IndexFile, int]] = []  # full files still to be forced, with their end times
        self.tail = IndexTail(self._roll)
        self.tail.enabled = config.message_index_enable

    def load(self, *, writable: bool = True) -> None:
        """Find the files; other names are left alone, as Apache leaves them."""
        paths = self.folder.iterdir() if self.folder.is_dir() else iter(())
        names = sorted(path for path in paths if re.fullmatch(r"[0-9]{17}", path.name) and not path.is_dir())
        size = self._config.index_file_bytes
        empty = next((number for number, path in enumerate(names) if path.stat().st_size == 0), len(names))
        while len(names) > empty:
            # A creation was interrupted, or a power loss came before this file was forced, and those behind it: what
            # they had is in the log.
            path = names.pop()
            if writable:
                self._disk.remove(path)
        for path in names:
            actual = path.stat().st_size
            if actual != size:
                raise StoreDamaged(
                    f"{path} has {actual} bytes, configured are {size} (maxHashSlotNum, maxIndexNum): set what this "
                    "store was written with, or delete the index folder and it is built anew"
                )
        self.files = [self._file(path, writable) for path in names]
        if self.files and writable:
            newest = self.files[-1]
            newest.segment.fetch(newest.entries_at)
            self._attach(newest)

    def _file(self, path: Path, writable: bool = True) -> IndexFile:
        # Slots are touched here and there. Pages that are read ahead also come in large pieces, and of such a piece the
        # kernel looks at every page whenever one is written again: that was a fifth of what a message of a batch cost.
        segment = Segment(self._disk, path, 0, self._config.index_file_bytes, writable=writable, scattered=writable)
        return IndexFile(segment, self._config.max_hash_slot_num, self._config.max_index_num)

    def _attach(self, file: IndexFile) -> None:
        """Append to this file from now on; room is made at the first append."""
        self.tail.attach(file.segment.view, file.slots, file.max_entries, 0)
        if self.tail.count >= file.max_entries:
            self.tail.limit = file.max_entries
        self.tail.next_is_ready = False

    def make_room(self, words: int) -> None:
        """Blocks for so many more entries; raises OutOfSpace and changes nothing if the disk is full."""
        tail = self.tail
        if not self.files:
            self._start(self._create(words), None)
        while not has_index_room(tail, words):
            if tail.limit < tail.max_entries:
                self._allocate(words)
            else:
                self._next = self._create(words)
                tail.next_is_ready = True

    def extend(self, words: int) -> bool:
        """The same in the file in use; False if it has not so many entries left or was not begun."""
        if words and not has_index_room(self.tail, words):
            if not self.files or self.tail.count + words > self.tail.max_entries:
                return False
            self._allocate(words)
        return True

    def _allocate(self, words: int) -> None:
        file, tail = self.files[-1], self.tail
        if tail.limit == 0:  # a file found at opening may have holes anywhere in its slots
            file.segment.allocate(0, file.entries_at)
        limit = min(tail.max_entries, max(tail.limit, tail.count + words) + ALLOCATION_ENTRIES)
        # Written, not only given blocks: touching a page that is not in memory makes the kernel read megabytes ahead.
        self._disk.fill(file.segment.path, file.entries_at + 20 * tail.count, 20 * (limit - tail.count))
        tail.limit = limit

    def _create(self, words: int) -> IndexFile:
        """A new file with blocks for its slots and the entries that are known to come first."""
        self._disk.make_lasting_folder(self.folder)
        now_ms = self._clock.now_ms()
        while True:
            moment = datetime.fromtimestamp(now_ms / 1000)
            path = self.folder / f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
            if not path.exists() and not (self.files and path.name <= self.files[-1].segment.path.name):
                break
            now_ms += 1
        slots_end = HEADER_BYTES + 4 * self._config.max_hash_slot_num
        self._first_limit = min(self._config.max_index_num, 1 + words + FIRST_ENTRIES)
        self._disk.create(path, self._config.index_file_bytes, slots_end + 20 * self._first_limit)
        self._has_unforced_names = True
        file = self._file(path)
        try:
            file.segment.map_now()  # it is begun in the middle of an append
        except BaseException:
            self._disk.remove(path)
            raise
        return file

    def _start(self, file: IndexFile, before: IndexFile | None) -> None:
        if before is not None:
            # Apache gives a new file the end of the full one as its own begin, until its first message comes.
            _, end_timestamp, _, end_physical, _, _ = before.header()
            INDEX_HEADER.pack_into(file.segment.view, 0, end_timestamp, end_timestamp, end_physical, end_physical, 0, 1)
        self.files.append(file)
        self._attach(file)
        self.tail.limit = self._first_limit

    def _roll(self) -> None:
        before = self.files[-1]
        file = self._next or self._create(0)
        self._next = None
        self.full.append((before, before.header()[1]))
        self._start(file, before)

    def restore(self, topic: bytes, words: list[bytes], physical_offset: int, store_timestamp: int) -> None:
        """Index a record read from the log, unless it is indexed already."""
        tail = self.tail
        if not tail.enabled or not words or self._has(physical_offset):
            return
        if not has_index_room(tail, len(words)):
            self.make_room(len(words))
        for word in words:
            put_key(tail, key_hash(topic + b"#" + word), physical_offset, store_timestamp)

    def _has(self, physical_offset: int) -> bool:
        """Records are indexed in log order, so all up to the newest one are."""
        tail = self.tail
        return bool(physical_offset <= tail.end_physical and (tail.count > 1 or tail.end_physical > 0))

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int, after: int = -1) -> list[int]:
        """Physical offsets beyond `after`, newest file first, in the order found."""
        hash_of_key = key_hash(f"{topic}#{key}".encode())
        found: list[int] = []
        for file in reversed(self.files):
            if file.is_in_range(begin, end):
                file.find(hash_of_key, max_count, begin, end, found)
            begin_timestamp, _, begin_physical, *_ = file.header()
            if len(found) >= max_count or begin_timestamp < begin or begin_physical <= after:
                break
        return [offset for offset in found if offset > after]

    @property
    def indexed_end(self) -> int:
        """Records that start at or before this place are indexed; -1 if none is."""
        for file in reversed(self.files):
            _, _, _, end_physical, _, count = file.header()
            if count > 1:
                return end_physical
        return -1

    def repair_after_crash(self, end_physical: int, forced_until_ms: int) -> None:
        """Keep the full files that were forced, and of the first other one what `repair` keeps. Those behind it go: a
        power loss may have taken any part of them, and recovery indexes their records again."""
        forced = 0
        for file in self.files:
            _, end_timestamp, _, _, _, count = file.header()
            if count < file.max_entries or end_timestamp > forced_until_ms:
                break
            forced += 1
        while len(self.files) > forced + 1:
            self.files.pop().segment.delete()
        self.repair(end_physical)

    def repair(self, end_physical: int) -> None:
        """Keep of the newest file what is consistent in itself and points into the log.

        Entries say everything there is to know of a file: slots are made anew from them. The entries of the last record
        are dropped as well, as not all of its keys may have been written; recovery indexes it again.
        """
        while self.files:
            file = self.files[-1]
            if self._repair_file(file, end_physical):
                break
            self.files.pop().segment.delete()
        if self.files:
            self._attach(self.files[-1])
        else:
            self.tail.attach(None, 0, 0, 0)

    def _repair_file(self, file: IndexFile, end_physical: int) -> bool:
        """Whether anything of the file is left."""
        filled = min(file.header()[5], file.max_entries)
        file.segment.allocate(0, file.entries_at + 20 * filled)
        with file.segment.read_through():
            return repair_index(file.segment.view, file.slots, file.max_entries, end_physical) > 1

    def truncate(self, end_physical: int) -> bool:
        """Forget entries of records at or behind a place in the log; whether there were any. Then the last record
        before them is forgotten too, as by `repair`, and has to be indexed again."""
        has_more = self.indexed_end >= end_physical
        if has_more:
            self.repair(end_physical)
        return has_more

    def detach_expired(self, min_physical: int) -> list[Segment]:
        """The files that point before the log's start alone, taken out; the last file stays."""
        detached = []
        while len(self.files) > 1 and self.files[0].header()[3] < min_physical:
            detached.append(self.files.pop(0).segment)
        return detached

    def force_names(self) -> None:
        """Have the names of new files on disk. The keys of one record may lie in two files: with the second one gone,
        the first says after a clean stop that the record is indexed."""
        if self._has_unforced_names:
            self._has_unforced_names = False
            try:
                self._disk.force_folder(self.folder)
            except BaseException:
                self._has_unforced_names = True
                raise

    def force(self) -> None:
        if self.files:
            if self.tail.view is not None and self.tail.count > 1:
                write_index_header(self.tail)
            self.files[-1].segment.force()
            self.force_names()

    def drop_spare(self) -> None:
        if self._next is not None:
            self._next.segment.delete()
            self._next = None

    def unmap(self) -> None:
        self.tail.attach(None, 0, 0, 0)
        for file in self.files:
            file.segment.unmap()

    def destroy(self) -> None:
        self.drop_spare()
        for file in self.files:
            file.segment.delete()
        self.files = []
        self.tail.attach(None, 0, 0, 0)

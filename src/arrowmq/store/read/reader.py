"""Reading: by queue and offset with Apache's limits and outcomes, and by time.

What a read finds in memory and in order is `QueueReader`'s (`_reader_plain.py` says what that is). The rest is decided
here: offsets out of bounds, records that are damaged or gone, filters that have to see the records.
"""

from __future__ import annotations

import logging
import os
import struct
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.store.config import StoreConfig
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.log.walk import BAD_PROPERTIES, CHECK_BODY_CRC, CHECK_RECORD_CRC, check_record, looks_odd
from arrowmq.store.positions import Marks
from arrowmq.store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from arrowmq.store.queues.table import Queues
from arrowmq.store.read._reader_plain import COLD, FOUND, Found, Limits
from arrowmq.store.results import Boundary, EntryFilter, GetStatus, Got

if TYPE_CHECKING:
    from arrowmq.store.read import _reader_plain as _reader
else:
    _reader = native.load("arrowmq.store.read._reader")

QueueReader = _reader.QueueReader
Cursor = _reader.Cursor
is_resident = _reader.is_resident

MAX_PULL_BYTES = 128 << 20
MIN_PULL_BYTES = 100
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
log = logging.getLogger(__name__)


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def store_timestamp_of(record: memoryview) -> int:
    """The store time of a record, which lies behind the born host."""
    is_v6 = _INT.unpack_from(record, 36)[0] & 0x10
    return int(_LONG.unpack_from(record, 68 if is_v6 else 56)[0])


def limits_of(config: StoreConfig) -> Limits:
    return Limits(
        scan_bytes=config.max_filter_message_size,
        memory_bytes=physical_memory_bytes() * config.access_message_in_memory_max_ratio // 100,
        in_memory=(config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory),
        on_disk=(config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk),
    )


class Reader:
    """Answers reads from the queues and the mapped log."""

    def __init__(self, log: CommitLog, queues: Queues, config: StoreConfig, positions: Marks) -> None:
        self._log = log
        self._queues = queues
        self._positions = positions
        self.limits = limits_of(config)
        self.records = QueueReader(log, self.limits, positions)
        self.damaged_records = 0
        self._checks = CHECK_BODY_CRC
        if config.enabled_append_prop_crc or config.force_verify_prop_crc:
            self._checks |= CHECK_RECORD_CRC

    @property
    def checked_from(self) -> int:
        """Records from here on were checked at opening, or written since; older ones are checked at reading."""
        return self.records.checked_from

    @checked_from.setter
    def checked_from(self, position: int) -> None:
        self.records.checked_from = position

    def bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Min and max offset as readers may see them."""
        largest = queue.confirmed_max(self._positions.confirmed_end)
        return min(queue.min_offset(self._log.min_offset), largest), largest

    def get_if_hot(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, matches: EntryFilter | None
    ) -> Got | None:
        """`get`, or None if it would wait for the disk."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        codes = None if matches is None else matches.codes or None
        bounded = min(max(max_bytes, MIN_PULL_BYTES), MAX_PULL_BYTES)
        found = self.records.find(Cursor(queue), offset, max_count, bounded, codes)
        if found.outcome == COLD:
            return None
        if found.outcome == FOUND and (matches is None or not matches.needs_record):
            return self._got(found)
        return self._get(queue, offset, max_count, bounded, matches)

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, matches: EntryFilter | None
    ) -> Got:
        got = self.get_if_hot(topic, queue_id, offset, max_count, max_bytes, matches)
        queue = self._queues.find(topic, queue_id)
        if got is not None or queue is None:
            return got or Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        return self._get(queue, offset, max_count, min(max(max_bytes, MIN_PULL_BYTES), MAX_PULL_BYTES), matches)

    def _got(self, found: Found) -> Got:
        """Records of one file, of which neighbours become one piece."""
        got = Got(GetStatus.FOUND, found.next_offset, found.min_offset, found.max_offset)
        run_start = run_end = -1
        for start, size in zip(found.starts, found.sizes, strict=True):
            if start != run_end:
                self._close_run(got, run_start, run_end)
                run_start = start
            run_end = start + size
        self._close_run(got, run_start, run_end)
        got.count, got.total_bytes = len(found.starts), sum(found.sizes)
        got.first_physical_offset, got.last_physical_offset = found.starts[0], found.starts[-1]
        got.suggests_slave = found.suggests_slave
        return got

    def _get(
        self, queue: ConsumeQueue, offset: int, max_count: int, max_bytes: int, matches: EntryFilter | None
    ) -> Got:
        smallest, largest = self.bounds(queue)
        if largest == 0:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, smallest, largest)
        if offset < smallest:
            return Got(GetStatus.OFFSET_TOO_SMALL, smallest, smallest, largest)
        if offset == largest:
            return Got(GetStatus.OFFSET_OVERFLOW_ONE, offset, smallest, largest)
        if offset > largest:
            return Got(GetStatus.OFFSET_OVERFLOW_BADLY, largest, smallest, largest)
        entries = queue.view_at(offset, largest)
        if entries is None or len(entries) < ENTRY_BYTES:
            per_file = queue.file_bytes // ENTRY_BYTES
            return Got(GetStatus.OFFSET_FOUND_NULL, (offset // per_file + 1) * per_file, smallest, largest)
        got = Got(GetStatus.NO_MATCHED_MESSAGE, offset, smallest, largest)
        limit = max(self.limits.scan_bytes, max_count * ENTRY_BYTES)
        # The loop stops before the entry at which `limit` bytes of entries were scanned.
        entries = entries[: -(-limit // ENTRY_BYTES) * ENTRY_BYTES]
        self._gather(got, entries, offset, max_count, max_bytes, matches)
        return got

    def _gather(
        self, got: Got, entries: memoryview, offset: int, max_count: int, max_bytes: int, matches: EntryFilter | None
    ) -> None:
        """Scan entries and take the records wanted, as long as they fit; neighbours in the log become one piece."""
        end, confirmed = self._log.appended, self._positions.confirmed_end
        limits = self.limits
        in_memory_from = end - limits.memory_bytes
        run_start = run_end = -1
        skip_below = -1
        last_scanned = -1
        for number in range(len(entries) // ENTRY_BYTES):
            physical, size, code = struct.unpack_from(">qiq", entries, number * ENTRY_BYTES)
            # `largest` was found by halving; between damaged entries that may be one too late.
            if confirmed < physical + size <= end:
                break
            if got.count:
                if got.count + 1 > max_count or got.total_bytes + size > max_bytes:
                    break
                most_bytes, most_count = limits.in_memory if physical >= in_memory_from else limits.on_disk
                if got.total_bytes + size > most_bytes or got.count >= most_count:
                    break
            got.next_offset = offset + number + 1
            last_scanned = physical
            if 0 <= physical < skip_below:
                continue
            if matches is not None and not matches.matches_entry(code):
                if not got.count:
                    got.status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = self._record(physical, size)
            if record is None:
                if not got.count:
                    got.status = GetStatus.MESSAGE_WAS_REMOVING
                if 0 <= physical < self._log.min_offset:
                    skip_below = self._log.min_offset
                continue
            if matches is not None and matches.needs_record and not matches.matches_record(record):
                if not got.count:
                    got.status = GetStatus.NO_MATCHED_MESSAGE
                continue
            got.status = GetStatus.FOUND
            got.count += 1
            got.total_bytes += size
            if got.first_physical_offset < 0:
                got.first_physical_offset = physical
            got.last_physical_offset = physical
            if physical != run_end:
                self._close_run(got, run_start, run_end)
                run_start = physical
            run_end = physical + size
        self._close_run(got, run_start, run_end)
        got.suggests_slave = last_scanned >= 0 and end - last_scanned > limits.memory_bytes

    def _close_run(self, got: Got, start: int, end: int) -> None:
        if start >= 0:
            piece = self._log.view(start, end - start)
            assert piece is not None
            got.pieces.append(piece)

    def _record(self, physical: int, size: int) -> memoryview | None:
        """A record by its entry; None if it is gone from the log, or not what the entry says."""
        record = self._log.view(physical, size)
        is_there = record is not None and size >= 91 and _INT.unpack_from(record, 0)[0] == size
        if record is None or not is_there or _LONG.unpack_from(record, 28)[0] != physical:
            if size != FILLER_SIZE and not 0 <= physical < self._log.min_offset:
                self.damaged_records += 1
                log.error(
                    "a queue has a message of %d bytes at %d of the commit log, and none is there: the queue or the "
                    "log is damaged, and it is left out; run `arrowmq store check`",
                    size,
                    physical,
                )
            return None
        if physical < self.checked_from and not self._is_sound(record, physical, size):
            self.damaged_records += 1
            log.error("the record at %d of the commit log is damaged and left out; run `arrowmq store check`", physical)
            return None
        return record

    def record_at(self, physical: int) -> memoryview | None:
        """The bytes of the record that starts at a place in the log, if one does."""
        head = self._log.view(physical, 91)
        if head is None:
            return None
        size = int(_INT.unpack_from(head, 0)[0])
        record = self._log.view(physical, size)
        return record if record is not None and self._is_sound(record, physical, size) else None

    def _is_sound(self, record: memoryview, physical: int, size: int) -> bool:
        verdict = check_record(record, 0, size, physical, self._checks)
        if verdict == BAD_PROPERTIES:
            return looks_odd(record, 0, size, physical, self._checks)
        return verdict == size

    def store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """The store time of a queue's message; -1 if it is not there or no longer in the log."""
        entry = queue.entry(offset)
        if entry is None:
            return -1
        record = self._record(entry.physical_offset, entry.size)
        return -1 if record is None else store_timestamp_of(record)

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
        """LOWER: the first message stored at or after the time, else the max offset. UPPER: the last one stored at or
        before it, else the min offset. Store times follow the log's order, so halving finds it."""
        smallest, largest = self.bounds(queue)
        low, high = smallest, largest
        while low < high:
            middle = (low + high) // 2
            time = self.store_time(queue, middle)
            is_before = time < timestamp if boundary is Boundary.LOWER else time <= timestamp
            if is_before:
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.UPPER:
            low -= 1
        return max(smallest, min(low, largest))

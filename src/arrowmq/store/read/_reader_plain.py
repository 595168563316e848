"""Finding the records that a read wants, without touching what lies on disk only: the pure-Python reference.

One scan over queue entries decides which records an answer has, with Apache's limits; then the records are looked at
where they lie in the log. It has four outcomes:

    FOUND     these records, which lie in one file of the log, in memory, and are what their entries say
    NOTHING   the offset is outside of what readers may see, or nothing wanted is among the entries scanned
    COLD      reading on would wait for the disk
    ODD       an entry or a record is not what it should be, or the records lie in several files: `Reader` looks closer

**What is in memory**: what this process wrote or checked, as long as it is within the newest `HOT_BYTES` of the log;
for everything else the kernel is asked (`mincore`). There is no other rule.

A `Cursor` is one reader's place in one queue. It pins the file of entries it reads from, which ends when the file is
unmapped or deleted: a reader that is remembered keeps no file.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from arrowmq.store.append._tail_plain import ENTRY
from arrowmq.store.log.walk import CHECK_BODY_CRC, CHECK_RECORD_CRC, check_record

if TYPE_CHECKING:
    from arrowmq.store._positions_plain import Marks
    from arrowmq.store.log.commitlog import CommitLog
    from arrowmq.store.log.segment import Pin
    from arrowmq.store.queues.consumequeue import ConsumeQueue

NOTHING, FOUND, COLD, ODD = 0, 1, 2, 3

MAX_CODES = 64  # a subscription with more tags is `Reader`'s
MAX_RECORDS = 1024  # in one answer
SPAN_BYTES = 8 << 20  # of the log that one answer's records may lie apart, where the kernel has to be asked about them
HOT_BYTES = 64 << 20  # what was appended last is in the page cache; asking for it would only cost time
_ENTRY_BYTES = 20
_SMALLEST_RECORD = 91
_FILLER_SIZE = 0x7FFFFFFF
_PAGE = mmap.PAGESIZE
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_libc = ctypes.CDLL(None, use_errno=True)

#: Asked with a view of a mapped file, a position in it and a size.
Residency = Callable[[memoryview, int, int], bool]


def is_resident(view: memoryview, position: int, size: int) -> bool:
    """Whether all pages of a part of a mapped file are in memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(view, position))
    start = address // _PAGE * _PAGE
    length = address + size - start
    states = (ctypes.c_ubyte * -(-length // _PAGE))()
    if _libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), states) != 0:
        return True  # not known: then the read must do
    return all(state & 1 for state in states)


class Limits(NamedTuple):
    """How much one answer may carry, and how much is scanned for it."""

    scan_bytes: int  # of queue entries
    memory_bytes: int  # what lies further back in the log counts as being on disk
    in_memory: tuple[int, int]  # most bytes, most records
    on_disk: tuple[int, int]


class Found(NamedTuple):
    """Only FOUND has more than its outcome."""

    outcome: int
    min_offset: int = 0
    max_offset: int = 0
    next_offset: int = 0
    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    suggests_slave: bool = False


class Cursor:
    __slots__ = ("pin", "queue")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.pin: Pin | None = None

    def entries_at(self, position: int) -> Pin | None:
        """The file with this byte of the queue."""
        pin = self.pin
        if pin is None or not pin.start <= position < pin.start + pin.size:
            segment = self.queue.segment_at(position)
            pin = self.pin = None if segment is None else segment.pin
        return pin


class QueueReader:
    def __init__(self, commit_log: CommitLog, limits: Limits, positions: Marks) -> None:
        self._log = commit_log
        self._positions = positions
        self.limits = limits
        self.checked_from = 0  # records from here on were checked at opening, or written since
        self.residency: Residency | None = None  # instead of asking the kernel

    def find(self, cursor: Cursor, offset: int, max_count: int, max_bytes: int, codes: Collection[int] | None) -> Found:
        """The confirmed records for an answer, of messages with one of these tag codes."""
        queue, confirmed = cursor.queue, self._positions.confirmed_end
        largest = queue.confirmed_max(confirmed)
        if not 0 <= offset < largest:
            return Found(NOTHING)
        at = offset * _ENTRY_BYTES
        pin = cursor.entries_at(at)
        if pin is None or pin.view is None or (codes is not None and len(codes) > MAX_CODES):
            return Found(ODD)
        limit = min(
            max(-(-self.limits.scan_bytes // _ENTRY_BYTES), max_count),
            largest - offset,
            (pin.start + pin.size - at) // _ENTRY_BYTES,
        )
        if limit < 1:
            return Found(ODD)
        at -= pin.start
        if not self._asks(pin.view, at, limit * _ENTRY_BYTES):
            return Found(COLD)
        smallest = min(queue.min_offset(self._log.min_offset), largest)
        if offset < smallest:
            return Found(NOTHING)
        found = self._scan(pin.view[at : at + limit * _ENTRY_BYTES], offset, max_count, max_bytes, codes, confirmed)
        if found is None:
            return Found(ODD)
        starts, sizes, following, suggests_slave = found
        if not starts:
            return Found(NOTHING)
        outcome = self._look(starts, sizes)
        if outcome != FOUND:
            return Found(outcome)
        return Found(FOUND, smallest, largest, following, tuple(starts), tuple(sizes), suggests_slave)

    def _scan(
        self,
        entries: memoryview,
        offset: int,
        max_count: int,
        max_bytes: int,
        codes: Collection[int] | None,
        confirmed: int,
    ) -> tuple[list[int], list[int], int, bool] | None:
        """Records chosen by their entries alone, and the offset to go on from; None if an entry is not plain."""
        limits, end, begin = self.limits, self._log.appended, self._log.min_offset
        starts: list[int] = []
        sizes: list[int] = []
        total, following, previous, last_scanned = 0, offset, begin, end
        for number, (physical, size, code) in enumerate(ENTRY.iter_unpack(entries)):
            # Entries are in the log's order; one that goes back points into a record.
            if physical < previous or size < _SMALLEST_RECORD or size == _FILLER_SIZE or physical + size > confirmed:
                return None
            if starts:
                if len(starts) + 1 > max_count or total + size > max_bytes:
                    break
                is_recent = physical >= end - limits.memory_bytes
                most_bytes, most_count = limits.in_memory if is_recent else limits.on_disk
                if total + size > most_bytes or len(starts) >= most_count:
                    break
            following, previous, last_scanned = offset + number + 1, physical + size, physical
            # Of an entry's 64 bits the hash takes the low 32, as a signed number.
            if codes is not None and ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 not in codes:
                continue
            if len(starts) == MAX_RECORDS:
                return None
            starts.append(physical)
            sizes.append(size)
            total += size
        return starts, sizes, following, end - last_scanned > limits.memory_bytes

    def _look(self, starts: list[int], sizes: list[int]) -> int:
        """Whether the records lie in one file, in memory, and are what their entries say."""
        first, last = starts[0], starts[-1] + sizes[-1]
        segment = self._log.segment_at(first)
        if segment is None or last > segment.end:
            return ODD
        if first < self._hot_from():
            if last - first > SPAN_BYTES:
                return ODD
            if not self._asks(segment.view, first - segment.start, last - first):
                return COLD
        for physical, size in zip(starts, sizes, strict=True):
            record = segment.view[physical - segment.start : physical - segment.start + size]
            if _INT.unpack_from(record, 0)[0] != size or _LONG.unpack_from(record, 28)[0] != physical:
                return ODD
            if physical < self.checked_from:
                checks = CHECK_BODY_CRC | CHECK_RECORD_CRC
                if check_record(record, 0, size, physical, checks) != size:
                    return ODD
        return FOUND

    def _asks(self, view: memoryview, position: int, size: int) -> bool:
        return (self.residency or is_resident)(view, position, size)

    def _hot_from(self) -> int:
        return max(self.checked_from, self._log.appended - HOT_BYTES)

    def is_in_memory(self, physical: int, size: int) -> bool:
        """Whether this part of the log can be read without waiting for the disk."""
        segment = self._log.segment_at(physical)
        if segment is None or size <= 0 or physical >= self._hot_from():
            return True
        return self._asks(segment.view, physical - segment.start, min(size, segment.end - physical))

    def copy(self, found: Found) -> bytes:
        """The bytes of the records that were found, one behind the other."""
        segment = self._log.segment_at(found.starts[0]) if found.starts else None
        body = bytearray()
        for start, size in zip(found.starts, found.sizes, strict=True):
            if segment is None or start < segment.start or size < 0 or start + size > segment.end:
                raise ValueError("the records do not lie in one file of the log")
            body += segment.view[start - segment.start : start - segment.start + size]
        return bytes(body)

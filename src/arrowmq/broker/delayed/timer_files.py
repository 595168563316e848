"""The files behind timer messages, in Apache's form: a log of who waits, and a wheel that finds them by the second.

The timer log is a row of units of 52 bytes, one for each waiting message, in files of `mappedFileSizeTimerLog`. Units
that are due in the same second are chained, newest first. The wheel is one file with a slot for each second of two
weeks; a slot knows the newest unit of its second. Both are mapped, so what was written survives the process.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PRECISION_MS = 1000
SLOTS = 2 * 7 * 86_400
NOWHERE = -1

NORMAL, ROLL, DELETE = 1, 2, 4
_MAGIC_BITS = 0xF

#  Timer log unit, 52 bytes, big endian
#   0  4  size (52)
#   4  8  position of the unit before it in its slot, -1 for none
#  12  4  magic: 1 normal, 2 to be put back (due beyond the wheel), 4 a delete mark
#  16  8  time of writing, ms     24  4  delay from then, ms
#  28  8  physical offset         36  4  size of the record
#  40  4  hash of the real topic  44  8  zero
_UNIT = struct.Struct(">iqiqiqiiq")
UNIT_BYTES = _UNIT.size
#  What fills a file that has no room for another unit: bytes left (4), zero (8), magic (4)
_FILLER = struct.Struct(">iqi")
_FILLER_MAGIC = -875286124

#  Wheel slot, 32 bytes: second (8), position of its first unit (8), of its last (8), number of messages (4), zero (4)
_SLOT = struct.Struct(">qqqii")
_COUNT_WORD = 6  # of the slot's eight words of 4 bytes
WHEEL_BYTES = SLOTS * _SLOT.size

#  timercheck, 4096 bytes: time read up to, log position, queue offset, the master's queue offset, a DataVersion (24);
#  then, where Apache has zeros, the latest time ever read up to, which is another if the clock was set back
_CHECK = struct.Struct(">qqqqqqq")
_LATEST = struct.Struct(">q")
_CHECK_BYTES = 4096


class Unit(NamedTuple):
    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        return self.written_ms + self.delay_ms


class Slot(NamedTuple):
    first: int
    last: int
    messages: int


class Checkpoint(NamedTuple):
    read_ms: int
    log_position: int
    queue_offset: int
    latest_ms: int = 0


def _map(path: Path, size: int) -> mmap.mmap:
    """The file, made with real blocks if it is not there: a full disk is an error here and not a crash later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(descriptor).st_size < size:
            os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


class TimerLog:
    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.folder = folder
        self.file_bytes = file_bytes
        self.end = 0
        self._files: dict[int, mmap.mmap] = {}

    def load(self) -> None:
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                if path.name.isdecimal() and path.stat().st_size == self.file_bytes:
                    self._files[int(path.name)] = _map(path, self.file_bytes)

    @property
    def begin(self) -> int:
        return min(self._files, default=0)

    def append(self, unit: Unit) -> int:
        """Writes a unit and gives its position. Raises OSError when the disk has no room for a further file."""
        position = self.end
        room = self.file_bytes - position % self.file_bytes
        if room < UNIT_BYTES + _FILLER.size:
            if position % self.file_bytes and room >= _FILLER.size:
                _FILLER.pack_into(self._file(position), position % self.file_bytes, room, 0, _FILLER_MAGIC)
            position += room
        at = position % self.file_bytes
        _UNIT.pack_into(self._file(position), at, UNIT_BYTES, *unit, 0)
        self.end = position + UNIT_BYTES
        return position

    def _file(self, position: int) -> mmap.mmap:
        start = position - position % self.file_bytes
        found = self._files.get(start)
        if found is None:
            found = self._files[start] = _map(self.folder / f"{start:020d}", self.file_bytes)
        return found

    def read(self, position: int) -> Unit | None:
        """The unit at a position, or None if none is there."""
        start = position - position % self.file_bytes
        file = self._files.get(start)
        if position < 0 or file is None or position - start + UNIT_BYTES > self.file_bytes:
            return None
        size, previous, magic, written_ms, delay_ms, physical, record_size, topic_hash, _ = _UNIT.unpack_from(
            file, position - start
        )
        if size != UNIT_BYTES or magic & ~_MAGIC_BITS or previous >= position:
            return None
        return Unit(previous, magic, written_ms, delay_ms, physical, record_size, topic_hash)

    def is_end(self, position: int) -> bool:
        """Whether the units may end there: one is right before it, and none begins at it."""
        return (position == 0 or self.read(position - UNIT_BYTES) is not None) and self.read(position) is None

    def recover(self) -> Iterator[tuple[int, Unit]]:
        """Every unit there is; the log ends where they end."""
        self.end = position = self.begin
        while (position - position % self.file_bytes) in self._files:
            unit = self.read(position)
            if unit is None:
                room = self.file_bytes - position % self.file_bytes
                if room >= UNIT_BYTES + _FILLER.size:
                    return
                position += room  # the rest of a file is filler
                continue
            self.end = position + UNIT_BYTES
            yield position, unit
            position = self.end

    def forget_before(self, physical_offset: int) -> int:
        """Deletes files all of whose messages the commit log has deleted; how many."""
        deleted = 0
        for start in sorted(self._files)[:-1]:
            positions = range(start, start + self.file_bytes - UNIT_BYTES - _FILLER.size + 1, UNIT_BYTES)
            last = self.read(positions[-1])
            if last is None or last.physical_offset >= physical_offset:
                break
            self._files.pop(start).close()
            (self.folder / f"{start:020d}").unlink(missing_ok=True)
            deleted += 1
        return deleted

    def force(self) -> None:
        for start, file in list(self._files.items()):
            if start + self.file_bytes >= self.end - self.file_bytes:
                file.flush()

    def clear(self) -> None:
        """Begins anew, with no file."""
        self.close()
        for path in self.folder.glob("[0-9]*") if self.folder.is_dir() else ():
            path.unlink()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
        self.end = 0


class TimerWheel:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: mmap.mmap | None = None

    @property
    def exists(self) -> bool:
        return self._file is not None or (self.path.exists() and self.path.stat().st_size == WHEEL_BYTES)

    def open(self) -> mmap.mmap:
        if self._file is None:
            self._file = _map(self.path, WHEEL_BYTES)
        return self._file

    def slot(self, time_ms: int) -> Slot | None:
        """What is due in a second; None if nothing is."""
        second = time_ms // PRECISION_MS
        found, first, last, count, _ = _SLOT.unpack_from(self.open(), second % SLOTS * _SLOT.size)
        return Slot(first, last, count) if found == second and last != NOWHERE else None

    def counts(self, time_ms: int, seconds: int) -> list[int]:
        """How many messages are due in each of so many seconds from then on."""
        if not self.exists:
            return [0] * seconds
        first = time_ms // PRECISION_MS
        begin = first % SLOTS
        file = self.open()
        # Most seconds are empty: all are read at once, and only what is not empty is looked at.
        data = file[begin * _SLOT.size : (begin + seconds) * _SLOT.size]
        data += file[: seconds * _SLOT.size - len(data)]
        words = array("i", data)
        if sys.byteorder == "little":
            words.byteswap()
        found = list(words[_COUNT_WORD :: _SLOT.size // words.itemsize])
        for place, count in enumerate(found):
            if count and int.from_bytes(data[place * _SLOT.size :][:8], "big") != first + place:
                found[place] = 0  # of an earlier turn of the wheel
        return found

    def put(self, time_ms: int, slot: Slot) -> None:
        second = time_ms // PRECISION_MS
        _SLOT.pack_into(self.open(), second % SLOTS * _SLOT.size, second, *slot, 0)

    def force(self) -> None:
        if self._file is not None:
            self._file.flush()

    def clear(self) -> None:
        """Begins anew, with no file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return unpack_checkpoint(data)


def pack_checkpoint(check: Checkpoint, timestamp: int, counter: int) -> bytes:
    """What Apache's file has; also the answer to GET_TIMER_CHECK_POINT."""
    return _CHECK.pack(*check[:3], check.queue_offset, 0, timestamp, counter)


def unpack_checkpoint(data: bytes) -> Checkpoint | None:
    if len(data) < _CHECK.size:
        return None
    read_ms, log_position, queue_offset, master_offset, *_ = _CHECK.unpack_from(data)
    latest_ms = _LATEST.unpack_from(data, _CHECK.size)[0] if len(data) >= _CHECK.size + _LATEST.size else 0
    return Checkpoint(read_ms, log_position, min(queue_offset, master_offset), latest_ms)


def write_checkpoint(path: Path, check: Checkpoint, timestamp: int, counter: int) -> None:
    """The master's queue offset is our own: a zero there would make Apache's broker enqueue everything again."""
    data = (pack_checkpoint(check, timestamp, counter) + _LATEST.pack(check.latest_ms)).ljust(_CHECK_BYTES, b"\x00")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

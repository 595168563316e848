"""Walks the bytes of a commit log segment from record to record and says which of them are whole.

A record is believed when its magic, its lengths, its own position and the checksum of its body agree. What does not
is a `Damage`: it is reported, and the walk goes on at the next record that can be believed, which is looked for by
its magic and by its position written in it. That same search lets a split begin in the middle of a segment.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.wire.checksum import crc32

if TYPE_CHECKING:
    from arrowmq.spark.store import _soundness_plain as _soundness
else:
    _soundness = native.load("arrowmq.spark.store._soundness")

sound_run = _soundness.sound_run

#  Head of a record, big endian (the whole layout is in wire/records.py)
#   0  4  total size        20  8  queue offset
#   4  4  magic             28  8  physical offset
#   8  4  body CRC          36  4  sys flag
HEAD = struct.Struct(">iIi4x4xqqi")
INT = struct.Struct(">i")
SHORT = struct.Struct(">H")
MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194  # fills the end of a segment
LEAST_SIZE = 91
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
LOOK_AHEAD = 64 * 1024
RUN_BYTES = 4 * 1024 * 1024  # a batch is built from one or two runs

Mapped = mmap.mmap | bytes


@dataclass(frozen=True)
class Damage:
    """Bytes of a commit log that are not a whole record."""

    path: str
    commit_log_offset: int
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.size} bytes at {self.commit_log_offset} left out: {self.reason}"


def body_length_at(sys_flag: int) -> int:
    """Where the length of the body stands; addresses of version 6 push it back."""
    return 84 + (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)


def check_record(view: memoryview, position: int, base: int) -> tuple[int, str | None]:
    """The size of the record at `position` (0 if unknown) and what is wrong with it (None: nothing)."""
    left = len(view) - position
    if left < LEAST_SIZE:
        return 0, "no room for a record is left in the segment"
    size, magic, body_crc, _, physical_offset, sys_flag = HEAD.unpack_from(view, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return 0, f"magic {magic:08x} is not a record's"
    if not LEAST_SIZE <= size <= left:
        return 0, f"its size {size} is impossible"
    body_at = body_length_at(sys_flag)
    (body_size,) = INT.unpack_from(view, position + body_at)
    topic_at = body_at + 4 + body_size
    if body_size < 0 or topic_at + 3 > size:
        return 0, f"its body of {body_size} bytes does not fit its size {size}"
    if magic == MAGIC_V1:
        properties_at = topic_at + 1 + view[position + topic_at]
    else:
        properties_at = topic_at + 2 + SHORT.unpack_from(view, position + topic_at)[0]
    if properties_at + 2 > size or properties_at + 2 + SHORT.unpack_from(view, position + properties_at)[0] != size:
        return 0, f"its lengths do not add up to its size {size}"
    if physical_offset != base + position:
        return size, f"it says that it lies at {physical_offset}"
    body = view[position + body_at + 4 : position + topic_at]
    if body_size and crc32(body) != body_crc:
        return size, "the checksum of its body does not match"
    return size, None


def find_record(mapped: Mapped, position: int, base: int, stop: int) -> int:
    """The first position from `position` on, before `stop`, where a record starts; `stop` if there is none."""
    view = memoryview(mapped)
    candidates = dict.fromkeys(MAGICS, -1)
    while True:
        for magic, at in candidates.items():
            if at < position:
                found = mapped.find(magic, position + 4, min(stop + 8, len(view)))
                candidates[magic] = found - 4 if found >= 0 else stop
        best = min(candidates.values())
        if best >= stop:
            return stop
        size, _ = check_record(view, best, base)
        # A record with a damaged body is one all the same: its own position in it proves that it starts here.
        if size and HEAD.unpack_from(view, best)[4] == base + best:
            return best
        position = best + 1


def walk(
    mapped: Mapped,
    path: str,
    base: int,
    start: int,
    stop: int,
    damages: list[Damage],
    *,
    is_start_known: bool = True,
    tail: int | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Runs of whole records that start in bytes `start` to `stop` of a segment: begin, end, number of records.

    `tail`, for the last segment, is where the queues' knowledge of the log ends: what is not whole behind it is a
    record being written, or one that a crash cut off, and simply the end.
    """
    position = start if is_start_known else find_record(mapped, start, base, stop)
    while position < stop:
        end, count = sound_run(mapped, position, min(position + RUN_BYTES, stop), base)
        if count:
            yield position, end, count
            position = end
        else:
            position = _skip(mapped, path, base, position, stop, damages, tail)


def _skip(
    mapped: Mapped, path: str, base: int, position: int, stop: int, damages: list[Damage], tail: int | None
) -> int:
    """Where reading goes on after a place where no sound record is; `stop` when the log ends there."""
    view = memoryview(mapped)
    if len(view) - position < 8 or int.from_bytes(view[position + 4 : position + 8], "big") == MAGIC_BLANK:
        return stop
    if tail is not None and not bytes(view[position : position + LOOK_AHEAD]).strip(b"\0"):
        return stop
    size, wrong = check_record(view, position, base)
    following = position + size if size else find_record(mapped, position + 1, base, stop)
    if tail is not None and base + position >= tail and following >= stop:
        return stop
    claimed = INT.unpack_from(view, position)[0]
    # Nothing more comes: then the damage is the record, not the unused rest of the file.
    lost = claimed if following >= stop and LEAST_SIZE <= claimed <= stop - position else following - position
    damages.append(Damage(path, base + position, lost, wrong or "the checksum in its properties does not match"))
    return following

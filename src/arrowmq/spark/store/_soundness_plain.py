"""Are these records whole? In plain Python: the reference that the native module must agree with."""

from __future__ import annotations

import mmap

from arrowmq.wire.records import RecordError, decode_record


def sound_run(buffer: bytes | memoryview | mmap.mmap, start: int, stop: int, base: int) -> tuple[int, int]:
    """Where the run of sound records that begins at `start` ends, and how many records it has.

    A record is sound when its lengths add up, its checksums are right, and it says itself that it lies where it lies
    (`base` is the commit log offset of the buffer's first byte). Records that start at `stop` or later are not looked
    at; the last one may end beyond it.
    """
    view = memoryview(buffer)
    count = 0
    position = start
    while position < min(stop, len(view)):
        try:
            record = decode_record(view, position)
        except RecordError:
            break
        if record.physical_offset != base + position:
            break
        position += record.size
        count += 1
    return position, count

"""The face of the log walk: the native form where it is compiled, else the pure-Python reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.store.disk import Disk
from arrowmq.store.log._walk_plain import (
    BAD_MAGIC,
    BAD_PROPERTIES,
    BLANK,
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    END_OF_BUFFER,
    GAP,
    IS_COMPLETE,
    REASONS,
    TORN,
    Sink,
    Walked,
)
from arrowmq.store.log.segment import Segment

if TYPE_CHECKING:
    from arrowmq.store.log import _walk_plain as _walk
else:
    _walk = native.load("arrowmq.store.log._walk")

__all__ = [
    "BAD_MAGIC",
    "BAD_PROPERTIES",
    "BLANK",
    "CHECK_BODY_CRC",
    "CHECK_RECORD_CRC",
    "END_OF_BUFFER",
    "GAP",
    "IS_COMPLETE",
    "REASONS",
    "TORN",
    "Progress",
    "Sink",
    "Walked",
    "check_record",
    "first_filled",
    "looks_odd",
    "next_record",
    "repair_index",
    "scan_queue",
    "topic_and_properties",
    "walk",
    "walk_in_steps",
]

check_record = _walk.check_record
first_filled = _walk.first_filled
repair_index = _walk.repair_index
scan_queue = _walk.scan_queue
topic_and_properties = _walk.topic_and_properties
walk = _walk.walk

Progress = Callable[[int], object]
_STEP_BYTES = 32 << 20
_MANY_ZEROS = bytes(16)
_MAGICS = (bytes.fromhex("daa320a7"), bytes.fromhex("daa320ab"))


def walk_in_steps(segment: Segment, position: int, checks: int, sink: Sink | None, progress: Progress | None) -> Walked:
    """A walk over a segment that reports how far it is; the verdict is that of one walk over all of it."""
    records = newest = 0
    while True:
        end = min(segment.size, position + _STEP_BYTES)
        walked = walk(segment.view, position, end, segment.start, checks, sink)
        if walked.verdict < END_OF_BUFFER and end < segment.size:  # perhaps only the step ends here
            size = check_record(segment.view, walked.position, segment.size, segment.start, checks)
            if size > BLANK:
                end = min(segment.size, walked.position + size)
                last = walk(segment.view, walked.position, end, segment.start, checks, sink)
                walked = Walked(
                    last.position,
                    END_OF_BUFFER if last.records else last.verdict,
                    walked.records + last.records,
                    max(walked.last_store_timestamp, last.last_store_timestamp),
                )
        records += walked.records
        newest = max(newest, walked.last_store_timestamp)
        if progress is not None:
            progress(walked.position - position)
        if walked.verdict != END_OF_BUFFER or walked.position >= segment.size:
            return Walked(walked.position, walked.verdict, records, newest)
        position = walked.position


def next_record(segment: Segment, position: int, end: int, checks: int) -> int:
    """Where behind a damaged place the next record starts, before `end`; -1 if none does."""
    mapping = segment.mapping
    for start, stop in Disk().data_ranges(segment.path, position, end):
        position = max(position, start)
        while True:
            found = [at for at in (mapping.find(magic, position + 4, stop) for magic in _MAGICS) if at >= 0]
            if not found:
                break
            at = min(found) - 4
            if check_record(segment.view, at, segment.size, segment.start, checks) > BLANK:
                return at
            position = at + 1
    return -1


def looks_odd(view: memoryview, position: int, end: int, start: int, checks: int) -> bool:
    """Whether a record that was on disk once is BAD_PROPERTIES for the few zeros that its sender put there: a disk that
    lost something gives many, or those at the end."""
    found = topic_and_properties(view, position, end)
    if found is None or _MANY_ZEROS in found[1] or found[1].endswith(b"\0"):
        return False
    return bool(check_record(view, position, end, start, checks | IS_COMPLETE) > BLANK)

"""`arrowmq store repair`: records that no longer are what was written, taken from a broker that has them.

A replica's log is byte for byte its master's, so a record is asked for by its place. What comes is checked (place,
lengths, checksums) before a byte is changed; a hole is filled only where whole records fill it exactly. The broker of
the directory must be stopped. Queues and index need no repair: they say where a record lies, which has not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk, StoreLock
from arrowmq.store.integrity.check import StoreCheck
from arrowmq.store.integrity.inspection import StoreView
from arrowmq.store.log.walk import BLANK, CHECK_BODY_CRC, CHECK_RECORD_CRC, IS_COMPLETE, REASONS, check_record

_CHECKS = CHECK_BODY_CRC | CHECK_RECORD_CRC | IS_COMPLETE
Fetch = Callable[[int], bytes | None]
"""The record at a place of the other broker's log, or None."""


@dataclass
class Repaired:
    records: int = 0
    record_bytes: int = 0
    left: list[str] = field(default_factory=list)  # what could not be repaired, and why


def repair(directory: Path, config: StoreConfig, fetch: Fetch, disk: Disk | None = None) -> Repaired:
    disk = disk or Disk()
    lock = StoreLock(directory / "lock", disk)
    lock.take()
    try:
        view = StoreView(directory, config)
        check = StoreCheck(view)
        check.check_log(lambda amount: None)
        result = Repaired()
        for start, end in check.report.holes:
            _fill(view, disk, start, end, fetch, result)
        return result
    finally:
        lock.release()


def _fill(view: StoreView, disk: Disk, start: int, end: int, fetch: Fetch, result: Repaired) -> None:
    records: list[bytes] = []
    place = start
    while place < end:
        record = fetch(place)
        if record is None:
            result.left.append(f"{place}: the other broker has no record there")
            return
        verdict = check_record(memoryview(record), 0, len(record), place, _CHECKS)
        if verdict <= BLANK or verdict != len(record):
            reason = REASONS[verdict] if verdict <= BLANK else "its length is another"
            result.left.append(f"{place}: the other broker's record is not sound either: {reason}")
            return
        records.append(record)
        place += len(record)
    if place != end:
        result.left.append(f"{start}: the other broker's records end at {place}, here the next begins at {end}")
        return
    segment = view.commit_log.segment_at(start)
    assert segment is not None
    handle = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(handle, b"".join(records), start - segment.start)
    finally:
        os.close(handle)
    disk.force(segment.path)
    result.records += len(records)
    result.record_bytes += end - start

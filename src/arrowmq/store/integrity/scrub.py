"""Finding rotten records before a reader does: a worker that reads the whole log again, slowly, and checks it.

Off unless `scrubBytesPerSecond` says how fast. What was written by this process, or checked when the store opened, is
given to readers unchecked, because it is in memory as it was written. Once it has left memory a disk can have changed
it. When the scrub finds such a record, it moves `checked_from` behind it: from then on readers check every record up to
there, leave the damaged ones out and count them. `arrowmq store repair` brings them back from a replica.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from arrowmq.store.log.walk import BLANK, CHECK_BODY_CRC, CHECK_RECORD_CRC, END_OF_BUFFER, REASONS, check_record
from arrowmq.store.results import Hole
from arrowmq.store.workers import Worker

if TYPE_CHECKING:
    from arrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)
STEP_BYTES = 1 << 20
_ROUND_PAUSE_S = 60.0
_LEAST_RECORD_BYTES = 91


class Scrub:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._worker: Worker | None = None
        self._at = 0
        self.bytes_read = 0
        self.damaged: dict[int, str] = {}  # by place in the log: what is wrong there

    def start(self) -> None:
        if self._store.config.scrub_bytes_per_second > 0:
            self._worker = self._store.disk.start_worker("scrub", self._step, first_s=0.0)

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _step(self) -> float:
        before = self.bytes_read
        if not self.take_step():
            return _ROUND_PAUSE_S
        return (self.bytes_read - before) / self._store.config.scrub_bytes_per_second

    def take_step(self) -> bool:
        """Check the next part; False at the end of the log, from where it begins anew."""
        store = self._store
        smallest = store.commit_log.min_offset
        self._at = max(self._at, smallest)
        segment = store.commit_log.segment_at(self._at)
        end = store.positions.flushed_end  # behind it the disk has nothing yet
        if segment is None or self._at >= end:
            self._at = smallest
            return False
        wanted = min(STEP_BYTES, segment.end - self._at, end - self._at)
        try:
            data = memoryview(store.disk.read(segment.path, self._at - segment.start, wanted))
        except FileNotFoundError:  # retention was faster
            self._at = segment.end
            return True
        self.bytes_read += len(data)
        checked = self._check(data, self._at)
        if checked < 0:  # the rest of the file is filler
            self._at = segment.end
        elif checked:
            self._at += checked
        else:
            self._take_large(segment.end)
        return True

    def _check(self, data: memoryview, start: int) -> int:
        """How many bytes were checked, in whole records; -1 if none can come any more in this file."""
        position = 0
        while position + _LEAST_RECORD_BYTES <= len(data):
            verdict = check_record(data, position, len(data), start, CHECK_BODY_CRC | CHECK_RECORD_CRC)
            if verdict == BLANK:
                return -1
            if verdict > BLANK:
                position += verdict
                continue
            size = int.from_bytes(data[position : position + 4], "big")
            if position and position + size > len(data):
                return position  # the step ends inside of it
            if verdict == END_OF_BUFFER or not self._note(start + position, size, verdict):
                return position
            position += size
        return position

    def note_all(self, holes: Iterable[Hole]) -> None:
        """What was found damaged when the store was opened."""
        for hole in holes:
            self._note_one(hole.start, hole.reason)
            reader = self._store.reader
            reader.checked_from = max(reader.checked_from, hole.end)

    def _note(self, place: int, size: int, verdict: int) -> bool:
        """A record that is not as it was written; whether the next one can be found by its length."""
        entry_size = self._store.commit_log.segment_at(place)
        self._note_one(place, REASONS[verdict])
        return entry_size is not None and _LEAST_RECORD_BYTES <= size <= entry_size.end - place

    def _note_one(self, place: int, reason: str) -> None:
        if place not in self.damaged:
            self.damaged[place] = reason
            log.error(
                "the record at %d of the commit log is damaged: %s; readers leave it out, "
                "`arrowmq store repair --from` brings it back from a replica",
                place,
                reason,
            )
            reader = self._store.reader
            reader.checked_from = max(reader.checked_from, place + 1)

    def _take_large(self, segment_end: int) -> None:
        """One record that is longer than a step, or damage whose length is not known: check it alone, or give up on
        the rest of this file, which `arrowmq store check` searches for what is still sound."""
        store = self._store
        segment = store.commit_log.segment_at(self._at)
        if segment is None:
            return
        offset = self._at - segment.start
        size = int.from_bytes(store.disk.read(segment.path, offset, 4), "big")
        if not _LEAST_RECORD_BYTES <= size <= segment_end - self._at:
            self._at = segment_end
            return
        data = memoryview(store.disk.read(segment.path, offset, size))
        self.bytes_read += len(data)
        verdict = check_record(data, 0, len(data), self._at, CHECK_BODY_CRC | CHECK_RECORD_CRC)
        if verdict <= BLANK:
            self._note(self._at, size, verdict)
        self._at += size

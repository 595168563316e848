"""The commit log: every message of the broker, one record after another, in files of equal size.

A record never crosses a file end: what is left is closed with a blank record, and the next file is taken. That file
was prepared beforehand where an allocation thread runs, so taking it costs nothing.
"""

from __future__ import annotations

import mmap
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from arrowmq.store.append.tails import LogTail
from arrowmq.store.disk import Disk
from arrowmq.store.errors import OutOfSpace, StoreUnwritable
from arrowmq.store.log.segment import Segment, list_segments, segment_name
from arrowmq.store.log.walk import first_filled

BLANK_MAGIC = 0xCBD43194
BLANK = struct.Struct(">II")
PAGE_BYTES = 4096
PREFAULT_BYTES = 512 * 1024  # at once: 0.1 ms
_ZERO_CHUNK = 1 << 20


class CommitLog:
    """The segments, and the tail that appends to the last."""

    def __init__(self, disk: Disk, folder: Path, file_bytes: int) -> None:
        self._disk = disk
        self.folder = folder
        self.file_bytes = file_bytes
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self.min_offset = 0  # where the first segment starts
        self.tail = LogTail()
        self.tail.prefault = self._prefault
        self._unmapped_end = 0  # in the segment in use
        self.spare: Segment | None = None  # the next file, created in advance
        self.wants_spare: Callable[[], None] | None = None
        self._create_lock = threading.Lock()
        self._has_unforced_names = False
        self._newest: Path | None = None  # the file that was created last

    def load(self, *, writable: bool = True) -> None:
        self.segments = list_segments(self._disk, self.folder, self.file_bytes, writable=writable)
        self._starts = [segment.start for segment in self.segments]
        self._note_begin()

    def _note_begin(self) -> None:
        self.min_offset = self._starts[0] if self._starts else 0

    @property
    def appended(self) -> int:
        return self.tail.appended

    # Appending

    def roll(self) -> None:
        """Close the segment in use and take the next; raises OutOfSpace, or what else the disk says, and changes
        nothing without room for it."""
        tail = self.tail
        # Waits for the allocation thread if that is at it; and until the tail is attached, that thread would take the
        # new file for one that is still to be made, delete it and make it anew.
        with self._create_lock:
            following = self._take_spare(tail.start + tail.size if self.segments else 0)
            try:
                view = following.view
            except BaseException:  # the kernel has no more mappings, or the disk fails: it is there for the next try
                self.spare = following
                raise
            if tail.view is not None and tail.position < tail.size:
                BLANK.pack_into(tail.view, tail.position, tail.size - tail.position, BLANK_MAGIC)
                tail.position = tail.size
            self.segments.append(following)
            self._starts.append(following.start)
            self._note_begin()
            tail.attach(view, following.start, 0)
            self._unmapped_end = 0
        if self.wants_spare is not None:
            self.wants_spare()

    def begin_at(self, offset: int) -> None:
        """Let a log without records begin here, at what is the start of a file: it is the copy of one whose first files
        are gone."""
        with self._create_lock:
            while self.segments:
                self._pop_last()
            first = self._create_segment(offset)
            self.segments.append(first)
            self._starts.append(first.start)
            self._note_begin()
            self.tail.attach(first.view, first.start, 0)
            self._unmapped_end = 0

    def _prefault(self, wanted: int) -> None:
        """The tail is about to write up to `wanted`: bring the pages from there on into memory. A disk that refuses is
        no harm: the blocks are there, and the write takes its pages one by one.

        What lies behind is taken out of the mapping, not out of memory, in one go: forcing it to disk would else take
        each page out by itself, and interrupt the other processors for it."""
        tail = self.tail
        segment = self.segments[-1]
        written = tail.position // PAGE_BYTES * PAGE_BYTES
        if written - self._unmapped_end >= PREFAULT_BYTES:
            segment.mapping.madvise(mmap.MADV_DONTNEED, self._unmapped_end, written - self._unmapped_end)
            self._unmapped_end = written
        start = -(-max(tail.prefaulted, tail.position) // PAGE_BYTES) * PAGE_BYTES
        end = min(max(start + PREFAULT_BYTES, wanted), tail.size)
        tail.prefaulted = max(wanted, end)
        if start < end:
            with suppress(OutOfSpace, StoreUnwritable, OSError):
                self._disk.fill(segment.path, start, end - start)

    def _take_spare(self, start: int) -> Segment:
        spare, self.spare = self.spare, None
        if spare is not None and spare.start == start:
            return spare
        return self._create_segment(start)

    def create_spare(self, start: int) -> None:
        """Called by the allocation thread: the next segment, unless it was needed and made meanwhile."""
        with self._create_lock:
            if self.spare is None and start == self.tail.start + self.tail.size:
                self.spare = self._create_segment(start)

    def _create_segment(self, start: int) -> Segment:
        """A new segment with all its blocks."""
        self._disk.make_lasting_folder(self.folder)
        path = self.folder / segment_name(start)
        if path.exists():  # left by a creation that was interrupted; it is behind the end of the log
            self._disk.remove(path)
        if self._newest is not None:
            # Its length: after a power loss an empty file before a whole one would look like damage. Only now, because
            # this one may be made by the event loop, and the next mostly by the allocation thread.
            self._disk.force(self._newest)
        self._disk.create(path, self.file_bytes, self.file_bytes)
        self._newest = path
        self._has_unforced_names = True
        return Segment(self._disk, path, start, self.file_bytes)

    def force_names(self) -> None:
        """Have the names of new files on disk: a file whose name a power loss takes away was written for nothing."""
        if self._has_unforced_names:
            self._has_unforced_names = False
            try:
                self._disk.force_folder(self.folder)
            except BaseException:
                self._has_unforced_names = True
                raise

    def drop_spare(self) -> None:
        if self.spare is not None:
            self.spare.delete()
            self.spare = None

    def unmap(self) -> None:
        """Unmap every file; views that readers still hold keep theirs."""
        self.tail.attach(None, self.tail.appended, 0)
        for segment in self.segments:
            segment.unmap()

    # Reading

    def segment_at(self, offset: int) -> Segment | None:
        number = bisect_right(self._starts, offset) - 1
        if number < 0:
            return None
        segment = self.segments[number]
        return segment if offset < segment.end else None

    def view(self, offset: int, size: int) -> memoryview | None:
        """A view of so many bytes, if the log has them all in one segment."""
        segment = self.segment_at(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self.tail.appended):
            return None
        return segment.view[offset - segment.start : offset - segment.start + size]

    def segments_between(self, start: int, end: int) -> list[Segment]:
        return [segment for segment in list(self.segments) if segment.end > start and segment.start < end]

    # Shortening

    def end_at(self, end: int) -> None:
        """The log ends here: later files go, and the rest of the last one is zeroed, so that nothing old comes back."""
        while len(self.segments) > 1 and self.segments[-1].start >= end:
            self._pop_last()
        if not self.segments:
            self.tail.attach(None, end, 0)
            return
        segment = self.segments[-1]
        position = end - segment.start
        segment.allocate(0, segment.size)  # Apache's files are sparse; ours must not be where we write
        self._zero_from(segment, position)
        self.tail.attach(segment.view, segment.start, position)
        self._unmapped_end = position // PAGE_BYTES * PAGE_BYTES

    def _pop_last(self) -> None:
        self.segments.pop().delete()
        self._starts.pop()
        self._note_begin()

    def _zero_from(self, segment: Segment, position: int) -> None:
        for start, stop in self._disk.data_ranges(segment.path, position, segment.size):
            at = start
            while at < stop:
                end = min(at + _ZERO_CHUNK, stop)
                if first_filled(segment.view, at, end) >= 0:
                    segment.view[at:end] = bytes(end - at)
                at = end

    def detach_first(self) -> Segment:
        """Retention: the oldest segment goes. Reads that hold views of it keep its bytes until they release them."""
        self._starts.pop(0)
        self._note_begin()
        oldest = self.segments.pop(0)
        oldest.unpin()
        return oldest

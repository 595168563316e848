"""A consume queue: for every message of one queue, where its record lies in the commit log.

Derived from the log and rebuilt from it at need. Entry number i, the queue offset, is at byte 20 * i of a chain of
files; a file is created sparse at its full size, as Apache demands, and gets blocks chunk by chunk as it fills, so that
10,000 queues cost what they hold and not 60 GB. A chunk is written with zeros before it is used, which brings it into
memory: a write into a mapped page that is not there would make the kernel read ahead megabytes of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arrowmq.store.append._tail_plain import ENTRY
from arrowmq.store.append.tails import LogTail, QueueTail, put_entry
from arrowmq.store.disk import Disk
from arrowmq.store.errors import OutOfSpace
from arrowmq.store.log.segment import Segment, list_segments, segment_name
from arrowmq.store.log.walk import scan_queue
from arrowmq.store.queues.mappings import MappedQueues
from arrowmq.store.results import Entry

ENTRY_BYTES = 20
PAGE_BYTES = 4096
MAX_CHUNK_BYTES = 256 * 1024
FILLER_SIZE = 0x7FFFFFFF
FILLER = ENTRY.pack(0, FILLER_SIZE, 0)  # stands before the first message of a queue
EMPTY = bytes(ENTRY_BYTES)


def is_entry(physical_offset: int, size: int) -> bool:
    return physical_offset >= 0 and size > 0


class ConsumeQueue:
    """One queue's files, with the tail that appends to them."""

    __slots__ = (
        "_checked_min",
        "_disk",
        "_filled_to",
        "_forced_to",
        "_has_new_names",
        "_mapped",
        "_min_bytes",
        "_path",
        "file_bytes",
        "mapped_place",
        "segments",
        "tail",
        "was_damaged",
    )

    def __init__(
        self, disk: Disk, folder: str, topic: str, queue_id: int, file_bytes: int, mapped: MappedQueues
    ) -> None:
        self._disk = disk
        self._path = folder
        self._mapped = mapped
        self.mapped_place = -1
        self._filled_to = 0  # up to this byte of the queue the files have blocks and were written
        self._forced_to = 0  # files that end before this byte need not be forced again
        self._has_new_names = False
        self.file_bytes = file_bytes
        self.segments: list[Segment] = []
        self.tail = QueueTail(topic, queue_id)
        self.tail.grow = self.make_room
        self._min_bytes = 0
        self._checked_min = -1
        self.was_damaged = False  # entries were dropped at opening: the log has them, behind the last one here

    @property
    def folder(self) -> Path:
        return Path(self._path)

    # Opening

    def load(self, *, thorough: bool, writable: bool = True) -> None:
        """Find the files and where they end. After a clean stop the filled part is dense, and its end is searched by
        halves; otherwise the last three files are read entry by entry and what does not fit is cut."""
        self.segments = list_segments(
            self._disk, self._path, self.file_bytes, writable=writable, scattered=True, rebuildable=thorough
        )
        page = b""
        while self.segments:
            path = f"{self._path}/{segment_name(self.segments[-1].start)}"
            if thorough:
                page = self._disk.read_filled(path, self.file_bytes)
            else:
                page = self._disk.read_start(path, PAGE_BYTES)
            if len(page) >= ENTRY_BYTES and ENTRY.unpack_from(page, 0)[1] > 0:
                break
            if not writable:
                self.segments.pop()
            elif len(self.segments) == 1:
                break
            else:  # an all-zero file at the end would be taken for one valid entry by Apache's truncation
                self.segments.pop().delete()
        if not self.segments:
            return
        self._min_bytes = self.segments[0].start
        if len(page) < ENTRY_BYTES:
            end, max_physical = self.segments[-1].start, 0
        else:
            end, max_physical = self._scan_end(page) if thorough else self._search_end(page)
        self.tail.next_offset = end // ENTRY_BYTES
        self.tail.max_physical = max_physical

    def _read_entry(self, segment: Segment, position: int) -> tuple[int, int, int]:
        if segment.is_mapped:
            return ENTRY.unpack_from(segment.view, position)
        return ENTRY.unpack(self._disk.read(segment.path, position, ENTRY_BYTES))

    def _search_end(self, page: bytes) -> tuple[int, int]:
        last = self.segments[-1]
        low, high = 0, self.file_bytes // ENTRY_BYTES  # entries below low are filled, those from high on are not
        in_page = len(page) // ENTRY_BYTES
        if is_entry(*ENTRY.unpack_from(page, (in_page - 1) * ENTRY_BYTES)[:2]):
            low = in_page
        else:
            high = in_page - 1
        while low < high:
            middle = (low + high) // 2
            if high <= in_page:
                entry = ENTRY.unpack_from(page, middle * ENTRY_BYTES)
            else:
                entry = self._read_entry(last, middle * ENTRY_BYTES)
            if is_entry(entry[0], entry[1]):
                low = middle + 1
            else:
                high = middle
        at = low * ENTRY_BYTES
        if at < self.file_bytes:
            following = page[at : at + ENTRY_BYTES] if low < in_page else self._disk.read(last.path, at, ENTRY_BYTES)
            if any(following):  # not the end, but an entry that is none any more
                return self._scan_end(self._disk.read_filled(str(last.path), self.file_bytes))
        if low == 0:
            return last.start, 0
        at = (low - 1) * ENTRY_BYTES
        physical, size, _ = ENTRY.unpack_from(page, at) if low <= in_page else self._read_entry(last, at)
        return last.start + low * ENTRY_BYTES, physical + (0 if size == FILLER_SIZE else size)

    def _scan_end(self, last_file: bytes) -> tuple[int, int]:
        max_physical = 0
        end = self.segments[max(0, len(self.segments) - 3)].start
        newest = self.segments[-1]
        for segment in self.segments[-3:]:
            data = last_file if segment is newest else self._disk.read_filled(str(segment.path), self.file_bytes)
            before = max_physical
            count, max_physical, filled = scan_queue(data, before)
            end = segment.start + count * ENTRY_BYTES
            if end < segment.end:
                self.was_damaged = segment is not newest or filled > count * ENTRY_BYTES
                if self.was_damaged and count:  # what the next does not follow may itself be what was damaged
                    count, max_physical, _ = scan_queue(data[: (count - 1) * ENTRY_BYTES], before)
                    end = segment.start + count * ENTRY_BYTES
                self._drop_after(segment, end - segment.start, filled)
                break
        return end, max_physical

    def _drop_after(self, segment: Segment, position: int, filled: int) -> None:
        """Leave nothing behind the end that a later scan could take for entries."""
        if not segment.writable:
            return
        while self.segments[-1] is not segment:
            self.segments.pop().delete()
        if filled > position:
            segment.view[position:filled] = bytes(filled - position)

    # Appending

    def make_room(self) -> None:
        """Give the tail a place for its next entry; raises OutOfSpace and changes nothing if the disk is full."""
        at = self.tail.next_offset * ENTRY_BYTES
        segment = self.segment_at(at)
        if segment is None:
            segment = self._create(at // self.file_bytes * self.file_bytes)
        position = at - segment.start
        if at + ENTRY_BYTES > self._filled_to:
            # A queue gets as much again as it has, within bounds: small ones stay small, busy ones are seldom held up.
            self._fill(segment, position, min(max(PAGE_BYTES, position), MAX_CHUNK_BYTES))
        limit = min(self._filled_to, segment.end) - segment.start
        self.tail.attach(segment.view, segment.start, limit)

    def extend(self, count: int) -> bool:
        """Room for so many entries in the file in use; False if it ends before them or was not begun."""
        at = self.tail.next_offset * ENTRY_BYTES
        end = at + count * ENTRY_BYTES
        segment = self.segment_at(at)
        if segment is None or end > segment.end:
            return False
        if end > self._filled_to:
            position = max(at, self._filled_to) - segment.start
            self._fill(segment, position, max(count * ENTRY_BYTES, min(position, MAX_CHUNK_BYTES)))
        self.tail.attach(segment.view, segment.start, min(self._filled_to, segment.end) - segment.start)
        return True

    def _fill(self, segment: Segment, position: int, step: int) -> None:
        limit = min(self.file_bytes, -(-(position + step) // PAGE_BYTES) * PAGE_BYTES)
        try:
            self._disk.fill(segment.path, position, limit - position)
        except OutOfSpace:
            # Amid a batch nothing may fail: what was reserved for it is there.
            reserved = min(self.tail.reserved * ENTRY_BYTES - segment.start, self.file_bytes)
            if reserved < position + ENTRY_BYTES:
                raise
            limit = reserved
        self._filled_to = segment.start + limit

    def reserve(self, count: int) -> None:
        """Room for so many entries in a row, over a file end too, where it can be foreseen."""
        at = self.tail.next_offset * ENTRY_BYTES
        end = at + count * ENTRY_BYTES
        while at < end:
            segment = self.segment_at(at) or self._create(at // self.file_bytes * self.file_bytes)
            length = min(end, segment.end) - at
            segment.allocate(at - segment.start, length)
            segment.map_now()  # the next file is begun amid a batch
            at += length
        self.tail.reserved = end // ENTRY_BYTES

    def _create(self, start: int) -> Segment:
        folder = self.folder
        if not self.segments:
            self._disk.make_folder(folder)
        path, filled = folder / segment_name(start), min(self.file_bytes, PAGE_BYTES)
        self._disk.create(path, self.file_bytes, filled, written=True)
        self._has_new_names = True
        segment = Segment(self._disk, path, start, self.file_bytes, scattered=True)
        self._filled_to = max(self._filled_to, start + filled)
        if not self.segments:
            self._min_bytes = start
        self.segments.append(segment)
        for old in self.segments[:-2]:
            old.unmap()
        return segment

    def begin_at(self, queue_offset: int) -> None:
        """Let an empty queue start at this offset: what lies before it in the first file is filled with fillers."""
        start = queue_offset * ENTRY_BYTES // self.file_bytes * self.file_bytes
        segment = self.segment_at(start) or self._create(start)
        length = queue_offset * ENTRY_BYTES - start
        if length:
            segment.allocate(0, length)
            segment.view[:length] = FILLER * (length // ENTRY_BYTES)
        self.tail.next_offset = queue_offset
        self.tail.attach(None, 0, 0)
        self.tail.reserved = 0
        self._min_bytes = queue_offset * ENTRY_BYTES

    def restore(self, log: LogTail, queue_offset: int, physical_offset: int, size: int, code: int) -> bool:
        """Put an entry that the log says belongs here, unless it is here already; False if entries before it miss."""
        tail = self.tail
        if physical_offset + size <= tail.max_physical or queue_offset < tail.next_offset:
            return True
        if queue_offset > tail.next_offset:
            return False
        if tail.next_offset * ENTRY_BYTES - tail.file_start + ENTRY_BYTES > tail.limit:
            self.make_room()
        put_entry(log, tail, physical_offset, size, code)
        return True

    def can_lack(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether a record at this place of the log can be so far on in its queue. What is missing lay in the log
        behind the last entry here, and a message takes more bytes there than in a queue, in Apache's batches too: with
        more entries than bytes for them the offset is damaged, and files would be filled without end."""
        missing = queue_offset - self.tail.next_offset
        return missing * ENTRY_BYTES <= physical_offset - self.tail.max_physical

    def fill_up_to(self, queue_offset: int) -> None:
        """Stand in for entries whose records are gone, so that those behind them get their right places."""
        if not self.segments:
            self.begin_at(queue_offset)
        while self.tail.next_offset < queue_offset:
            tail = self.tail
            at = tail.next_offset * ENTRY_BYTES - tail.file_start
            if at + ENTRY_BYTES > tail.limit:
                self.make_room()
                continue
            assert tail.view is not None
            tail.view[at : at + ENTRY_BYTES] = FILLER
            tail.next_offset += 1

    # Reading

    def file_at(self, byte_offset: int) -> Segment | None:
        """The file with this byte of the queue; any thread may ask."""
        segments = self.segments
        if not segments:
            return None
        number = (byte_offset - segments[0].start) // self.file_bytes
        return segments[number] if 0 <= number < len(segments) else None

    def segment_at(self, byte_offset: int) -> Segment | None:
        """The same, to be mapped."""
        if self.mapped_place < 0:
            self._mapped.add(self)
        return self.file_at(byte_offset)

    def view_at(self, queue_offset: int, end_offset: int) -> memoryview | None:
        """The entries from `queue_offset` up to `end_offset` or the end of its file."""
        at = queue_offset * ENTRY_BYTES
        segment = self.segment_at(at)
        if segment is None or queue_offset >= end_offset:
            return None
        return segment.view[at - segment.start : min(end_offset * ENTRY_BYTES - segment.start, self.file_bytes)]

    def entry(self, queue_offset: int) -> Entry | None:
        if not 0 <= queue_offset < self.tail.next_offset:
            return None
        at = queue_offset * ENTRY_BYTES
        segment = self.segment_at(at)
        if segment is None:
            return None
        physical, size, code = ENTRY.unpack_from(segment.view, at - segment.start)
        return Entry(queue_offset, physical, size, code)

    def entries(self, queue_offset: int, count: int) -> Iterator[Entry]:
        for offset in range(queue_offset, min(queue_offset + count, self.tail.next_offset)):
            found = self.entry(offset)
            if found is None:
                return
            yield found

    def first_offset_from(self, physical_offset: int) -> int:
        """The first queue offset whose record starts at or after a place in the log (entries are in log order)."""
        low, high = self.first_offset, self.tail.next_offset
        while low < high:
            middle = (low + high) // 2
            found = self.entry(middle)
            if found is None or found.physical_offset < physical_offset or found.size == FILLER_SIZE:
                low = middle + 1
            else:
                high = middle
        return low

    def confirmed_max(self, confirmed: int) -> int:
        """The max offset a reader may see: messages that end after `confirmed` are not promised yet. They are few, and
        lie at the end, so they are looked for from there."""
        if self.tail.max_physical <= confirmed:
            return self.tail.next_offset
        first = self.tail.file_start // ENTRY_BYTES
        low = high = self.tail.next_offset
        step = 1
        while low > first and not self._is_confirmed(low - 1, confirmed):
            high = low - 1
            low, step = max(first, low - step), step * 2
        if low == first and first > 0 and (high == first or not self._is_confirmed(first, confirmed)):
            return self._confirmed_max_before(confirmed)
        while low < high:
            middle = (low + high) // 2
            if self._is_confirmed(middle, confirmed):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_confirmed(self, queue_offset: int, confirmed: int) -> bool:
        found = self.entry(queue_offset)
        return found is None or found.size == FILLER_SIZE or found.physical_offset + found.size <= confirmed

    def _confirmed_max_before(self, confirmed: int) -> int:
        """The same, over all files: nothing in the last one is confirmed."""
        offset = self.first_offset_from(confirmed)
        before = self.entry(offset - 1)
        if before is not None and before.size != FILLER_SIZE and before.physical_offset + before.size > confirmed:
            offset -= 1
        return offset

    @property
    def first_offset(self) -> int:
        return self.segments[0].start // ENTRY_BYTES if self.segments else self.tail.next_offset

    def min_offset(self, min_physical: int) -> int:
        """The first entry whose record is still in the log; the max offset if there is none."""
        if not self.segments:
            return 0
        if min_physical != self._checked_min:
            if min_physical or self._starts_with_filler():
                self._min_bytes = max(self._min_bytes, self.first_offset_from(min_physical) * ENTRY_BYTES)
            self._min_bytes = max(self._min_bytes, self.segments[0].start)
            self._checked_min = min_physical
        return min(self._min_bytes // ENTRY_BYTES, self.tail.next_offset)

    def _starts_with_filler(self) -> bool:
        found = self.entry(self.first_offset)
        return found is not None and found.size == FILLER_SIZE

    # Shortening

    def truncate(self, end_physical: int) -> int:
        """Drop the entries of records at or behind a place in the log; how many."""
        if not self.segments or self.tail.max_physical <= end_physical:
            return 0
        before = self.tail.next_offset
        keep = self.first_offset_from(end_physical)
        while keep > self.first_offset and not self._is_confirmed(keep - 1, end_physical):
            keep -= 1  # its record would reach behind the end: it is damaged
        while len(self.segments) > 1 and self.segments[-1].start >= keep * ENTRY_BYTES:
            self.segments.pop().delete()
        segment = self.segments[-1]
        start = max(0, keep * ENTRY_BYTES - segment.start)
        stop = min(self.file_bytes, before * ENTRY_BYTES - segment.start)
        if stop > start:
            segment.allocate(start, stop - start)
            segment.view[start:stop] = bytes(stop - start)
        self._forced_to = min(self._forced_to, segment.start)
        self.tail.next_offset = keep
        last = self.entry(keep - 1)
        self.tail.max_physical = 0 if last is None or last.size == FILLER_SIZE else last.physical_offset + last.size
        self.tail.attach(None, 0, 0)
        self.tail.reserved = self._filled_to = 0
        return before - keep

    def detach_expired(self, min_physical: int) -> list[Segment]:
        """The files whose last entry points before the log's start, taken out; the last file keeps the count."""
        detached = []
        while len(self.segments) > 1:
            last = self.entry(self.segments[1].start // ENTRY_BYTES - 1)
            if last is None or last.physical_offset >= min_physical:
                break
            oldest = self.segments.pop(0)
            oldest.unpin()
            detached.append(oldest)
        self._checked_min = -1
        return detached

    def destroy(self) -> None:
        self.unmap()
        self._filled_to = self._forced_to = 0
        for segment in self.segments:
            segment.delete()
        self.segments = []
        self.tail.next_offset = self.tail.max_physical = 0
        self._min_bytes, self._checked_min = 0, -1
        if self.folder.is_dir():
            self._disk.remove_folder(self.folder)

    def begin_again(self) -> None:
        """Drop every entry; the next one is that of offset 0 again."""
        for segment in self.segments:
            segment.delete()
        self.segments = []
        self.tail.next_offset = self.tail.max_physical = 0
        self.tail.attach(None, 0, 0)
        self.tail.reserved = self._filled_to = self._forced_to = 0
        self._min_bytes, self._checked_min = 0, -1

    def unmap(self) -> None:
        """Unmap the files; the next message or reader maps what it needs again."""
        self._mapped.remove(self)
        self.tail.attach(None, 0, 0)
        self.tail.reserved = 0
        for segment in self.segments:
            segment.unmap()

    def _force_names(self) -> None:
        folder = self.folder
        for each in (folder, folder.parent, folder.parent.parent, folder.parent.parent.parent):
            if each.is_dir():  # the deletion of a topic may have been faster
                self._disk.force_folder(each)

    def force(self) -> None:
        """Have the entries on disk, and the names of new files and folders: who finds no queue cannot know of its
        messages. Called in the flush thread."""
        segments = list(self.segments)
        for segment in segments:
            if segment.end > self._forced_to:
                segment.force()
        if self._has_new_names:
            self._has_new_names = False
            try:
                self._force_names()
            except BaseException:
                self._has_new_names = True
                raise
        if segments:
            self._forced_to = segments[-1].start

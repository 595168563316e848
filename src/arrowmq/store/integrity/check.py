"""`arrowmq store check`: every record, checksum, queue entry and index entry of a directory, verified.

Nothing is changed. The queues are made a second time in memory from the records, and compared with the files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from arrowmq.store.append._tail_plain import ENTRY, INDEX_ENTRY
from arrowmq.store.append.tails import IndexTail, LogTail, QueueTail, dispatch_facts, index_keys, key_hash
from arrowmq.store.index import IndexFile
from arrowmq.store.integrity.inspection import StoreView
from arrowmq.store.integrity.recovery import known_topics
from arrowmq.store.log.segment import Segment
from arrowmq.store.log.walk import (
    BLANK,
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    END_OF_BUFFER,
    REASONS,
    Progress,
    check_record,
    next_record,
    topic_and_properties,
    walk_in_steps,
)
from arrowmq.store.queues.consumequeue import ENTRY_BYTES, FILLER, ConsumeQueue

MAX_PROBLEMS = 200
LEAST_RECORD_BYTES = 91
_GROW_BYTES = 20 * 65_536


@dataclass
class Problem:
    where: str
    what: str


@dataclass
class CheckReport:
    records: int = 0
    record_bytes: int = 0
    queue_entries: int = 0
    index_entries: int = 0
    end: int = 0
    is_clean: bool = True
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)  # where damage begins, and where the next record does

    def add(self, where: str, what: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(where, what))

    @property
    def is_sound(self) -> bool:
        return self.problem_count == 0


class QueueRebuild:
    """Takes the walk's records into queues that live in memory."""

    def __init__(self) -> None:
        self.log = LogTail()
        self.index = IndexTail()
        self.entries_restored = 0
        self.notifies_every = False
        self.tails: dict[tuple[bytes, int], QueueTail] = {}
        self.buffers: dict[QueueTail, bytearray] = {}
        self.first_offsets: dict[QueueTail, int] = {}
        self.out_of_order: list[tuple[str, int, int, int]] = []
        self.holes: list[tuple[int, int]] = []  # that the walk came over

    def queue(self, topic: bytes, queue_id: int) -> QueueTail:
        tail = self.tails.get((topic, queue_id))
        if tail is None:
            tail = self.tails[topic, queue_id] = QueueTail(topic.decode("utf-8", "replace"), queue_id)
            if tail.topic == "SCHEDULE_TOPIC_XXXX":
                tail.delays_ms = self.delays_ms
        return tail

    delays_ms: tuple[int, ...] = ()

    def restore_entry(self, tail: QueueTail, queue_offset: int, physical: int, size: int, code: int) -> bool:
        if queue_offset < tail.next_offset:  # `begun_anew` noted it
            return True
        is_first = tail not in self.first_offsets
        if is_first and queue_offset * ENTRY_BYTES <= physical:  # as in `ConsumeQueue.can_lack`
            self.first_offsets[tail] = tail.next_offset = queue_offset
        elif is_first or (queue_offset != tail.next_offset and not self._are_damaged(tail, queue_offset, physical)):
            self.out_of_order.append((tail.topic, tail.queue_id, queue_offset, physical))
            return True
        while tail.next_offset < queue_offset:
            self._append(tail, FILLER)
        self._append(tail, ENTRY.pack(physical, size, code))
        tail.max_physical = physical + size
        return True

    def _are_damaged(self, tail: QueueTail, queue_offset: int, physical: int) -> bool:
        """Whether the records of the entries before this one can be what is damaged in the log."""
        lost = sum(end - start for start, end in self.holes if tail.max_physical <= start and end <= physical)
        return (queue_offset - tail.next_offset) * LEAST_RECORD_BYTES <= lost

    def _append(self, tail: QueueTail, entry: bytes) -> None:
        self._grow(tail)
        assert tail.view is not None
        at = tail.next_offset * ENTRY_BYTES - tail.file_start
        tail.view[at : at + ENTRY_BYTES] = entry
        tail.next_offset += 1

    def _grow(self, tail: QueueTail) -> None:
        start = self.first_offsets[tail] * ENTRY_BYTES
        used = tail.next_offset * ENTRY_BYTES - start
        buffer = self.buffers.get(tail, bytearray())
        if used + ENTRY_BYTES > len(buffer):
            larger = bytearray(max(_GROW_BYTES, 2 * len(buffer)) if len(buffer) else 20 * 64)
            larger[: len(buffer)] = buffer
            self.buffers[tail] = larger
            tail.attach(memoryview(larger), start, len(larger))

    def restore_keys(self, topic: bytes, words: list[bytes], physical: int, store_timestamp: int) -> None:
        """The index is checked entry by entry later."""

    def begun_anew(self, tail: QueueTail, queue_offset: int, physical: int) -> QueueTail | None:
        if queue_offset != 0:
            self.out_of_order.append((tail.topic, tail.queue_id, queue_offset, physical))
        else:
            tail.next_offset = tail.max_physical = 0
            tail.attach(None, 0, 0)
            self.buffers.pop(tail, None)
            self.first_offsets.pop(tail, None)
        return tail

    def arrived(self, tail: QueueTail, store_timestamp: int, properties: bytes) -> None:
        """Nobody reads what is rebuilt here."""

    def expected(self, tail: QueueTail) -> memoryview:
        length = (tail.next_offset - self.first_offsets[tail]) * ENTRY_BYTES
        return memoryview(self.buffers[tail])[:length]


class StoreCheck:
    def __init__(self, view: StoreView) -> None:
        self._view = view
        self.report = CheckReport(is_clean=view.is_clean)
        self._sink = QueueRebuild()
        self._sink.delays_ms = view.config.delay_levels_ms
        self._sink.holes = self.report.holes

    def run(self, progress: Callable[[str, int], object] | None = None) -> CheckReport:
        """`progress` is told the stage (records, queues, index) and by how much it moved on."""
        advance = progress or (lambda stage, amount: None)
        self.check_log(lambda amount: advance("records", amount))
        self._check_queues(lambda amount: advance("queues", amount))
        self._check_index(lambda amount: advance("index", amount))
        return self.report

    def check_log(self, progress: Progress) -> None:
        report = self.report
        segments = self._view.commit_log.segments
        for number, segment in enumerate(segments):
            position = 0
            while True:
                before = position
                checks = CHECK_BODY_CRC | CHECK_RECORD_CRC
                position, verdict, records, _ = walk_in_steps(segment, position, checks, self._sink, progress)
                report.records += records
                report.record_bytes += position - before
                if verdict in (BLANK, END_OF_BUFFER):
                    report.end = segment.end
                    break
                following = next_record(segment, position + 1, segment.size, 0)
                forced = self._view.forced_end - segment.start
                if following < 0 and position < forced < segment.size:  # the last records, and they were sound once
                    following = forced
                if following < 0:
                    where = f"{segment.path.name} at {segment.start + position}"
                    if number < len(segments) - 1 and self._is_used(segments[number + 1]):
                        report.add(where, REASONS[verdict])
                    elif any(segment.view[position : position + 8]):
                        report.add(where, f"end of the log: {REASONS[verdict]}")
                    report.end = segment.start + position
                    break
                report.add(f"{segment.path.name} at {segment.start + position}", REASONS[verdict])
                report.holes.append((segment.start + position, segment.start + following))
                position = following

    def _is_used(self, segment: Segment) -> bool:
        return check_record(segment.view, 0, segment.size, segment.start, 0) > BLANK

    def _check_queues(self, progress: Progress) -> None:
        topics = known_topics(self._view.root)
        for topic, queue_id, queue_offset, physical in self._sink.out_of_order:
            self.report.add(f"log at {physical}", f"queue offset {queue_offset} of {topic}/{queue_id} is out of order")
        expected = {(tail.topic, tail.queue_id): tail for tail in self._sink.first_offsets}
        for queue in self._view.queues:
            tail = expected.pop((queue.tail.topic, queue.tail.queue_id), None)
            self._check_queue(queue, tail)
            progress(queue.tail.next_offset - queue.first_offset)
        batches = self._view.root / "batchconsumequeue"
        for topic, queue_id in expected:
            is_batch = (batches / topic / str(queue_id)).is_dir()
            if not is_batch and (topics is None or topic in topics):
                self.report.add(f"{topic}/{queue_id}", "the log has messages of this queue, but its files are missing")

    def _check_queue(self, queue: ConsumeQueue, tail: QueueTail | None) -> None:
        name = f"{queue.tail.topic}/{queue.tail.queue_id}"
        smallest = self._view.commit_log.min_offset
        first = self._sink.first_offsets[tail] if tail is not None else queue.tail.next_offset
        wanted = self._sink.expected(tail) if tail is not None else memoryview(b"")
        last = tail.next_offset if tail is not None else first
        for offset in range(queue.first_offset, min(first, queue.tail.next_offset)):
            entry = queue.entry(offset)
            if entry is not None and entry.size != 0x7FFFFFFF and entry.physical_offset >= smallest:
                self.report.add(f"{name} at {offset}", "the entry points to no record of this queue")
        offset = first
        while offset < min(last, queue.tail.next_offset):
            actual = queue.view_at(offset, min(last, queue.tail.next_offset))
            if actual is None:
                self.report.add(f"{name} at {offset}", "the file that should hold the entry is missing")
                return
            at = (offset - first) * ENTRY_BYTES
            if actual != wanted[at : at + len(actual)]:
                self._compare(name, offset, actual, wanted[at : at + len(actual)])
            offset += len(actual) // ENTRY_BYTES
        self.report.queue_entries += queue.tail.next_offset - queue.first_offset
        if queue.tail.next_offset < last:
            self.report.add(name, f"{last - queue.tail.next_offset} entries are missing at the end")
        elif queue.tail.next_offset > last:
            self.report.add(name, f"{queue.tail.next_offset - last} entries point behind the end of the log")

    def _compare(self, name: str, offset: int, actual: memoryview, wanted: memoryview) -> None:
        for at in range(0, len(actual), ENTRY_BYTES):
            one, other = bytes(actual[at : at + ENTRY_BYTES]), bytes(wanted[at : at + ENTRY_BYTES])
            if one != other and FILLER not in (one, other):
                self.report.add(
                    f"{name} at {offset + at // ENTRY_BYTES}",
                    f"the entry is {ENTRY.unpack(one)}, the log says {ENTRY.unpack(other)}",
                )

    def _check_index(self, progress: Progress) -> None:
        for file in self._view.index.files:
            self._check_index_file(file, progress)

    def _check_index_file(self, file: IndexFile, progress: Progress) -> None:
        name = f"index/{file.segment.path.name}"
        _, _, _, _, used, count = file.header()
        if count > file.max_entries:
            self.report.add(name, f"the header claims {count} entries, there is room for {file.max_entries}")
            return
        newest: dict[int, int] = defaultdict(int)
        smallest = self._view.commit_log.min_offset
        cached_at, cached = -1, set[int]()
        entries = file.segment.view[file.entries_at + 20 : file.entries_at + 20 * count]
        for number, (hash_of_key, physical, _, previous) in enumerate(INDEX_ENTRY.iter_unpack(entries), 1):
            slot = hash_of_key % file.slots
            if previous != newest[slot]:
                self.report.add(f"{name} entry {number}", f"names {previous} as the one before, not {newest[slot]}")
            newest[slot] = number
            if physical != cached_at:
                cached_at, cached = physical, self._keys_at(physical)
            if physical >= smallest and hash_of_key not in cached:
                self.report.add(f"{name} entry {number}", f"no record with such a key lies at {physical}")
            if number % 4096 == 0:
                progress(4096)
        progress((count - 1) % 4096)
        self.report.index_entries += count - 1
        for slot, number in newest.items():
            if file.slot(slot) != number:
                self.report.add(f"{name} slot {slot}", f"names entry {file.slot(slot)}, the newest is {number}")
        if used != len(newest):
            self.report.add(name, f"the header claims {used} used slots, there are {len(newest)}")

    def _keys_at(self, physical: int) -> set[int]:
        segment = self._view.commit_log.segment_at(physical)
        if segment is None:
            return set()
        position = physical - segment.start
        found = topic_and_properties(segment.view, position, segment.size)
        if found is None:
            return set()
        topic, properties = found
        tags, keys, unique, _ = dispatch_facts(properties)
        return {key_hash(topic + b"#" + word) for word in index_keys(keys, unique, tags)}

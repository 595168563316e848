"""Opening a store: find the end of the log by its bytes, and make queues and index agree with it.

1. Choose a segment to start from: after a clean stop the last one, after a crash the one the checkpoint allows.
2. Read record by record (size, magic, lengths, own offset, checksums). What the queues and the index lack is given
   to them. If a queue lacks entries from before the start, start one segment earlier.
3. The first record that is not sound ends the log: the rest is cut, later files are deleted, and what is left of
   the last file is zeroed, so that nothing old can come back. But what the checkpoint says was forced has been whole,
   and so has all that queues know of if the machine was not started anew since: there the disk has changed it, and it
   costs itself alone. It stays as a hole that readers leave out, and `arrowmq store repair` fills; the log goes on
   behind it.
4. Entries of queues and index that point behind the end are dropped.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from pathlib import Path

from arrowmq.store.append.tails import LogTail, QueueTail
from arrowmq.store.config import StoreConfig
from arrowmq.store.index import Index
from arrowmq.store.integrity.checkpoint import Checkpoint
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.log.segment import Segment
from arrowmq.store.log.walk import (
    BAD_PROPERTIES,
    BLANK,
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    END_OF_BUFFER,
    GAP,
    IS_COMPLETE,
    REASONS,
    Progress,
    Walked,
    check_record,
    looks_odd,
    next_record,
    walk,
    walk_in_steps,
)
from arrowmq.store.queues.consumequeue import ConsumeQueue
from arrowmq.store.queues.table import Queues
from arrowmq.store.read.reader import store_timestamp_of
from arrowmq.store.results import Hole, Recovered

log = logging.getLogger(__name__)


def known_topics(root: Path) -> set[str] | None:
    """The topics of config/topics.json; None if that file does not say. A topic that was deleted is not in it, and its
    records, which stay in the log for a while, must not bring its queues back."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            table = json.loads((root / "config" / name).read_bytes()).get("topicConfigTable")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(table, dict):
            return set(table)
    return None


class RecoverySink:
    """Takes what a walk reads to the queues and the index."""

    def __init__(self, tail: LogTail, queues: Queues, index: Index, topics: set[str] | None) -> None:
        self.log = tail
        self.index = index.tail
        self._queues = queues
        self._index = index
        self._topics = topics
        self._owners: dict[QueueTail, ConsumeQueue] = {}
        self.tails: dict[tuple[bytes, int], QueueTail | None] = {}
        self.fills_gaps = False
        self.entries_restored = 0
        self.notifies_every = False

    def queue(self, topic: bytes, queue_id: int) -> QueueTail | None:
        try:
            return self.tails[topic, queue_id]
        except KeyError:
            pass
        name = topic.decode("utf-8", "replace")
        queue = self._queues.find(name, queue_id)
        if queue is None and (self._topics is None or name in self._topics) and queue_id >= 0 and "/" not in name:
            queue = self._queues.get(name, queue_id)
        tail = None if queue is None else queue.tail
        if queue is not None:
            self._owners[queue.tail] = queue
        self.tails[topic, queue_id] = tail
        return tail

    def restore_entry(self, tail: QueueTail, queue_offset: int, physical: int, size: int, code: int) -> bool:
        queue = self._owners[tail]
        before = tail.next_offset
        if not queue.restore(self.log, queue_offset, physical, size, code):
            if not self.fills_gaps:
                return False
            if not queue.can_lack(queue_offset, physical):
                log.warning(
                    "record at %d says it is message %d of %s queue %d, which cannot be: it stays out of its queue",
                    physical, queue_offset, tail.topic, tail.queue_id,
                )  # fmt: skip
                return True
            queue.fill_up_to(queue_offset)
            queue.restore(self.log, queue_offset, physical, size, code)
        if tail.next_offset != before:
            self.entries_restored += 1
        return True

    def restore_keys(self, topic: bytes, words: list[bytes], physical: int, store_timestamp: int) -> None:
        self._index.restore(topic, words, physical, store_timestamp)

    def begun_anew(self, tail: QueueTail, queue_offset: int, physical: int) -> QueueTail | None:
        """The entries are those of a topic that was deleted before: they came back with files that a power loss let
        reappear, or were restored by this walk."""
        if queue_offset != 0:
            log.warning(
                "record at %d says it is message %d of %s queue %d, which has that one: it stays out of its queue",
                physical, queue_offset, tail.topic, tail.queue_id,
            )  # fmt: skip
            return tail
        log.info("queue begins anew topic=%s queue=%d physical=%d", tail.topic, tail.queue_id, physical)
        self._owners[tail].begin_again()
        return tail

    def arrived(self, tail: QueueTail, store_timestamp: int, properties: bytes) -> None:
        """Nobody reads yet."""


class Recovery:
    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: Queues,
        index: Index,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
        *,
        boot: int = 0,
    ) -> None:
        self._progress = progress
        self._boot = boot
        self._known_end = 0
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._root = root
        self._checks = CHECK_BODY_CRC if config.check_crc_on_recover else 0
        if config.enabled_append_prop_crc or config.force_verify_prop_crc:
            self._checks |= CHECK_RECORD_CRC
        self.checked_from = 0
        self._was_unused = False
        self._holes: list[Hole] = []

    def rebuild(self) -> Recovered:
        """Make queues and index anew from the first record on.

        A queue whose messages all expired has nothing in the log that tells its count: that is carried over.
        """
        counts = {(queue.tail.topic, queue.tail.queue_id): queue.tail.next_offset for queue in self._queues}
        self._queues.destroy()
        self._index.destroy()
        self._checkpoint.physic_msg_timestamp = self._checkpoint.logics_msg_timestamp = 0
        recovered = self.run(was_clean=False)
        for (topic, queue_id), count in counts.items():
            if count and self._queues.get(topic, queue_id).tail.next_offset == 0:
                self._queues.get(topic, queue_id).begin_at(count)
        return recovered

    def run(self, *, was_clean: bool) -> Recovered:
        segments = self._log.segments
        if not segments:
            self._queues.destroy()
            self._index.destroy()
            self._log.end_at(0)
            return Recovered(was_clean, 0, 0, 0, 0, 0, 0, 0, "the log is empty")
        size_before = segments[-1].end
        self._known_end = self._checkpoint.log_end
        if self._known_end > size_before:
            log.error(
                "the log was forced to disk up to %d, and its files end at %d: what was behind is in a copy or gone",
                self._known_end,
                size_before,
            )
        if self._boot and self._boot == self._checkpoint.boot:
            self._known_end = max(self._known_end, self._queues.max_physical)
        if not was_clean:
            self._index.repair_after_crash(size_before, self._checkpoint.index_msg_timestamp)
        start = self._start_after_stop() if was_clean else self._start_after_crash()
        start = min([start, *(self._number_of(queue.tail.max_physical) for queue in self._queues if queue.was_damaged)])
        topics = known_topics(self._root)
        while True:
            sink = RecoverySink(self._log.tail, self._queues, self._index, topics)
            sink.fills_gaps = start == 0
            end, verdict, records, newest = self._walk(start, sink)
            if verdict != GAP:
                break
            start -= 1
        self.checked_from = segments[start].start
        bytes_read = end - self.checked_from
        self._checkpoint.forget_beyond(end)
        self._log.end_at(end)
        self._log.tail.last_store_timestamp = newest
        dropped = {queue: count for queue in self._queues if (count := queue.truncate(end))}
        was_unused, holes = self._was_unused, tuple(self._holes)
        if self._index.truncate(end):
            self._walk(self._number_of(self._index.indexed_end), sink)
        self._was_unused = was_unused
        cut = self._bytes_cut(end, size_before, verdict)
        entries = sum(dropped.values())
        if cut:
            log.warning("the log was cut at %d: %s; %d entries pointed behind it", end, REASONS[verdict], entries)
        elif dropped:  # it is they that were damaged
            log.warning("%d entries of queues point behind the log, which ends at %d: made anew from it", entries, end)
            sink.fills_gaps = True
            self._walk(min(self._number_of(queue.tail.max_physical) for queue in dropped), sink)
        return Recovered(
            was_clean,
            self._log.min_offset,
            end,
            cut,
            records,
            bytes_read,
            sink.entries_restored,
            len(self._queues),
            REASONS[verdict],
            holes,
        )

    def _number_of(self, physical_offset: int) -> int:
        """Which segment holds a place in the log; the first for one before it."""
        starts = [segment.start for segment in self._log.segments]
        return max(0, bisect_right(starts, physical_offset) - 1)

    def _bytes_cut(self, end: int, size_before: int, verdict: int) -> int:
        """What lay behind the end and was not just the unused rest of the last file: 0 if the log ended properly."""
        return 0 if verdict in (BLANK, END_OF_BUFFER) or self._was_unused else size_before - end

    def _walk(self, start: int, sink: RecoverySink) -> tuple[int, int, int, int]:
        records = newest = 0
        segments = self._log.segments
        self._was_unused = False
        self._holes = []
        for number in range(start, len(segments)):
            segment = segments[number]
            view = segment.view
            position = 0
            while True:
                position, verdict, count, last = walk_in_steps(segment, position, self._checks, sink, self._progress)
                records += count
                newest = max(newest, last)
                if verdict == BAD_PROPERTIES:
                    passed = self._pass_odd(segment, position, sink)
                    if passed.records:
                        records, newest = records + 1, max(newest, passed.last_store_timestamp)
                        position = passed.position
                        continue
                    verdict = passed.verdict
                behind = self._goes_on_at(segment, position, verdict)
                if behind < 0:
                    break
                self._holes.append(Hole(segment.start + position, segment.start + behind, REASONS[verdict]))
                position = behind
            is_last = number == len(segments) - 1
            if verdict not in (BLANK, END_OF_BUFFER) or is_last:
                if verdict == BLANK:
                    # The file is full, though the next is missing. Written over, the blank could come back by a loss of
                    # power, and hide what was written there from what is behind it; and slaves have it as it was.
                    position = segment.size
                self._was_unused = not any(view[position : position + 8])
                return segment.start + position, verdict, records, newest
        raise AssertionError("there is at least one segment to walk")

    def _pass_odd(self, segment: Segment, position: int, sink: RecoverySink) -> Walked:
        """The last record, if it looks torn and is not: its sender put zeros into its properties."""
        end = position + int.from_bytes(segment.view[position : position + 4], "big")
        is_known = end <= min(self._known_end - segment.start, segment.size)
        if not is_known or not looks_odd(segment.view, position, end, segment.start, self._checks):
            return Walked(position, BAD_PROPERTIES, 0, 0)
        return walk(segment.view, position, end, segment.start, self._checks | IS_COMPLETE, sink)

    def _goes_on_at(self, segment: Segment, position: int, verdict: int) -> int:
        """Where the log goes on behind bytes that are no record, but were when they were forced; -1 if it ends."""
        whole = min(self._known_end - segment.start, segment.size)
        if position >= whole or verdict in (BLANK, END_OF_BUFFER, GAP):
            return -1
        is_forced = segment.start + position < self._checkpoint.log_end
        if not is_forced and not any(segment.view[position : position + 8]):
            return -1  # it is a queue that is damaged, and says too much
        behind = position + int.from_bytes(segment.view[position : position + 4], "big")
        if (
            position < behind < whole
            and check_record(segment.view, behind, segment.size, segment.start, self._checks) > 0
        ):
            return behind
        following = next_record(segment, position + 1, whole, self._checks)
        if following >= 0:
            return following
        # Nothing sound is left of what was forced. A copy may have been forced amid a record: that one is cut.
        is_known = whole in (behind, segment.size) or self._queues.max_physical == self._known_end
        return whole if is_known else -1

    def _first_record_time(self, segment: Segment) -> int | None:
        """The store time of a segment's first record, if that is sound."""
        if check_record(segment.view, 0, segment.size, segment.start, self._checks) <= BLANK:
            return None
        return store_timestamp_of(segment.view) or None

    def _start_after_stop(self) -> int:
        """The last segment that starts with a sound record which the queues, and the index, already know."""
        indexed = self._index.indexed_end if self._index.tail.enabled else 1 << 62
        known = min(self._queues.max_physical, indexed + 1)
        for number in range(len(self._log.segments) - 1, 0, -1):
            segment = self._log.segments[number]
            if segment.start < known and self._first_record_time(segment) is not None:
                return number
        return 0

    def _start_after_crash(self) -> int:
        indexed = self._index.indexed_end if self._index.tail.enabled else 1 << 62
        for number in range(len(self._log.segments) - 1, 0, -1):
            segment = self._log.segments[number]
            time = self._first_record_time(segment)
            if time is not None and time <= self._checkpoint.min_timestamp and segment.start <= indexed:
                return number
        return 0

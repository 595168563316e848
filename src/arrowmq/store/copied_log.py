"""The commit log as the copy of another broker's: its bytes come as they are, cut anywhere, and are dispatched here.

In: bytes at the offset they have on the other broker, received into one buffer (`place`, `received`), from there
written to the file, and checked and dispatched while they are still in the processor's cache. Receiving into the mapped
file would save a copy and cost more: its pages have to be there before, and each is taken into the mapping by itself.
Out: the same log, byte for byte, and the queue and index entries of every record that is whole.

Whatever does not fit raises `CopyRefused` and leaves the copy as it was: a gap, an offset that is not the next one, a
file size that is not the other broker's, bytes that are no record. `cut` drops what is behind the last whole record.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from arrowmq.store.errors import StoreError
from arrowmq.store.log.walk import (
    BLANK,
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    END_OF_BUFFER,
    IS_COMPLETE,
    REASONS,
    TORN,
    walk,
)
from arrowmq.store.positions import Appended

if TYPE_CHECKING:
    from arrowmq.store.append._tail_plain import IndexTail, LogTail, QueueTail
    from arrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_SIZE_AND_MAGIC = struct.Struct(">II")
_BUFFER_BYTES = (1 << 20) + (256 << 10)  # a packet of another ArrowMQ broker, behind the part of a record
_LARGEST_RECORD_OVERHEAD = 65_536  # how much a record may exceed maxMessageSize by: topic, properties, fields


class CopyRefused(StoreError):
    """What was received does not continue this log."""


class CopySink:
    """Takes what a walk over new bytes reads to the queues and the index, and wakes who waits for it."""

    def __init__(self, store: MessageStore) -> None:
        self.log: LogTail = store.commit_log.tail
        self.index: IndexTail = store.index.tail
        self.entries_restored = 0
        self._store = store
        self._queues = store.consume_queues

    @property
    def notifies_every(self) -> bool:
        return len(self._store.listeners_of_every) > 0

    def queue(self, topic: bytes, queue_id: int) -> QueueTail | None:
        """Not kept between walks: the queues of a topic that was deleted are others than those it had before."""
        name = topic.decode("utf-8", "replace")
        queue = self._queues.find(name, queue_id)
        if queue is None:
            if queue_id < 0 or "/" in name or name in (".", ".."):
                return None
            queue = self._queues.get(name, queue_id)
        return queue.tail

    def restore_entry(self, tail: QueueTail, queue_offset: int, physical: int, size: int, code: int) -> bool:
        queue = self._queues.get(tail.topic, tail.queue_id)
        before = tail.next_offset
        if not queue.restore(self.log, queue_offset, physical, size, code):
            if not queue.can_lack(queue_offset, physical):
                return False
            # The copy begins amid the other broker's log: what this queue had before is not in it.
            queue.fill_up_to(queue_offset)
            queue.restore(self.log, queue_offset, physical, size, code)
        if tail.next_offset != before:
            self.entries_restored += 1
        return True

    def begun_anew(self, tail: QueueTail, queue_offset: int, physical: int) -> QueueTail | None:
        """The master deleted the topic and made it again, and the tables have not said so yet. Any other
        offset that the queue has is damaged, and costs it nothing."""
        if queue_offset != 0:
            return None
        queue = self._queues.get(tail.topic, tail.queue_id)
        watched = tail.watched
        log.info("queue begins anew topic=%s queue=%d offset=%d", tail.topic, tail.queue_id, queue_offset)
        queue.begin_again()
        queue.tail.watched = watched
        return queue.tail

    def restore_keys(self, topic: bytes, words: list[bytes], physical: int, store_timestamp: int) -> None:
        self._store.index.restore(topic, words, physical, store_timestamp)

    def arrived(self, tail: QueueTail, store_timestamp: int, properties: bytes) -> None:
        self._store.notify_copied(tail, store_timestamp, properties)


class CopiedLog:
    def __init__(self, store: MessageStore, *, checks_crc: bool = True) -> None:
        self._store = store
        self._log = store.commit_log
        self._sink = CopySink(store)
        self._checks = IS_COMPLETE
        if checks_crc:
            self._checks |= CHECK_BODY_CRC
            if store.config.enabled_append_prop_crc or store.config.force_verify_prop_crc:
                self._checks |= CHECK_RECORD_CRC
        self._largest = store.config.max_message_size + _LARGEST_RECORD_OVERHEAD
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._held = 0  # bytes in it: those behind the last whole record
        self._blank_at = -1  # the rest of the file is blank from here on, and is not kept in the buffer
        self.dispatched = int(store.appended)  # the end of the last whole record

    @property
    def end(self) -> Appended:
        """Where the next byte belongs; also that of a record that is not whole yet."""
        return self._store.appended

    @property
    def is_empty(self) -> bool:
        """Whether it has no record and no part of one, though perhaps a file for the first."""
        segments = self._log.segments
        return not segments or (len(segments) == 1 and self.end == segments[0].start)

    def begin_at(self, offset: int) -> None:
        """Let an empty copy begin at the start of one of the other broker's files."""
        if not self.is_empty:
            raise CopyRefused(f"this log ends at {self.end} and cannot begin again at {offset}")
        if offset < 0 or offset % self._log.file_bytes:
            raise CopyRefused(
                f"a copy begins at the start of a file, and {offset} is none with mappedFileSizeCommitLog="
                f"{self._log.file_bytes}: set the size that the other broker has"
            )
        self._log.begin_at(offset)
        self._store.positions.cut(offset)
        self.dispatched = offset

    def place(self, offset: int, size: int) -> memoryview:
        """Where to receive so many bytes, or the first of them, from this offset on; `received` says how many came."""
        log, tail = self._log, self._log.tail
        if self.is_empty and (not log.segments or offset != self.end):
            self.begin_at(offset)
        if offset != self.end:
            raise CopyRefused(f"the bytes received begin at {offset}, and this log ends at {self.end}")
        if tail.view is None or tail.position == tail.size:
            self.dispatch()
            if self.dispatched != self.end:
                raise CopyRefused(f"the record at {self.dispatched} does not end in its file")
            log.roll()
        if tail.position + size > tail.size:
            raise CopyRefused(
                f"{size} bytes at {offset} cross the end of a file at {tail.start + tail.size}: set "
                "mappedFileSizeCommitLog to what the other broker has"
            )
        self._agree()
        if self._held == len(self._buffer):
            self.dispatch()
            if self._held == len(self._buffer):
                self._grow(2 * self._held)
        return self._buffer[self._held : self._held + size]

    def received(self, count: int) -> None:
        """So many bytes came to their place; records that are whole by now are dispatched with `dispatch`."""
        tail, held = self._log.tail, self._held
        self._store.disk.write_into(self._log.segments[-1].path, tail.position, self._buffer[held : held + count])
        tail.position += count
        if self._blank_at < 0:
            self._held += count

    def _grow(self, size: int) -> None:
        buffer = memoryview(bytearray(size))
        buffer[: self._held] = self._buffer[: self._held]
        self._buffer = buffer

    def _agree(self) -> None:
        """Hold what is behind the last whole record, also after the log was cut by others."""
        tail = self._log.tail
        held = int(self.end) - self.dispatched
        if self._blank_at == self.dispatched and held >= _SIZE_AND_MAGIC.size:
            return
        self._blank_at = -1
        if held != self._held:
            assert tail.view is not None
            self._held = 0
            if held > len(self._buffer):
                self._grow(held)
            self._buffer[:held] = tail.view[tail.position - held : tail.position]
            self._held = held

    def dispatch(self) -> None:
        """Give what is whole to queues and index, wake readers. Raises `CopyRefused` at bytes that are no record."""
        tail = self._log.tail
        if tail.view is None:
            return
        self._agree()
        if self._blank_at >= 0:
            self._pass_blank()
            return
        walked = walk(self._buffer, 0, self._held, self.dispatched, self._checks, self._sink)
        self.dispatched += walked.position
        self._held -= walked.position
        self._buffer[: self._held] = self._buffer[walked.position : walked.position + self._held]
        tail.last_store_timestamp = max(tail.last_store_timestamp, walked.last_store_timestamp)
        if walked.verdict == BLANK:
            self._begin_blank()
        elif walked.verdict == TORN:
            self._check_torn()
        elif walked.verdict != END_OF_BUFFER:
            raise CopyRefused(f"the bytes received at {self.dispatched}: {REASONS[walked.verdict]}")
        self._store.copied()

    def _begin_blank(self) -> None:
        tail = self._log.tail
        end = self.dispatched + _SIZE_AND_MAGIC.unpack_from(self._buffer)[0]
        if end != tail.start + tail.size:
            raise CopyRefused(
                f"the other broker's file ends at {end}, this one's at {tail.start + tail.size}: set "
                "mappedFileSizeCommitLog to what it has"
            )
        self._blank_at, self._held = self.dispatched, 0
        self._pass_blank()

    def _pass_blank(self) -> None:
        if self._log.tail.position == self._log.tail.size:
            self.dispatched, self._blank_at = int(self.end), -1

    def _check_torn(self) -> None:
        """Whether the rest of the record can still come."""
        if self._held < _SIZE_AND_MAGIC.size:
            return
        tail = self._log.tail
        size = _SIZE_AND_MAGIC.unpack_from(self._buffer)[0]
        if not 91 <= size <= min(self._largest, tail.start + tail.size - self.dispatched):
            raise CopyRefused(f"the bytes received at {self.dispatched} say they are a record of {size} bytes")

    def cut(self) -> int:
        """Drop what is behind the last whole record; how many bytes that were."""
        dropped = int(self.end) - self.dispatched
        if dropped > 0:
            with self._store.cutting(self.dispatched):
                self._log.end_at(self.dispatched)
            self._held, self._blank_at = 0, -1
        return dropped

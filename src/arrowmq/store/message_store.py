"""The store as the broker sees it: put, get, offsets, queries, positions, over one directory.

A put writes the record, its queue entry and its index entries in one call, so there is no moment in which a message is
acknowledged and cannot be consumed. Under SYNC_FLUSH readers see a message, and are woken, once it is forced to disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from arrowmq.clock import Clock, SystemClock
from arrowmq.store.append.tails import (
    NEEDS_INDEX_ROOM,
    NEEDS_QUEUE_ROOM,
    NEEDS_SEGMENT,
    append,
    append_batch,
    append_client_batch,
    dispatch_facts,
    index_keys,
)
from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk, StoreLock
from arrowmq.store.errors import OutOfSpace, StoreDamaged, StoreError
from arrowmq.store.flush import Flusher, Loop
from arrowmq.store.index import Index
from arrowmq.store.integrity.checkpoint import Checkpoint
from arrowmq.store.integrity.recovery import Recovery
from arrowmq.store.integrity.scrub import Scrub
from arrowmq.store.listeners import Listener, Listeners
from arrowmq.store.log.allocation import Allocator
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.log.walk import Progress
from arrowmq.store.positions import APPENDED, FLUSHED, Appended, Confirmed, Flushed, Positions
from arrowmq.store.queues.consumequeue import ConsumeQueue
from arrowmq.store.queues.table import Queues
from arrowmq.store.read.cold import ColdReader
from arrowmq.store.read.reader import QueueReader, Reader, store_timestamp_of
from arrowmq.store.results import Boundary, Entry, EntryFilter, Got, Put, PutStatus, Recovered
from arrowmq.store.retention import Retention
from arrowmq.touches import ANYTHING, Steps, Touches
from arrowmq.wire.records import Record, RecordError, decode_record

if TYPE_CHECKING:
    from arrowmq.store.append._tail_plain import QueueTail

_MAX_PROPERTIES_BYTES = 32767
_CRC_PROPERTY_BYTES = 20
_RECORD_OVERHEAD = 65_536  # how much a record may exceed maxMessageSize by, as Apache allows
_EVER_MS = (1 << 63) - 1
_QUERY_ROUNDS = 3
_WAITS_FOR_NOBODY = b"WAIT\x01false"


class MessageStore:
    def __init__(
        self, root: Path, config: StoreConfig | None = None, clock: Clock | None = None, disk: Disk | None = None
    ) -> None:
        self.root = Path(root)
        self.config = config or StoreConfig()
        self.clock: Clock = clock or SystemClock()
        self.disk = disk or Disk()
        log_folder = Path(self.config.store_path_commit_log or self.root / "commitlog")
        if "," in self.config.store_path_commit_log:
            raise StoreError("storePathCommitLog names several paths; ArrowMQ keeps its commit log in one")
        self.commit_log = CommitLog(self.disk, log_folder, self.config.mapped_file_size_commit_log)
        self.consume_queues = Queues(self.disk, self.root / "consumequeue", self.config)
        self.index = Index(self.disk, self.root / "index", self.config, self.clock)
        self.checkpoint = Checkpoint(self.root / "checkpoint", self.disk)
        self._lock = StoreLock(self.root / "lock", self.disk)
        self._abort = self.root / "abort"
        self.positions = Positions(self.commit_log.tail, self.clock)
        self.positions.promised = FLUSHED if self.config.is_sync_flush else APPENDED
        self.positions.timeout_s = self.config.sync_flush_timeout / 1000
        self._reader = Reader(self.commit_log, self.consume_queues, self.config, self.positions)
        self._flusher = Flusher(
            self.config,
            self.positions,
            self.commit_log,
            self.consume_queues,
            self.index,
            self.checkpoint,
            self.disk,
            self.clock,
        )
        self._listeners = Listeners()
        self.positions.subscribe(self._listeners.release)
        self._allocator = Allocator(self.commit_log, self.disk)
        self._cold = ColdReader(self)
        self.retention = Retention(self)
        self.scrub = Scrub(self)
        self._is_open = False
        self._is_sync = self.config.is_sync_flush
        self._with_crc = self.config.enabled_append_prop_crc
        self._max_properties = _MAX_PROPERTIES_BYTES - (_CRC_PROPERTY_BYTES + 1 if self._with_crc else 0)
        self._no_room: str | None = None
        self._refuses: Put | None = None
        self.escape: Callable[[Record], Put] | None = None  # takes what is put here in vain, elsewhere

    # Life

    def open(self, *, rebuilds: bool = False, progress: Progress | None = None) -> Recovered:
        """Lock the directory, then recover it. Raises a StoreError that says what is wrong, and has changed nothing.

        With `rebuilds` the queues and the index are made anew from the log; `progress` is told how many bytes of it
        were read.
        """
        self._refuse_batch_queues()
        self.disk.make_lasting_folder(self.root)
        self._lock.take()
        try:
            was_clean = not self._abort.exists()
            self.commit_log.load()
            self.consume_queues.load(thorough=not was_clean)
            self.index.load()
            self.checkpoint.load()
            boot = self.disk.boot()
            recovery = Recovery(
                self.root,
                self.config,
                self.commit_log,
                self.consume_queues,
                self.index,
                self.checkpoint,
                progress,
                boot=boot,
            )
            if rebuilds:
                recovered = recovery.rebuild()
            else:
                recovered = recovery.run(was_clean=was_clean)
            if not was_clean or rebuilds:
                # What was cut from queues and index must not come back with another power loss: once the log has grown
                # over it, an old entry would pass for a new one.
                self.disk.force_all(self.root)
            self.checkpoint.boot = boot
            self.checkpoint.save()
            self._write_abort()
        except BaseException:
            self._lock.release()
            raise
        self._reader.checked_from = recovery.checked_from
        self.scrub.note_all(recovered.holes)
        self.positions.flushed = Flushed(recovered.end if was_clean else recovery.checked_from)
        self._flusher.force_log()
        self._is_open = True
        return recovered

    def _refuse_batch_queues(self) -> None:
        """Topics with queue.type=BatchCQ keep other queue files; writing plain ones beside them would damage the store
        for Apache's broker."""
        folder = self.root / "batchconsumequeue"
        topics = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        if topics:
            raise StoreDamaged(
                f"{self.root} holds topics with queue.type=BatchCQ ({', '.join(topics[:5])}), which this broker cannot "
                "keep: delete them with Apache's broker first; nothing was changed"
            )

    def _write_abort(self) -> None:
        try:
            self.disk.write(self._abort, str(os.getpid()).encode())
            self.disk.force_folder(self.root)
        except OSError as problem:
            raise self.disk.explain(problem, self._abort) from problem

    def start(self, loop: Loop) -> None:
        """Start the threads: flushing, preparing the next segment, deleting old files."""
        self._flusher.start(loop)
        self._allocator.start()
        self.retention.start(loop.call_soon_threadsafe)
        self.scrub.start()

    def close(self) -> None:
        """Force everything, leave the directory as a clean stop leaves it, and unlock it."""
        if not self._is_open:
            return
        self._is_open = False
        self.scrub.stop()
        self.retention.stop()
        self._allocator.stop()
        self._cold.stop()
        self._flusher.stop()
        self.commit_log.drop_spare()
        self.index.drop_spare()
        self.commit_log.unmap()
        self.index.unmap()
        for queue in self.consume_queues:
            queue.unmap()
        self.disk.remove(self._abort)
        self.disk.force_folder(self.root)
        self._lock.release()

    # Writing

    def put(self, record: Record, *, wait: bool = True) -> Put:
        """Append one message. Where more is promised, the caller waits for it with `positions`, if the sender waits."""
        queue = self._queue_for(record)
        if isinstance(queue, Put):
            return queue
        now_ms = self.clock.now_ms()
        size = self._append(queue, record, now_ms)
        if isinstance(size, Put):
            return size
        if self._is_sync and wait:
            self._flusher.ask()
        place = record.physical_offset
        return Put(PutStatus.PUT_OK, place, size, record.queue_offset, now_ms, Appended(place + size), 1)

    def _queue_for(self, record: Record) -> ConsumeQueue | Put:
        """The queue of a message that may be put, or the refusal. A queue that exists has had its name checked."""
        if (
            not self._is_open
            or self.retention.disk_full_reason is not None
            or self._flusher.error is not None
            or self._refuses is not None
        ):
            refusal = self._refusal(record)
            if refusal is not None:
                return refusal
        if len(record.body) > self.config.max_message_size or len(record.properties_raw) > self._max_properties:
            return self._too_large(record)
        queue = self.consume_queues.find(record.topic, record.queue_id)
        if queue is not None:
            return queue
        return self._misnamed(record) or self.consume_queues.get(record.topic, record.queue_id)

    def put_batch(self, records: Iterable[Record], *, wait: bool = True) -> Put:
        """Append messages of one queue, all or none, in one segment, with consecutive queue offsets."""
        batch = list(records)
        if not batch:
            return Put(PutStatus.MESSAGE_ILLEGAL, reason="a batch needs at least one message")
        queue = self._queue_for(batch[0])
        if isinstance(queue, Put):
            return queue
        tail, now_ms = queue.tail, self.clock.now_ms()

        def write() -> tuple[int, int]:
            return append_batch(
                self.commit_log.tail, tail, self.index.tail, batch, now_ms, self._with_crc, self.config.max_message_size
            )

        written = self._with_room(queue, write)
        if isinstance(written, Put):
            return written
        return self._batch_done(queue, batch, batch[0], written, wait)

    def put_client_batch(self, template: Record, data: bytes, *, wait: bool = True) -> Put:
        """Append the messages of a client's batch body as it came from the wire: all or none, in one segment. The
        template gives queue, hosts, flags and born time, and gets the place of the first message."""
        queue = self._queue_for(template)
        if isinstance(queue, Put):
            return queue
        log, tail, index, now_ms = self.commit_log.tail, queue.tail, self.index.tail, self.clock.now_ms()
        with_crc, max_body = self._with_crc, self.config.max_message_size

        def write() -> tuple[int, int]:
            return append_client_batch(log, tail, index, template, data, now_ms, with_crc, max_body)

        written = self._with_room(queue, write)
        if isinstance(written, Put):
            return written
        has_listeners = tail.watched or self._listeners.wants_every
        records = self._records_of(queue, template.queue_offset, written[1]) if has_listeners else []
        return self._batch_done(queue, records, template, written, wait)

    def _records_of(self, queue: ConsumeQueue, offset: int, count: int) -> list[Record]:
        found = (self.record_at(entry.physical_offset) for entry in queue.entries(offset, count))
        return [record for record in found if record is not None]

    def _with_room(self, queue: ConsumeQueue, write: Callable[[], tuple[int, int]]) -> tuple[int, int] | Put:
        """Write a batch, making the room it says it lacks; its bytes and messages, or the refusal."""
        try:
            size, amount = write()
            while size < 0:
                if size == NEEDS_SEGMENT:
                    if amount + 8 > self.config.mapped_file_size_commit_log:
                        raise RecordError(f"the batch of {amount} bytes does not fit into a segment")
                    self.commit_log.roll()
                elif size == NEEDS_QUEUE_ROOM:
                    queue.reserve(amount)
                else:
                    self.index.make_room(amount)
                size, amount = write()
        except OutOfSpace as problem:
            return self._full(problem)
        except RecordError as problem:
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=str(problem))
        self._no_room = None
        return size, amount

    def _batch_done(
        self, queue: ConsumeQueue, batch: list[Record], first: Record, written: tuple[int, int], wait: bool
    ) -> Put:
        if batch and (queue.tail.watched or self._listeners.wants_every):
            end = self.appended if self.positions.promised else 0
            for record in batch:
                entry = queue.entry(record.queue_offset)
                self._listeners.notify(queue.tail, record, 0 if entry is None else entry.tags_code, end)
        if self._is_sync and wait:
            self._flusher.ask()
        place, (total, count) = first.physical_offset, written
        return Put(
            PutStatus.PUT_OK, place, total, first.queue_offset, first.store_timestamp, Appended(place + total), count
        )

    def _append(self, queue: ConsumeQueue, record: Record, now_ms: int) -> int | Put:
        """Write, making room where it is missing; a refusal has written nothing."""
        tail = queue.tail
        try:
            size = append(self.commit_log.tail, tail, self.index.tail, record, now_ms, self._with_crc)
            while size < 0:
                self._make_room(size, queue, record)
                size = append(self.commit_log.tail, tail, self.index.tail, record, now_ms, self._with_crc)
        except OutOfSpace as problem:
            return self._full(problem)
        except RecordError as problem:
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=str(problem))
        self._no_room = None
        if tail.watched or self._listeners.wants_every:
            end = record.physical_offset + size if self.positions.promised else 0
            self._listeners.notify(tail, record, tail.last_code, end)
        return size

    def _make_room(self, missing: int, queue: ConsumeQueue, record: Record) -> None:
        if missing == NEEDS_SEGMENT:
            if self._size_of(record) + 8 > self.config.mapped_file_size_commit_log:
                raise RecordError(f"the message of {self._size_of(record)} bytes does not fit into one segment")
            self.commit_log.roll()
        elif missing == NEEDS_QUEUE_ROOM:
            queue.make_room()
        elif missing == NEEDS_INDEX_ROOM:
            tags, keys, unique, _ = dispatch_facts(record.properties_raw)
            self.index.make_room(len(index_keys(keys, unique, tags)))
        else:
            raise AssertionError(f"append asked for room of an unknown kind: {missing}")

    def _size_of(self, record: Record) -> int:
        topic_bytes = len(record.topic.encode())
        properties = record.properties_raw
        extra = 0
        if self.config.enabled_append_prop_crc:
            extra = _CRC_PROPERTY_BYTES + (1 if properties and properties[-1] != 2 else 0)
        hosts = len(record.born_host[0]) + len(record.store_host[0])
        prefix = 2 if topic_bytes > 127 else 1
        return 82 + hosts + prefix + topic_bytes + len(record.body) + len(properties) + extra

    def _misnamed(self, record: Record) -> Put | None:
        topic_bytes = len(record.topic.encode())
        if topic_bytes == 0 or topic_bytes > 255 or (topic_bytes > 127 and not record.topic.startswith("%RETRY%")):
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"the topic has {topic_bytes} bytes; 1 to 127 are allowed")
        if "/" in record.topic or "\0" in record.topic or record.topic in (".", ".."):
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"the topic {record.topic!r} cannot be a folder's name")
        if record.queue_id < 0:
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"the queue id {record.queue_id} is negative")
        return None

    def _too_large(self, record: Record) -> Put:
        if len(record.body) > self.config.max_message_size:
            most = self.config.max_message_size
            return Put(PutStatus.MESSAGE_ILLEGAL, reason=f"the body has {len(record.body)} bytes of {most}")
        length = len(record.properties_raw)
        return Put(
            PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=f"the properties have {length} bytes of {self._max_properties}"
        )

    def refuse(self, why: Put | None) -> None:
        """Let every put be answered with this, whatever the disk says: the log is a copy, or replicas are missing. A
        sender that waits for no replica gets by in the second case, as in Apache's broker. None lets all in again."""
        self._refuses = why

    def _refusal(self, record: Record) -> Put | None:
        if self._is_open and not (self.retention.disk_full_reason or self._flusher.error) and self._refuses is not None:
            is_about_replicas = self._refuses.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            if is_about_replicas and _WAITS_FOR_NOBODY in record.properties_raw:
                return None
            return replace(self._refuses) if self.escape is None else self.escape(record)
        return Put(PutStatus.SERVICE_NOT_AVAILABLE, reason=self.why_not_writable())

    def _full(self, problem: OutOfSpace) -> Put:
        self._no_room = str(problem)
        return Put(PutStatus.SERVICE_NOT_AVAILABLE, reason=self._no_room)

    def why_refusing(self) -> str | None:
        """Why a put would be refused without being tried, whoever may put. A disk that was full does not count: the
        next put tries."""
        if self._is_open and self.retention.disk_full_reason is None and self._flusher.error is None:
            return None
        return self._why_disk()

    @property
    def is_writable(self) -> bool:
        return self.why_not_writable() is None

    def why_not_writable(self) -> str | None:
        """Why a put would be refused now, in words for an operator; None if it would not."""
        if self._is_open and self._refuses is not None:
            return self._refuses.reason or self._refuses.status.name
        return self._why_disk() or self._no_room

    def _why_disk(self) -> str | None:
        if not self._is_open:
            return "the store is not open"
        return self.retention.disk_full_reason or self._flusher.error

    def flush(self) -> Flushed:
        """Force the log now, in the calling thread."""
        self._flusher.force_log()
        self.positions.advanced()
        return self.positions.flushed

    def force_queues(self) -> None:
        """Have the entries of all queues on disk, in the calling thread."""
        self._flusher.force_queues()

    # Positions

    @property
    def appended(self) -> Appended:
        return Appended(self.commit_log.tail.appended)

    @property
    def unflushed_bytes(self) -> int:
        """How much of the log the disk does not have yet."""
        return self.positions.appended_end - self.positions.flushed_end

    @property
    def flushed_position(self) -> Flushed:
        return self.positions.flushed

    @property
    def confirmed(self) -> Confirmed:
        return self.positions.confirmed

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = 128 << 20,
        matches: EntryFilter | None = None,
    ) -> Got:
        return self._reader.get(topic, queue_id, offset, max_count, max_bytes, matches)

    def get_if_hot(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = 128 << 20,
        matches: EntryFilter | None = None,
    ) -> Got | None:
        """`get`, or None if that would wait for the disk: then `get_cold` does."""
        return self._reader.get_if_hot(topic, queue_id, offset, max_count, max_bytes, matches)

    @property
    def records(self) -> QueueReader:
        """What native readers read with."""
        return self._reader.records

    def queue(self, topic: str, queue_id: int) -> QueueTail:
        """The end of a queue, on which a reader sets `watched` to be told of messages."""
        return self.consume_queues.get(topic, queue_id).tail

    def has_messages(self, topic: str, queues: int) -> bool:
        """Whether any of so many queues ever had a message; by those the topic is found again after a crash."""
        return any(self.max_offset(topic, queue_id) > 0 for queue_id in range(queues))

    def extend(self, topic: str, queue_id: int, entries: int, words: int) -> bool:
        """Room for a batch in the files that its queue and the index write to now; False if it needs other files."""
        try:
            return self.consume_queues.get(topic, queue_id).extend(entries) and self.index.extend(words)
        except (StoreError, OSError):  # the general path tries again, and says why it cannot
            return False

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.consume_queues.find(topic, queue_id)
        return 0 if queue is None else self._reader.bounds(queue)[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.consume_queues.find(topic, queue_id)
        return 0 if queue is None else self._reader.bounds(queue)[1]

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary | str = Boundary.LOWER
    ) -> int:
        queue = self.consume_queues.find(topic, queue_id)
        boundary = Boundary(boundary.upper()) if isinstance(boundary, str) else boundary
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, boundary)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 if it is not, or no longer, there."""
        queue = self.consume_queues.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_time(queue, offset)

    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """When the oldest message, of all or of one queue, was stored; -1 if there is none."""
        if topic is not None:
            return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))
        record = self._reader.record_at(self.commit_log.min_offset)
        return -1 if record is None else store_timestamp_of(record)

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        queue = self.consume_queues.find(topic, queue_id)
        if queue is None:
            return []
        return list(queue.entries(offset, min(count, self._reader.bounds(queue)[1] - offset)))

    def record_bytes_at(self, physical_offset: int) -> memoryview | None:
        return self._reader.record_at(physical_offset)

    def record_at(self, physical_offset: int) -> Record | None:
        data = self._reader.record_at(physical_offset)
        return None if data is None else decode_record(data)

    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin: int = 0,
        end: int = _EVER_MS,
        *,
        is_tag: bool = False,
        after: int = -1,
    ) -> list[memoryview]:
        """Records after a place in the log whose key, or tag, may be this one, in log order. Hashes are compared:
        callers compare the keys."""
        key = f"T#{key}" if is_tag else key
        wanted = min(max_count, self.config.max_msgs_num_batch)
        found: list[memoryview] = []
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted(self.index.query(topic, key, wanted, begin, end, after))
            if not offsets:
                break
            for number, offset in enumerate(offsets):
                record = self._reader.record_at(offset) if offset < self.confirmed else None
                if record is not None:
                    found.append(record)
                    if number == 0:
                        end = store_timestamp_of(record)
            if found or end < begin:
                break
        return found

    def queues(self) -> dict[str, list[int]]:
        return self.consume_queues.numbers()

    def delete_topic(self, topic: str) -> int:
        """Forget a topic's queues; its records stay in the log until retention deletes them."""
        return self.consume_queues.delete_topic(topic)

    def add_listener(self, callback: Listener, *, every: bool = False, touches: Touches = ANYTHING) -> None:
        """Be called at each message of a watched queue, or of every queue, as soon as it becomes readable. Who listens
        to every queue says which of the messages it touches."""
        self._listeners.add(callback, every=every, touches=touches)

    @property
    def listeners_of_every(self) -> Steps[Listener]:
        """Those that want to hear of messages in queues that nobody waits at, too."""
        return self._listeners.of_every

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def damaged_records(self) -> int:
        """How many reads left a record out because it was not as it was written."""
        return self._reader.damaged_records

    @property
    def checked_from(self) -> int:
        """Records from here on were checked when the store opened, or written since; readers check older ones."""
        return self._reader.checked_from

    def notify(self, queue: QueueTail, properties_raw: bytes) -> None:
        """Notify the listeners of the message just written to a watched queue past `put` (the broker's fast path)."""
        hold_until = self.appended if self.positions.promised else 0
        self._listeners.notify_of_last(queue, self.commit_log.tail.last_store_timestamp, properties_raw, hold_until)

    def notify_copied(self, queue: QueueTail, store_timestamp: int, properties_raw: bytes) -> None:
        """The same of a message that came with the log of another broker (`copied_log.py`)."""
        hold_until = queue.max_physical if self.positions.promised else 0
        self._listeners.notify_of_last(queue, store_timestamp, properties_raw, hold_until)

    def cutting(self, end: int) -> AbstractContextManager[None]:
        """Around a cut of the log that has it end there."""
        return self._flusher.cutting(end)

    def copied(self) -> None:
        """More of another broker's log is here: have it forced, where that is promised."""
        if self._is_sync:
            self._flusher.ask()

    # Cold reads

    @property
    def cold_reads(self) -> int:
        """How many reads had to wait for the disk."""
        return self._cold.count

    def is_cold(self, physical_offset: int, size: int) -> bool:
        """Whether reading these bytes would wait for the disk."""
        return not self._reader.records.is_in_memory(physical_offset, size)

    async def get_cold(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = 128 << 20,
        matches: EntryFilter | None = None,
    ) -> Got:
        """`get` whose waiting for the disk is done in the cold-read thread."""
        await self._cold.warm(topic, queue_id, offset, max_count, max_bytes)
        return self.get(topic, queue_id, offset, max_count, max_bytes, matches)

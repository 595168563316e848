"""The ends of the log, of a queue and of the index, where every message is written: the pure-Python reference.

A tail knows the mapped file it writes into, how far that is filled, and how far it may be filled before room has to be
made. `append` writes one record with its queue entry and index entries, or says which room is missing and has then
written nothing; the store makes that room and asks again. Positions live here and nowhere else, so that a native send
path and the general one always see the same.

    ConsumeQueue entry, 20 bytes, big endian     IndexFile: header 40, slots 4 each, entries 20 each, big endian
     0  8  physical offset in the commit log      header  0 8 begin time     8 8 end time
     8  4  record size                                   16 8 begin offset  24 8 end offset
    12  8  hash of the tag; of a delayed                 32 4 used slots    36 4 next entry number (starts at 1)
           message, the time it is due            slot    0 4 newest entry of its chain, 0 = none
                                                  entry   0 4 key hash       4 8 physical offset
                                                         12 4 seconds since the begin time   16 4 previous entry
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from arrowmq.wire.checksum import java_hash

ENTRY = struct.Struct(">qiq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
INT = struct.Struct(">i")

NEEDS_SEGMENT = -1
NEEDS_QUEUE_ROOM = -2
NEEDS_INDEX_ROOM = -3


class LogTail:
    """The end of the commit log: the segment in use and how far it is filled."""

    __slots__ = ("dirty_queues", "last_store_timestamp", "position", "prefault", "prefaulted", "size", "start", "view")

    def __init__(self) -> None:
        self.view: memoryview | None = None
        self.start = 0
        self.position = 0
        self.size = 0
        self.prefaulted = 0  # up to here the segment's pages are in memory; `prefault` brings the next
        self.prefault: Callable[[int], None] | None = None
        self.last_store_timestamp = 0
        self.dirty_queues: list[QueueTail] = []

    def attach(self, view: memoryview | None, start: int, position: int) -> None:
        self.view = view
        self.start = start
        self.position = self.prefaulted = position
        self.size = 0 if view is None else len(view)

    @property
    def appended(self) -> int:
        return self.start + self.position


class QueueTail:
    """The end of one consume queue. `watched` asks for a call of the store's listeners at every message."""

    __slots__ = (
        "delays_ms",
        "dirty",
        "file_start",
        "grow",
        "last_code",
        "limit",
        "max_physical",
        "next_offset",
        "queue_id",
        "reserved",
        "topic",
        "topic_bytes",
        "view",
        "watched",
    )

    def __init__(self, topic: str, queue_id: int, next_offset: int = 0, max_physical: int = 0) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.max_physical = max_physical
        self.view: memoryview | None = None
        self.file_start = 0
        self.limit = 0
        self.reserved = 0  # entries below this queue offset have blocks, perhaps in the file that follows
        self.grow: Callable[[], None] | None = None
        self.watched = False
        self.last_code = 0
        self.dirty = False
        self.delays_ms: tuple[int, ...] | None = None

    def attach(self, view: memoryview | None, file_start: int, limit: int) -> None:
        """Write into this file, whose first `limit` bytes have blocks."""
        self.view = view
        self.file_start = file_start
        self.limit = limit


class IndexTail:
    """The end of the index: the file in use. Entries below `limit` have blocks; `roll` takes the next file."""

    __slots__ = (
        "begin_physical",
        "begin_timestamp",
        "count",
        "enabled",
        "end_physical",
        "end_timestamp",
        "limit",
        "max_entries",
        "next_is_ready",
        "roll",
        "slots",
        "used_slots",
        "view",
    )

    def __init__(self, roll: Callable[[], None] | None = None) -> None:
        self.enabled = False
        self.roll = roll
        self.next_is_ready = False
        self.attach(None, 0, 0, 0)

    def attach(self, view: memoryview | None, slots: int, max_entries: int, limit: int) -> None:
        self.view = view
        self.slots = slots
        self.max_entries = max_entries
        self.limit = limit
        header = (0, 0, 0, 0, 0, 0) if view is None else INDEX_HEADER.unpack_from(view, 0)
        self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical, self.used_slots = header[:5]
        self.count = max(1, header[5])


def text_hash(text: bytes) -> int:
    """Java's hash of a UTF-8 text."""
    return java_hash(text.decode("utf-8", "replace"))


def key_hash(text: bytes) -> int:
    """The hash an index entry carries: its amount, with the one number that has none taken as 0."""
    value = abs(text_hash(text))
    return 0 if value == 2147483648 else value


def dispatch_facts(properties: bytes | memoryview) -> tuple[bytes, bytes, bytes, bytes]:
    """TAGS, KEYS, UNIQ_KEY and DELAY of a properties text; the last of a name counts, an empty value is none."""
    tags = keys = unique = delay = b""
    for item in bytes(properties).split(b"\x02"):
        name, _, value = item.partition(b"\x01")
        if not value:
            continue
        if name == b"TAGS":
            tags = value
        elif name == b"KEYS":
            keys = value
        elif name == b"UNIQ_KEY":
            unique = value
        elif name == b"DELAY":
            delay = value
    return tags, keys, unique, delay


def index_keys(keys: bytes, unique: bytes, tags: bytes) -> list[bytes]:
    """What a message is indexed under, in Apache's order (5.5 and later index the tag too, marked as one)."""
    words = [unique] if unique else []
    words += [word for word in keys.split(b" ") if word]
    if tags:
        words.append(b"T#" + tags)
    return words


def delivery_time(delays_ms: tuple[int, ...], level_text: bytes, store_timestamp: int) -> int | None:
    """When a delayed message is due; None if the level says it is not delayed at all."""
    try:
        level = int(level_text)
    except ValueError:
        return None
    if level <= 0:
        return None
    return store_timestamp + delays_ms[min(level, len(delays_ms)) - 1]


def tags_code(queue: QueueTail, tags: bytes, delay: bytes, store_timestamp: int) -> int:
    if queue.delays_ms is not None and delay:
        due = delivery_time(queue.delays_ms, delay, store_timestamp)
        if due is not None:
            return due
    return text_hash(tags) if tags else 0


def has_queue_room(queue: QueueTail, count: int) -> bool:
    at = queue.next_offset * 20 - queue.file_start
    return at >= 0 and (at + 20 * count <= queue.limit or queue.next_offset + count <= queue.reserved)


def has_index_room(index: IndexTail, words: int) -> bool:
    if index.count + words <= index.limit:
        return True
    return index.limit >= index.max_entries and index.limit > 0 and index.next_is_ready


def put_entry(log: LogTail, queue: QueueTail, physical_offset: int, size: int, code: int) -> None:
    """The next entry of a queue; its room must be there."""
    at = queue.next_offset * 20 - queue.file_start
    if (queue.view is None or not 0 <= at <= queue.limit - 20) and queue.grow is not None:
        queue.grow()
        at = queue.next_offset * 20 - queue.file_start
    if queue.view is None or not 0 <= at <= queue.limit - 20:
        raise ValueError("the queue has no room for an entry")
    ENTRY.pack_into(queue.view, at, physical_offset, size, code)
    queue.next_offset += 1
    queue.max_physical = physical_offset + size
    queue.last_code = code
    if not queue.dirty:
        queue.dirty = True
        log.dirty_queues.append(queue)


def put_key(index: IndexTail, hash_of_key: int, physical_offset: int, store_timestamp: int) -> None:
    """One index entry; its room must be there. A full file makes place for the next one first."""
    if index.count >= index.max_entries and index.roll is not None:
        index.roll()
    view = index.view
    number = index.count
    if view is None or number >= index.max_entries or number >= index.limit:
        raise ValueError("the index has no room for an entry")
    slot_at = 40 + 4 * (hash_of_key % index.slots)
    previous = INT.unpack_from(view, slot_at)[0]
    if previous <= 0 or previous > number:
        previous = 0
    seconds = 0
    if index.begin_timestamp > 0:
        seconds = min(max((store_timestamp - index.begin_timestamp) // 1000, 0), 0x7FFFFFFF)
    INDEX_ENTRY.pack_into(view, 40 + 4 * index.slots + 20 * number, hash_of_key, physical_offset, seconds, previous)
    INT.pack_into(view, slot_at, number)
    if number <= 1:
        index.begin_physical = physical_offset
        index.begin_timestamp = store_timestamp
    if previous == 0:
        index.used_slots += 1
    index.count = number + 1
    index.end_physical = physical_offset
    index.end_timestamp = store_timestamp
    write_index_header(index)


def write_index_header(index: IndexTail) -> None:
    assert index.view is not None
    INDEX_HEADER.pack_into(
        index.view,
        0,
        index.begin_timestamp,
        index.end_timestamp,
        index.begin_physical,
        index.end_physical,
        index.used_slots,
        index.count,
    )

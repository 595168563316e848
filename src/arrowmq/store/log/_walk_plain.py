"""Walking the log record by record, trusting nothing but bytes: the pure-Python reference.

A record counts if its size, magic, lengths, own offset and checksums agree. The walk stops at the first that does not
and says why; it also dispatches what it reads to queues and index, when recovery asks for that.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from arrowmq.store.append._tail_plain import (
    ENTRY,
    INDEX_ENTRY,
    INDEX_HEADER,
    INT,
    IndexTail,
    LogTail,
    QueueTail,
    dispatch_facts,
    index_keys,
    tags_code,
)
from arrowmq.wire.checksum import crc32

END_OF_BUFFER = 0
BLANK = 1
TORN = -1
BAD_MAGIC = -2
BAD_BODY_CRC = -3
BAD_LENGTHS = -4
BAD_OFFSET = -5
BAD_PROPERTIES = -6
BAD_RECORD_CRC = -7
GAP = -8

REASONS = {
    END_OF_BUFFER: "end of the file",
    BLANK: "blank record: the next file follows",
    TORN: "not all bytes of the record are there",
    BAD_MAGIC: "no record starts here",
    BAD_BODY_CRC: "the body does not match its checksum",
    BAD_LENGTHS: "the lengths of body, topic and properties do not add up to the record's size",
    BAD_OFFSET: "the record says it lies elsewhere in the log",
    BAD_PROPERTIES: "topic or properties are torn",
    BAD_RECORD_CRC: "the record does not match its own checksum",
    GAP: "entries before it are missing in its queue, or its place there is damaged",
}

CHECK_BODY_CRC = 1
CHECK_RECORD_CRC = 2
IS_COMPLETE = 4  # the bytes came over a connection, not from a disk: zeros in a record are what its sender wrote

_MAGIC_V1, _MAGIC_V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_HEAD = struct.Struct(">IIIiiqqiq")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_CRC_NAME = b"__CRC32#\x01"


class Walked(NamedTuple):
    """Where a walk stopped and why, how many records it passed, and the newest store time among them."""

    position: int
    verdict: int
    records: int
    last_store_timestamp: int


class Sink(Protocol):
    """Where dispatched records go."""

    log: LogTail
    index: IndexTail
    entries_restored: int

    @property
    def notifies_every(self) -> bool:
        """Whether `arrived` is called for every record, not only for those of a watched queue."""

    def queue(self, topic: bytes, queue_id: int) -> QueueTail | None:
        """The queue of a record; None if its entries are not wanted."""

    def restore_entry(self, queue: QueueTail, queue_offset: int, physical: int, size: int, code: int) -> bool: ...

    def begun_anew(self, queue: QueueTail, queue_offset: int, physical: int) -> QueueTail | None:
        """A record behind all that a queue has, with an offset that it has already. With offset 0 its topic was deleted
        and made anew meanwhile; any other one is damaged. Gives the queue to go on with, which has this offset still if
        the record is to stay out of it; None ends the walk there."""

    def restore_keys(self, topic: bytes, words: list[bytes], physical: int, store_timestamp: int) -> None: ...

    def arrived(self, queue: QueueTail, store_timestamp: int, properties: bytes) -> None:
        """An entry was written to this queue."""


class Parts(NamedTuple):
    """The places of the parts of a record, relative to the buffer."""

    size: int
    body: int
    body_length: int
    topic: int
    topic_length: int
    properties: int
    properties_length: int
    store_timestamp_at: int


def split_record(view: memoryview, position: int, end: int) -> Parts | int:
    """The parts of the record at `position`, or the verdict if its lengths do not add up."""
    if end - position < 8:
        return TORN if end > position else END_OF_BUFFER
    size, magic = struct.unpack_from(">II", view, position)
    if magic == _BLANK:
        return BLANK
    if magic not in (_MAGIC_V1, _MAGIC_V2):
        return BAD_MAGIC
    if size < 91 or size > end - position:
        return TORN
    stop = position + size
    sys_flag = _INT.unpack_from(view, position + 36)[0]
    store_timestamp_at = position + 48 + (20 if sys_flag & 0x10 else 8)
    at = store_timestamp_at + 8 + (20 if sys_flag & 0x20 else 8) + 12
    if at + 4 > stop:
        return BAD_LENGTHS
    body_length = _INT.unpack_from(view, at)[0]
    body = at + 4
    at = body + body_length
    prefix = 2 if magic == _MAGIC_V2 else 1
    if body_length < 0 or at + prefix > stop:
        return BAD_LENGTHS
    topic_length = int.from_bytes(view[at : at + prefix], "big", signed=True)
    topic = at + prefix
    at = topic + topic_length
    if topic_length < 0 or at + 2 > stop:
        return BAD_LENGTHS
    properties_length = int.from_bytes(view[at : at + 2], "big", signed=True)
    properties = at + 2
    if properties_length < 0 or properties + properties_length != stop:
        return BAD_LENGTHS
    return Parts(size, body, body_length, topic, topic_length, properties, properties_length, store_timestamp_at)


def topic_and_properties(view: memoryview, position: int, end: int) -> tuple[bytes, bytes] | None:
    """Those two of the record at `position`; None if there is none with sound lengths."""
    parts = split_record(view, position, end)
    if isinstance(parts, int):
        return None
    topic = view[parts.topic : parts.topic + parts.topic_length]
    return bytes(topic), bytes(view[parts.properties : parts.properties + parts.properties_length])


def check_record(view: memoryview, position: int, end: int, start: int, checks: int) -> int:
    """The size of a sound record at `position` of a file that starts at `start` of the log, or the verdict."""
    parts = split_record(view, position, end)
    if isinstance(parts, int):
        return parts
    if _LONG.unpack_from(view, position + 28)[0] != start + position:
        return BAD_OFFSET
    topic = view[parts.topic : parts.topic + parts.topic_length]
    if parts.topic_length == 0 or b"\0" in bytes(topic):
        return BAD_PROPERTIES
    if checks & CHECK_BODY_CRC:
        body_crc = _INT.unpack_from(view, position + 8)[0]
        if crc32(view[parts.body : parts.body + parts.body_length]) != body_crc:
            return BAD_BODY_CRC
    if checks & CHECK_RECORD_CRC and not record_crc_fits(view, position, parts):
        return BAD_RECORD_CRC
    if checks & IS_COMPLETE:
        return parts.size
    if looks_torn(view, parts) and not record_follows(view, position + parts.size, end, start):
        return BAD_PROPERTIES
    return parts.size


def looks_torn(view: memoryview, parts: Parts) -> bool:
    """Zeros where a property's end is expected: the tail of the record never reached the disk."""
    if parts.properties_length == 0:
        return False
    properties = bytes(view[parts.properties : parts.properties + parts.properties_length])
    if properties[-1] == 0:
        return True
    if b"\0" not in properties:
        return False
    return any(b"\0" in item and b"\x01" not in item for item in properties.split(b"\x02"))


def record_follows(view: memoryview, position: int, end: int, start: int) -> bool:
    """Whether a record or the blank one starts here: then what lies before was written completely."""
    following = split_record(view, position, end)
    if isinstance(following, int):
        return following == BLANK
    return bool(_LONG.unpack_from(view, position + 28)[0] == start + position)


def record_crc_fits(view: memoryview, position: int, parts: Parts) -> bool:
    """Whether the record's own checksum is right; a record that never had one passes.

    A checksum property that is itself damaged must not pass as absent: if any half of it is recognised, it was there.
    """
    if parts.properties_length < 20:
        return True
    stop = position + parts.size
    tail = bytes(view[stop - 20 : stop])
    digits = f"{crc32(view[position : stop - 20]):010d}"[::-1].encode()
    expected = _CRC_NAME + digits + b"\x02"
    if tail == expected:
        return True
    same_name = sum(one == other for one, other in zip(tail[:9], _CRC_NAME, strict=True))
    same_digits = sum(one == other for one, other in zip(tail[9:], expected[9:], strict=True))
    return same_name < 8 and same_digits < 10


def scan_queue(data: bytes, max_physical: int) -> tuple[int, int, int]:
    """How many entries of a queue file, from its start, are whole and in log order; the end of the newest record they
    name; and up to where the file holds anything but zeros. `max_physical` is that end for the file before."""
    count = 0
    for physical, size, _ in ENTRY.iter_unpack(data[: len(data) // 20 * 20]):
        is_filler = physical == 0 and size == 0x7FFFFFFF
        if physical < 0 or size <= 0 or (physical < max_physical and not is_filler):
            break
        if not is_filler:
            max_physical = physical + size
        count += 1
    return count, max_physical, len(data.rstrip(b"\0"))


def first_filled(view: memoryview, start: int, stop: int) -> int:
    """The first place from `start` on that is not zero; -1 if there is none before `stop`."""
    rest = bytes(view[start:stop])
    return -1 if not rest.strip(b"\0") else stop - len(rest.lstrip(b"\0"))


def repair_index(view: memoryview, slots: int, max_entries: int, end_physical: int) -> int:
    """Keep of an index file the entries that are consistent and point before `end_physical`; the next entry number.

    Entries say everything there is to know of a file, so slots and header are made anew from them. Those of the last
    record go too: not all of its keys may have been written. What is dropped is zeroed. 1 says nothing is left.
    """
    begin_timestamp, _, begin_physical, _, _, count = INDEX_HEADER.unpack_from(view, 0)
    entries_at = 40 + 4 * slots
    filled = min(max(count, 1), max_entries)
    newest = [0] * slots
    last_physical = -1
    number = 1
    while number < filled:
        hash_of_key, physical, seconds, previous = INDEX_ENTRY.unpack_from(view, entries_at + 20 * number)
        if hash_of_key < 0 or physical < max(last_physical, 0) or physical >= end_physical or seconds < 0:
            break
        if previous != newest[hash_of_key % slots] or (number == 1 and physical != begin_physical):
            break
        newest[hash_of_key % slots] = number
        last_physical = physical
        number += 1
    while number > 1:
        hash_of_key, physical, _, previous = INDEX_ENTRY.unpack_from(view, entries_at + 20 * (number - 1))
        if physical != last_physical:
            break
        newest[hash_of_key % slots] = previous
        number -= 1
    if number <= 1:
        return 1
    view[entries_at + 20 * number : entries_at + 20 * filled] = bytes(20 * (filled - number))
    for slot, newest_of_slot in enumerate(newest):
        if INT.unpack_from(view, 40 + 4 * slot)[0] != newest_of_slot:
            INT.pack_into(view, 40 + 4 * slot, newest_of_slot)
    _, end_of_kept, seconds, _ = INDEX_ENTRY.unpack_from(view, entries_at + 20 * (number - 1))
    used = sum(1 for newest_of_slot in newest if newest_of_slot)
    end_timestamp = begin_timestamp + (seconds + 1) * 1000 - 1
    INDEX_HEADER.pack_into(view, 0, begin_timestamp, end_timestamp, begin_physical, end_of_kept, used, number)
    return number


def walk(
    view: memoryview, position: int, end: int, start: int, checks: int, sink: Sink | None = None, dispatch_from: int = 0
) -> Walked:
    """Pass sound records from `position` on; those at or behind `dispatch_from` of the log go to the sink."""
    records = 0
    newest = 0
    notifies_every = sink is not None and sink.notifies_every
    while True:
        size = check_record(view, position, end, start, checks)
        if size <= BLANK:
            return Walked(position, size, records, newest)
        (_, _, _, queue_id, _, queue_offset, physical, sys_flag, _) = _HEAD.unpack_from(view, position)
        parts = split_record(view, position, end)
        assert isinstance(parts, Parts)
        store_timestamp = _LONG.unpack_from(view, parts.store_timestamp_at)[0]
        if sink is not None and physical >= dispatch_from:
            topic = bytes(view[parts.topic : parts.topic + parts.topic_length])
            properties = view[parts.properties : parts.properties + parts.properties_length]
            tags, keys, unique, delay = dispatch_facts(properties)
            transaction = sys_flag & 0xC
            if transaction not in (0x4, 0xC):
                queue = sink.queue(topic, queue_id)
                if queue is not None and physical >= queue.max_physical > 0 and queue_offset < queue.next_offset:
                    queue = sink.begun_anew(queue, queue_offset, physical)
                    if queue is None:
                        return Walked(position, GAP, records, newest)
                if queue is not None:
                    code = tags_code(queue, tags, delay, store_timestamp)
                    before = queue.next_offset
                    if not sink.restore_entry(queue, queue_offset, physical, size, code):
                        return Walked(position, GAP, records, newest)
                    if (queue.watched or notifies_every) and queue.next_offset != before:
                        sink.arrived(queue, store_timestamp, bytes(properties))
            if transaction != 0xC:
                sink.restore_keys(topic, index_keys(keys, unique, tags), physical, store_timestamp)
        newest = max(newest, store_timestamp)
        records += 1
        position += size

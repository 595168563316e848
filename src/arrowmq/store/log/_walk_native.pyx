# cython: language_level=3
"""Walking the log record by record: the native form of `_walk_plain`, which says what a sound record is."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memset

from arrowmq.wire._bytes cimport get32, get64, put32, put64
from arrowmq.store.append._tail_native cimport (
    Facts,
    IndexTail,
    LogTail,
    QueueTail,
    code_of,
    count_index_keys,
    find_facts,
    index_has_room,
    write_entry,
    write_header,
    write_keys,
)
from arrowmq.wire._checksum_native cimport crc32_bytes

from arrowmq.store.append._tail_native import dispatch_facts, index_keys
from arrowmq.store.log._walk_plain import Walked

cdef enum:
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
    ROUTES = 64


cdef extern from *:
    """
    #define ARROWMQ_MAGIC_V1 0xDAA320A7u
    #define ARROWMQ_MAGIC_V2 0xDAA320ABu
    #define ARROWMQ_MAGIC_BLANK 0xCBD43194u
    """
    const uint32_t MAGIC_V1 "ARROWMQ_MAGIC_V1"
    const uint32_t MAGIC_V2 "ARROWMQ_MAGIC_V2"
    const uint32_t MAGIC_BLANK "ARROWMQ_MAGIC_BLANK"


cdef int64_t split(const uint8_t *place, int64_t position, int64_t end, Parts *parts) noexcept nogil:
    """Fill in the parts and answer the record's size, or the verdict."""
    cdef uint32_t magic
    cdef int64_t size, stop, at, prefix
    cdef int32_t sys_flag
    if end - position < 8:
        return TORN if end > position else END_OF_BUFFER
    size = <uint32_t>get32(place + position)
    magic = <uint32_t>get32(place + position + 4)
    if magic == MAGIC_BLANK:
        return BLANK
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BAD_MAGIC
    if size < 91 or size > end - position:
        return TORN
    stop = position + size
    sys_flag = <int32_t>get32(place + position + 36)
    parts.store_timestamp_at = position + 48 + (20 if sys_flag & 0x10 else 8)
    at = parts.store_timestamp_at + 8 + (20 if sys_flag & 0x20 else 8) + 12
    if at + 4 > stop:
        return BAD_LENGTHS
    parts.body_length = <int32_t>get32(place + at)
    parts.body = at + 4
    at = parts.body + parts.body_length
    prefix = 2 if magic == MAGIC_V2 else 1
    if parts.body_length < 0 or at + prefix > stop:
        return BAD_LENGTHS
    if prefix == 2:
        parts.topic_length = (place[at] << 8) | place[at + 1]
        if parts.topic_length >= 32768:
            return BAD_LENGTHS
    else:
        parts.topic_length = place[at]
        if parts.topic_length >= 128:
            return BAD_LENGTHS
    parts.topic = at + prefix
    at = parts.topic + parts.topic_length
    if at + 2 > stop:
        return BAD_LENGTHS
    parts.properties_length = (place[at] << 8) | place[at + 1]
    parts.properties = at + 2
    if parts.properties_length >= 32768 or parts.properties + parts.properties_length != stop:
        return BAD_LENGTHS
    parts.size = size
    return size


cdef bint looks_torn(const uint8_t *properties, int64_t length) noexcept nogil:
    cdef const uint8_t *at = properties
    cdef const uint8_t *stop = properties + length
    cdef const uint8_t *item_end
    if length == 0:
        return False
    if properties[length - 1] == 0:
        return True
    if memchr(properties, 0, length) == NULL:
        return False
    while at < stop:
        item_end = <const uint8_t *>memchr(at, 2, stop - at)
        if item_end == NULL:
            item_end = stop
        if item_end > at and memchr(at, 0, item_end - at) != NULL and memchr(at, 1, item_end - at) == NULL:
            return True
        at = item_end + 1
    return False


cdef bint record_follows(const uint8_t *place, int64_t position, int64_t end, int64_t start) noexcept nogil:
    cdef Parts parts
    cdef int64_t verdict = split(place, position, end, &parts)
    if verdict <= BLANK:
        return verdict == BLANK
    return get64(place + position + 28) == start + position


cdef bint record_crc_fits(const uint8_t *place, int64_t position, const Parts *parts) noexcept nogil:
    cdef const uint8_t *tail = place + position + parts.size - 20
    cdef uint8_t[20] expected
    cdef uint32_t crc
    cdef int at, same_name = 0, same_digits = 0
    if parts.properties_length < 20:
        return True
    crc = crc32_bytes(place + position, parts.size - 20)
    memcpy(expected, b"__CRC32#\x01", 9)
    for at in range(10):
        expected[9 + at] = <uint8_t>(48 + crc % 10)
        crc //= 10
    expected[19] = 2
    if memcmp(tail, expected, 20) == 0:
        return True
    for at in range(9):
        same_name += tail[at] == expected[at]
    for at in range(9, 20):
        same_digits += tail[at] == expected[at]
    return same_name < 8 and same_digits < 10


cdef int64_t check(const uint8_t *place, int64_t position, int64_t end, int64_t start, int checks, Parts *parts) noexcept nogil:
    cdef int64_t size = split(place, position, end, parts)
    if size <= BLANK:
        return size
    if get64(place + position + 28) != start + position:
        return BAD_OFFSET
    if parts.topic_length == 0 or memchr(place + parts.topic, 0, parts.topic_length) != NULL:
        return BAD_PROPERTIES
    if checks & CHECK_BODY_CRC:
        if crc32_bytes(place + parts.body, parts.body_length) != <uint32_t>get32(place + position + 8):
            return BAD_BODY_CRC
    if checks & CHECK_RECORD_CRC and not record_crc_fits(place, position, parts):
        return BAD_RECORD_CRC
    if not checks & IS_COMPLETE and looks_torn(place + parts.properties, parts.properties_length):
        if not record_follows(place, position + size, end, start):
            return BAD_PROPERTIES
    return size


def check_record(view, int64_t position, int64_t end, int64_t start, int checks):
    """The size of a sound record at `position` of a file that starts at `start` of the log, or the verdict."""
    cdef Py_buffer buffer
    cdef Parts parts
    cdef int64_t verdict
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if position < 0 or end > buffer.len:
            raise ValueError("the place lies outside of the buffer")
        with nogil:
            verdict = check(<const uint8_t *>buffer.buf, position, end, start, checks, &parts)
        return verdict
    finally:
        PyBuffer_Release(&buffer)


def topic_and_properties(view, int64_t position, int64_t end):
    """Those two of the record at `position`; None if there is none with sound lengths."""
    cdef Py_buffer buffer
    cdef Parts parts
    cdef const char *place
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if position < 0 or end > buffer.len:
            raise ValueError("the place lies outside of the buffer")
        place = <const char *>buffer.buf
        if split(<const uint8_t *>place, position, end, &parts) <= BLANK:
            return None
        return (
            place[parts.topic : parts.topic + parts.topic_length],
            place[parts.properties : parts.properties + parts.properties_length],
        )
    finally:
        PyBuffer_Release(&buffer)


cdef class _Route:
    """The queue of a record that was met in this walk."""

    cdef QueueTail queue
    cdef bytes topic
    cdef int32_t queue_id


cdef class _Routes:
    """Those of the records before, and what was written for them: messages of one topic take its queues in turn. A place of
    the table has one route, and another record's takes it over. Not kept between walks, as the sink asks for."""

    cdef list table
    cdef int64_t entries
    cdef bint is_header_due

    def __cinit__(self):
        self.table = [None] * ROUTES

    cdef _Route find(self, object sink, const uint8_t *topic, int64_t length, int32_t queue_id):
        cdef uint32_t place = <uint32_t>queue_id * 31 + <uint32_t>length
        cdef object found
        cdef _Route route
        if length:
            place = place * 31 + topic[length - 1]
        place = (place ^ (place >> 8)) % ROUTES
        found = self.table[place]
        if found is not None:
            route = <_Route>found
            if (
                route.queue_id == queue_id
                and len(route.topic) == length
                and memcmp(<const uint8_t *>(<const char *>route.topic), topic, length) == 0
            ):
                return route
        route = _Route.__new__(_Route)
        route.topic = (<const char *>topic)[:length]
        route.queue_id = queue_id
        route.queue = sink.queue(route.topic, queue_id)
        self.table[place] = route
        return route

    cdef int settle(self, object sink, IndexTail index) except -1:
        """What is left to do once for all records."""
        cdef int64_t entries = self.entries
        self.entries = 0
        if self.is_header_due:
            self.is_header_due = False
            write_header(index)
        if entries:
            sink.entries_restored += entries
        return 0


cdef int dispatch(object sink, _Routes routes, LogTail log, IndexTail index, const uint8_t *place, int64_t position, const Parts *parts, bint notifies_every) except -1:
    """Give one record to its queue and the index; 0 if entries before it are missing, or its place there is damaged."""
    cdef int32_t transaction = <int32_t>get32(place + position + 36) & 0xC
    cdef int64_t queue_offset = get64(place + position + 20)
    cdef int64_t physical = get64(place + position + 28)
    cdef int64_t store_timestamp = get64(place + parts.store_timestamp_at)
    cdef int64_t at, code, before
    cdef QueueTail queue
    cdef Facts facts
    cdef bint wants_entry, wants_keys
    cdef _Route route = routes.find(sink, place + parts.topic, parts.topic_length, <int32_t>get32(place + position + 12))
    queue = route.queue
    if (
        queue is not None and transaction != 0x4 and transaction != 0xC
        and queue.max_physical > 0 and physical >= queue.max_physical and queue_offset < queue.next_offset
    ):
        renewed = sink.begun_anew(queue, queue_offset, physical)
        if renewed is None:
            return 0
        route.queue = queue = renewed
    wants_entry = (
        transaction != 0x4 and transaction != 0xC and queue is not None
        and not (physical + parts.size <= queue.max_physical or queue_offset < queue.next_offset)
    )
    wants_keys = transaction != 0xC and index.enabled and not (
        physical <= index.end_physical and (index.count > 1 or index.end_physical > 0)
    )
    if not wants_entry and not wants_keys:
        return 1
    find_facts(place + parts.properties, parts.properties_length, &facts)
    if wants_entry:
        code = code_of(queue, &facts, store_timestamp)
        before = queue.next_offset
        at = queue.next_offset * 20 - queue.file_start
        if queue_offset == queue.next_offset and queue.place != NULL and at >= 0 and at + 20 <= queue.limit:
            write_entry(log, queue, physical, parts.size, code)
            routes.entries += 1
        elif not sink.restore_entry(queue, queue_offset, physical, parts.size, code):
            return 0
        if (queue.watched or notifies_every) and queue.next_offset != before:
            sink.arrived(queue, store_timestamp, (<const char *>place + parts.properties)[:parts.properties_length])
    if wants_keys:
        if queue is not None and index.place != NULL and index_has_room(index, count_index_keys(&facts)):
            write_keys(queue, index, &facts, physical, store_timestamp)
            routes.is_header_due = True
        else:
            routes.settle(sink, index)
            tags, keys, unique, _ = dispatch_facts((<const char *>place + parts.properties)[:parts.properties_length])
            sink.restore_keys(route.topic, index_keys(keys, unique, tags), physical, store_timestamp)
    return 1


def walk(view, int64_t position, int64_t end, int64_t start, int checks, sink=None, int64_t dispatch_from=0):
    """Pass sound records from `position` on; those at or behind `dispatch_from` of the log go to the sink."""
    cdef Py_buffer buffer
    cdef Parts parts
    cdef const uint8_t *place
    cdef int64_t size, time, newest = 0, records = 0
    cdef _Routes routes = None
    cdef LogTail log = None
    cdef IndexTail index = None
    cdef bint dispatches = sink is not None
    cdef bint notifies_every = False
    if dispatches:
        routes = _Routes.__new__(_Routes)
        notifies_every = sink.notifies_every
        log = sink.log
        index = sink.index
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if position < 0 or end > buffer.len:
            raise ValueError("the place lies outside of the buffer")
        place = <const uint8_t *>buffer.buf
        while True:
            size = check(place, position, end, start, checks, &parts)
            if size <= BLANK:
                return Walked(position, size, records, newest)
            time = get64(place + parts.store_timestamp_at)
            if dispatches and start + position >= dispatch_from:
                if not dispatch(sink, routes, log, index, place, position, &parts, notifies_every):
                    return Walked(position, GAP, records, newest)
            if time > newest:
                newest = time
            records += 1
            position += size
    finally:
        PyBuffer_Release(&buffer)
        if dispatches:
            routes.settle(sink, index)


cdef int64_t repair(uint8_t *place, int64_t slots, int64_t max_entries, int64_t end_physical, int32_t *newest) noexcept nogil:
    cdef int64_t begin_timestamp = get64(place)
    cdef int64_t begin_physical = get64(place + 16)
    cdef int64_t filled = min(max(<int32_t>get32(place + 36), 1), max_entries)
    cdef uint8_t *entries = place + 40 + 4 * slots
    cdef uint8_t *entry
    cdef int64_t number = 1, last_physical = -1, hash_of_key, physical, slot, used = 0
    while number < filled:
        entry = entries + 20 * number
        hash_of_key = <int32_t>get32(entry)
        physical = get64(entry + 4)
        if hash_of_key < 0 or physical < 0 or physical < last_physical or physical >= end_physical:
            break
        if <int32_t>get32(entry + 12) < 0 or <int32_t>get32(entry + 16) != newest[hash_of_key % slots]:
            break
        if number == 1 and physical != begin_physical:
            break
        newest[hash_of_key % slots] = <int32_t>number
        last_physical = physical
        number += 1
    while number > 1:
        entry = entries + 20 * (number - 1)
        if get64(entry + 4) != last_physical:
            break
        newest[<int64_t>(<int32_t>get32(entry)) % slots] = <int32_t>get32(entry + 16)
        number -= 1
    if number <= 1:
        return 1
    memset(entries + 20 * number, 0, 20 * (filled - number))
    for slot in range(slots):
        if <int32_t>get32(place + 40 + 4 * slot) != newest[slot]:
            put32(place + 40 + 4 * slot, newest[slot])
        if newest[slot]:
            used += 1
    entry = entries + 20 * (number - 1)
    put64(place + 8, begin_timestamp + (<int64_t>(<int32_t>get32(entry + 12)) + 1) * 1000 - 1)
    put64(place + 24, get64(entry + 4))
    put32(place + 32, used)
    put32(place + 36, number)
    return number


def repair_index(view, int64_t slots, int64_t max_entries, int64_t end_physical):
    """Keep of an index file the entries that are consistent and point before `end_physical`; the next entry number."""
    cdef Py_buffer buffer
    cdef int32_t *newest
    cdef int64_t number
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        if slots < 1 or max_entries < 1 or 40 + 4 * slots + 20 * max_entries > buffer.len:
            raise ValueError("the index file is smaller than its slots and entries")
        newest = <int32_t *>calloc(slots, 4)
        if newest == NULL:
            raise MemoryError
        with nogil:
            number = repair(<uint8_t *>buffer.buf, slots, max_entries, end_physical, newest)
        free(newest)
        return number
    finally:
        PyBuffer_Release(&buffer)


def scan_queue(bytes data, int64_t max_physical):
    """How many entries of a queue file are whole and in log order, the end of the newest record, the filled length."""
    cdef const uint8_t *place = <const uint8_t *>(<const char *>data)
    cdef int64_t length = len(data)
    cdef int64_t count = 0, at = 0, physical
    cdef int32_t size
    while at + 20 <= length:
        physical = get64(place + at)
        size = get32(place + at + 8)
        if physical < 0 or size <= 0:
            break
        if not (physical == 0 and size == 0x7FFFFFFF):
            if physical < max_physical:
                break
            max_physical = physical + size
        count += 1
        at += 20
    while length > 0 and place[length - 1] == 0:
        if length >= 64 and is_zero(place + length - 64, 64):
            length -= 64
        else:
            length -= 1
    return count, max_physical, length


cdef inline bint is_zero(const uint8_t *place, int64_t length) noexcept nogil:
    """Whether all bytes are zero: the first is, and each is as the one before."""
    return place[0] == 0 and memcmp(place, place + 1, length - 1) == 0


def first_filled(view, int64_t start, int64_t stop):
    """The first place from `start` on that is not zero; -1 if there is none before `stop`."""
    cdef Py_buffer buffer
    cdef const uint8_t *place
    cdef int64_t step
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if start < 0 or stop > buffer.len:
            raise ValueError("the place lies outside of the buffer")
        place = <const uint8_t *>buffer.buf
        with nogil:
            while start < stop:
                step = min(stop - start, 65536)
                if is_zero(place + start, step):
                    start += step
                    continue
                while place[start] == 0:
                    start += 1
                break
        return start if start < stop else -1
    finally:
        PyBuffer_Release(&buffer)

# cython: language_level=3
"""The ends of the log, of a queue and of the index: the native form of `_tail_plain`, where the layouts stand.

`append_fields` is what everything comes down to: it writes a record straight into the mapped segment, with its queue
entry and index entries, from C values. Every length is checked before it is used.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from arrowmq.store._crc32 cimport arrowmq_crc32

from arrowmq.wire.errors import RecordError

cdef enum:
    _NEEDS_SEGMENT = -1
    _NEEDS_QUEUE_ROOM = -2
    _NEEDS_INDEX_ROOM = -3
    BLANK_BYTES = 8
    CRC_PROPERTY_BYTES = 20
    MAX_PROPERTIES = 32767
    HEADER_BYTES = 40

NEEDS_SEGMENT = _NEEDS_SEGMENT
NEEDS_QUEUE_ROOM = _NEEDS_QUEUE_ROOM
NEEDS_INDEX_ROOM = _NEEDS_INDEX_ROOM

cdef extern from *:
    """
    #define ARROWMQ_SWAP32(x) __builtin_bswap32(x)
    #define ARROWMQ_SWAP64(x) __builtin_bswap64(x)
    """
    uint32_t ARROWMQ_SWAP32(uint32_t x) nogil
    uint64_t ARROWMQ_SWAP64(uint64_t x) nogil


cdef inline void put32(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint32_t big = ARROWMQ_SWAP32(<uint32_t>value)
    memcpy(at, &big, 4)


cdef inline void put64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t big = ARROWMQ_SWAP64(<uint64_t>value)
    memcpy(at, &big, 8)


cdef inline void put16(uint8_t *at, int64_t value) noexcept nogil:
    at[0] = <uint8_t>((value >> 8) & 255)
    at[1] = <uint8_t>(value & 255)


cdef inline int32_t get32(const uint8_t *at) noexcept nogil:
    cdef uint32_t big
    memcpy(&big, at, 4)
    return <int32_t>ARROWMQ_SWAP32(big)


cdef inline int64_t get64(const uint8_t *at) noexcept nogil:
    cdef uint64_t big
    memcpy(&big, at, 8)
    return <int64_t>ARROWMQ_SWAP64(big)


cdef uint8_t *address_of(object view, int64_t *size) except? NULL:
    """Where a mapped file lies. The tail keeps the view, and the view keeps the file mapped."""
    cdef Py_buffer buffer
    if view is None:
        size[0] = 0
        return NULL
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    size[0] = buffer.len
    cdef uint8_t *place = <uint8_t *>buffer.buf
    PyBuffer_Release(&buffer)
    return place


cdef class LogTail:
    """The end of the commit log: the segment in use and how far it is filled."""

    def __init__(self):
        self.dirty_queues = []
        self.attach(None, 0, 0)

    def attach(self, view, int64_t start, int64_t position):
        cdef int64_t size = 0
        cdef uint8_t *place = address_of(view, &size)
        if position < 0 or position > size:
            raise ValueError("the position lies outside of the segment")
        self.view = view
        self.place = place
        self.start = start
        self.position = position
        self.size = size

    @property
    def appended(self):
        return self.start + self.position


cdef class QueueTail:
    """The end of one consume queue. `watched` asks for a call of the store's listeners at every message."""

    def __init__(self, str topic, int32_t queue_id, int64_t next_offset=0, int64_t max_physical=0):
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.topic_hash = <uint32_t>hash_on(0, self.topic_bytes) * 31 + 35  # 35 is "#"
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.max_physical = max_physical
        self.attach(None, 0, 0)

    def attach(self, view, int64_t file_start, int64_t limit):
        """Write into this file, whose first `limit` bytes have blocks."""
        cdef int64_t size = 0
        cdef uint8_t *place = address_of(view, &size)
        if limit < 0 or limit > size:
            raise ValueError("the limit lies outside of the file")
        self.view = view
        self.place = place
        self.file_start = file_start
        self.limit = limit


cdef class IndexTail:
    """The end of the index: the file in use. Entries below `limit` have blocks; `roll` takes the next file."""

    def __init__(self, roll=None):
        self.enabled = False
        self.roll = roll
        self.next_is_ready = False
        self.attach(None, 0, 0, 0)

    def attach(self, view, int64_t slots, int64_t max_entries, int64_t limit):
        cdef int64_t size = 0
        cdef uint8_t *place = address_of(view, &size)
        if place != NULL and (slots < 1 or max_entries < 1 or HEADER_BYTES + 4 * slots + 20 * max_entries > size):
            raise ValueError("the index file is smaller than its slots and entries")
        self.view = view
        self.place = place
        self.slots = slots
        self.max_entries = max_entries
        self.limit = limit
        self.begin_timestamp = self.end_timestamp = self.begin_physical = self.end_physical = self.used_slots = 0
        self.count = 1
        if place != NULL:
            self.begin_timestamp = get64(place)
            self.end_timestamp = get64(place + 8)
            self.begin_physical = get64(place + 16)
            self.end_physical = get64(place + 24)
            self.used_slots = get32(place + 32)
            self.count = max(1, get32(place + 36))


# Hashes

cdef int64_t hash_ascii(uint32_t value, const uint8_t *text, int64_t length) noexcept nogil:
    """Java's hash continued over ASCII; -1 if the text is not ASCII."""
    cdef int64_t at
    cdef uint8_t any_high = 0
    for at in range(length):
        any_high |= text[at]
        value = value * 31 + text[at]
    if any_high & 0x80:
        return -1
    return value


cdef uint32_t hash_on(uint32_t value, bytes text):
    """Java's hash of a UTF-8 text, continued from `value`: over UTF-16 units."""
    cdef int64_t fast = hash_ascii(value, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    cdef str decoded
    cdef Py_UCS4 letter
    cdef uint32_t code
    if fast >= 0:
        return <uint32_t>fast
    decoded = text.decode("utf-8", "replace")
    for letter in decoded:
        code = <uint32_t>letter
        if code >= 0x10000:
            code -= 0x10000
            value = value * 31 + (0xD800 + (code >> 10))
            value = value * 31 + (0xDC00 + (code & 0x3FF))
        else:
            value = value * 31 + code
    return value


cdef uint32_t hash_text(uint32_t value, const uint8_t *text, int64_t length):
    cdef int64_t fast = hash_ascii(value, text, length)
    return <uint32_t>fast if fast >= 0 else hash_on(value, (<const char *>text)[:length])


cdef inline int64_t amount_of(uint32_t value) noexcept nogil:
    cdef int64_t signed = <int32_t>value
    if signed == -2147483648:
        return 0
    return -signed if signed < 0 else signed


def text_hash(text):
    """Java's hash of a UTF-8 text."""
    return <int32_t>hash_on(0, bytes(text))


def key_hash(text):
    """The hash an index entry carries: its amount, with the one number that has none taken as 0."""
    return amount_of(hash_on(0, bytes(text)))


# Properties

cdef void find_facts(const uint8_t *properties, int64_t length, Facts *facts) noexcept nogil:
    cdef const uint8_t *at = properties
    cdef const uint8_t *stop = properties + length
    cdef const uint8_t *item_end
    cdef const uint8_t *name_end
    cdef const uint8_t *value
    cdef int64_t name_length, value_length
    facts.tags_length = facts.keys_length = facts.unique_length = facts.delay_length = 0
    facts.tags = facts.keys = facts.unique = facts.delay = NULL
    while at < stop:
        item_end = <const uint8_t *>memchr(at, 2, stop - at)
        if item_end == NULL:
            item_end = stop
        name_end = <const uint8_t *>memchr(at, 1, item_end - at) if item_end > at else NULL
        if name_end != NULL:
            name_length = name_end - at
            value = name_end + 1
            value_length = item_end - value
            if value_length > 0:
                if name_length == 4:
                    if memcmp(at, b"TAGS", 4) == 0:
                        facts.tags = value
                        facts.tags_length = value_length
                    elif memcmp(at, b"KEYS", 4) == 0:
                        facts.keys = value
                        facts.keys_length = value_length
                elif name_length == 8:
                    if memcmp(at, b"UNIQ_KEY", 8) == 0:
                        facts.unique = value
                        facts.unique_length = value_length
                elif name_length == 5:
                    if memcmp(at, b"DELAY", 5) == 0:
                        facts.delay = value
                        facts.delay_length = value_length
        at = item_end + 1


cdef int64_t count_words(const Facts *facts) noexcept nogil:
    cdef int64_t words = (1 if facts.unique_length else 0) + (1 if facts.tags_length else 0)
    cdef int64_t at
    cdef bint inside = False
    for at in range(facts.keys_length):
        if facts.keys[at] == 32:
            inside = False
        elif not inside:
            inside = True
            words += 1
    return words


def dispatch_facts(properties):
    """TAGS, KEYS, UNIQ_KEY and DELAY of a properties text; the last of a name counts, an empty value is none."""
    cdef bytes text = bytes(properties)
    cdef Facts facts
    find_facts(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &facts)
    return (
        (<const char *>facts.tags)[:facts.tags_length] if facts.tags_length else b"",
        (<const char *>facts.keys)[:facts.keys_length] if facts.keys_length else b"",
        (<const char *>facts.unique)[:facts.unique_length] if facts.unique_length else b"",
        (<const char *>facts.delay)[:facts.delay_length] if facts.delay_length else b"",
    )


def index_words(bytes keys, bytes unique, bytes tags):
    """What a message is indexed under, in Apache's order (5.5 and later index the tag too, marked as one)."""
    words = [unique] if unique else []
    words += [word for word in keys.split(b" ") if word]
    if tags:
        words.append(b"T#" + tags)
    return words


def delivery_time(delays_ms, level_text, store_timestamp):
    """When a delayed message is due; None if the level says it is not delayed at all."""
    try:
        level = int(level_text)
    except ValueError:
        return None
    if level <= 0:
        return None
    return store_timestamp + delays_ms[min(level, len(delays_ms)) - 1]


cdef int64_t code_of(QueueTail queue, const Facts *facts, int64_t store_timestamp) except? -9223372036854775807:
    if queue.delays_ms is not None and facts.delay_length:
        due = delivery_time(queue.delays_ms, (<const char *>facts.delay)[:facts.delay_length], store_timestamp)
        if due is not None:
            return due
    if facts.tags_length == 0:
        return 0
    return <int32_t>hash_text(0, facts.tags, facts.tags_length)


def tags_code(QueueTail queue, bytes tags, bytes delay, int64_t store_timestamp):
    cdef Facts facts
    facts.tags = <const uint8_t *>PyBytes_AS_STRING(tags)
    facts.tags_length = PyBytes_GET_SIZE(tags)
    facts.delay = <const uint8_t *>PyBytes_AS_STRING(delay)
    facts.delay_length = PyBytes_GET_SIZE(delay)
    return code_of(queue, &facts, store_timestamp)


# Writing entries

cdef int write_entry(LogTail log, QueueTail queue, int64_t physical, int64_t size, int64_t code) except -1:
    cdef int64_t at = queue.next_offset * 20 - queue.file_start
    if queue.place == NULL or at < 0 or at + 20 > queue.limit:
        if queue.grow is None:
            raise ValueError("the queue has no room for an entry")
        queue.grow()
        at = queue.next_offset * 20 - queue.file_start
        if queue.place == NULL or at < 0 or at + 20 > queue.limit:
            raise ValueError("the queue has no room for an entry")
    put64(queue.place + at, physical)
    put32(queue.place + at + 8, size)
    put64(queue.place + at + 12, code)
    queue.next_offset += 1
    queue.max_physical = physical + size
    queue.last_code = code
    if not queue.dirty:
        queue.dirty = True
        log.dirty_queues.append(queue)
    return 0


def put_entry(LogTail log, QueueTail queue, int64_t physical_offset, int64_t size, int64_t code):
    """The next entry of a queue; its room must be there."""
    write_entry(log, queue, physical_offset, size, code)


cdef bint index_has_room(IndexTail index, int64_t words) noexcept:
    if index.count + words <= index.limit:
        return True
    return index.limit >= index.max_entries and index.limit > 0 and index.next_is_ready


def has_index_room(IndexTail index, int64_t words):
    return index_has_room(index, words)


cdef int write_key(IndexTail index, int64_t hash_of_key, int64_t physical, int64_t time) except -1:
    cdef int64_t number, previous, seconds
    cdef uint8_t *slot
    cdef uint8_t *entry
    if index.count >= index.max_entries and index.roll is not None:
        index.roll()
    number = index.count
    if index.place == NULL or number >= index.max_entries or number >= index.limit:
        raise ValueError("the index has no room for an entry")
    slot = index.place + HEADER_BYTES + 4 * (hash_of_key % index.slots)
    previous = get32(slot)
    if previous <= 0 or previous > number:
        previous = 0
    seconds = 0
    if index.begin_timestamp > 0 and time > index.begin_timestamp:
        seconds = min((time - index.begin_timestamp) // 1000, 0x7FFFFFFF)
    entry = index.place + HEADER_BYTES + 4 * index.slots + 20 * number
    put32(entry, hash_of_key)
    put64(entry + 4, physical)
    put32(entry + 12, seconds)
    put32(entry + 16, previous)
    put32(slot, number)
    if number <= 1:
        index.begin_physical = physical
        index.begin_timestamp = time
    if previous == 0:
        index.used_slots += 1
    index.count = number + 1
    index.end_physical = physical
    index.end_timestamp = time
    write_header(index)
    return 0


cdef void write_header(IndexTail index) noexcept:
    put64(index.place, index.begin_timestamp)
    put64(index.place + 8, index.end_timestamp)
    put64(index.place + 16, index.begin_physical)
    put64(index.place + 24, index.end_physical)
    put32(index.place + 32, index.used_slots)
    put32(index.place + 36, index.count)


def write_index_header(IndexTail index):
    if index.place == NULL:
        raise ValueError("the index has no file")
    write_header(index)


def put_key(IndexTail index, int64_t hash_of_key, int64_t physical_offset, int64_t store_timestamp):
    """One index entry; its room must be there. A full file makes place for the next one first."""
    if hash_of_key < 0:
        raise ValueError("a key's hash is not negative")
    write_key(index, hash_of_key, physical_offset, store_timestamp)


cdef int write_keys(QueueTail queue, IndexTail index, const Facts *facts, int64_t physical, int64_t time) except -1:
    """The index entries of one message: its unique key, each word of its keys, its tag."""
    cdef int64_t at = 0
    cdef int64_t start
    cdef uint32_t mark = (queue.topic_hash * 31 + 84) * 31 + 35  # "T#"
    if facts.unique_length:
        write_key(index, amount_of(hash_text(queue.topic_hash, facts.unique, facts.unique_length)), physical, time)
    while at < facts.keys_length:
        if facts.keys[at] == 32:
            at += 1
            continue
        start = at
        while at < facts.keys_length and facts.keys[at] != 32:
            at += 1
        write_key(index, amount_of(hash_text(queue.topic_hash, facts.keys + start, at - start)), physical, time)
    if facts.tags_length:
        write_key(index, amount_of(hash_text(mark, facts.tags, facts.tags_length)), physical, time)
    return 0


# Writing records

cdef int64_t record_bytes(const RecordFields *fields, bint with_crc) noexcept nogil:
    cdef int64_t size = 82 - 8 + fields.born_host_length + fields.store_host_length
    size += (2 if fields.topic_length > 127 else 1) + fields.topic_length + fields.body_length + fields.properties_length
    if with_crc:
        size += CRC_PROPERTY_BYTES + needs_separator(fields)
    return size


cdef inline int64_t needs_separator(const RecordFields *fields) noexcept nogil:
    return 1 if fields.properties_length and fields.properties[fields.properties_length - 1] != 2 else 0


cdef void write_record(uint8_t *at, const RecordFields *fields, int64_t size, bint with_crc) noexcept nogil:
    cdef uint8_t *start = at
    cdef int32_t sys_flag = fields.sys_flag & ~0x30
    cdef int64_t properties_length = fields.properties_length
    cdef uint32_t crc
    cdef int digit
    if fields.born_host_length == 20:
        sys_flag |= 0x10
    if fields.store_host_length == 20:
        sys_flag |= 0x20
    put32(at, size)
    put32(at + 4, <int32_t>0xDAA320AB if fields.topic_length > 127 else <int32_t>0xDAA320A7)
    put32(at + 12, fields.queue_id)
    put32(at + 16, fields.flag)
    put64(at + 20, fields.queue_offset)
    put64(at + 28, fields.physical_offset)
    put32(at + 36, sys_flag)
    put64(at + 40, fields.born_timestamp)
    at += 48
    memcpy(at, fields.born_host, fields.born_host_length)
    at += fields.born_host_length
    put64(at, fields.store_timestamp)
    at += 8
    memcpy(at, fields.store_host, fields.store_host_length)
    at += fields.store_host_length
    put32(at, fields.reconsume_times)
    put64(at + 4, fields.prepared_transaction_offset)
    put32(at + 12, fields.body_length)
    at += 16
    memcpy(at, fields.body, fields.body_length)
    put32(start + 8, arrowmq_crc32(at, fields.body_length) & 0x7FFFFFFF)
    at += fields.body_length
    if fields.topic_length > 127:
        put16(at, fields.topic_length)
        at += 2
    else:
        at[0] = <uint8_t>fields.topic_length
        at += 1
    memcpy(at, fields.topic, fields.topic_length)
    at += fields.topic_length
    if with_crc:
        properties_length += CRC_PROPERTY_BYTES + needs_separator(fields)
    put16(at, properties_length)
    at += 2
    memcpy(at, fields.properties, fields.properties_length)
    at += fields.properties_length
    if with_crc:
        if needs_separator(fields):
            at[0] = 2
            at += 1
        crc = arrowmq_crc32(start, at - start) & 0x7FFFFFFF
        memcpy(at, b"__CRC32#\x01", 9)
        for digit in range(10):
            at[9 + digit] = <uint8_t>(48 + crc % 10)
            crc //= 10
        at[19] = 2


cdef int check_fields(const RecordFields *fields, bint with_crc) except -1:
    cdef int64_t properties = fields.properties_length
    if with_crc:
        properties += CRC_PROPERTY_BYTES + needs_separator(fields)
    if properties > MAX_PROPERTIES:
        raise RecordError(f"the properties have {properties} bytes, a record has room for 32767")
    if fields.topic_length > 32767:
        raise RecordError(f"the topic has {fields.topic_length} bytes, a record has room for 32767")
    if fields.body_length > 0x7FFF0000:
        raise RecordError("the body is too large for a record")
    return 0


cdef inline bint is_queued(int32_t sys_flag) noexcept nogil:
    return (sys_flag & 0xC) != 0x4 and (sys_flag & 0xC) != 0xC


cdef int64_t append_fields(LogTail log, QueueTail queue, IndexTail index, RecordFields *fields, bint with_crc) except -100:
    cdef int64_t size = record_bytes(fields, with_crc)
    cdef bint queued = is_queued(fields.sys_flag)
    cdef Facts facts
    cdef int64_t words = 0
    cdef int64_t at
    check_fields(fields, with_crc)
    if log.place == NULL or log.position + size + BLANK_BYTES > log.size:
        return _NEEDS_SEGMENT
    if queued:
        at = queue.next_offset * 20 - queue.file_start
        if queue.place == NULL or at < 0 or (at + 20 > queue.limit and queue.next_offset >= queue.reserved):
            return _NEEDS_QUEUE_ROOM
    find_facts(fields.properties, fields.properties_length, &facts)
    if index.enabled and (fields.sys_flag & 0xC) != 0xC:
        words = count_words(&facts)
        if words and not index_has_room(index, words):
            return _NEEDS_INDEX_ROOM
    fields.queue_offset = queue.next_offset if queued else 0
    fields.physical_offset = log.start + log.position
    write_record(log.place + log.position, fields, size, with_crc)
    log.position += size
    log.last_store_timestamp = fields.store_timestamp
    if queued:
        write_entry(log, queue, fields.physical_offset, size, code_of(queue, &facts, fields.store_timestamp))
    if words:
        write_keys(queue, index, &facts, fields.physical_offset, fields.store_timestamp)
    return size


cdef class _Held:
    """The Python objects whose bytes a RecordFields points into."""

    cdef bytes topic
    cdef bytes body
    cdef bytes properties
    cdef uint8_t[20] born_host
    cdef uint8_t[20] store_host


cdef int64_t host_into(object host, uint8_t *place) except -1:
    cdef bytes ip = bytes(host[0])
    cdef int64_t length = PyBytes_GET_SIZE(ip)
    if length != 4 and length != 16:
        raise RecordError("a host has 4 or 16 bytes of address")
    cdef int32_t port = host[1]
    memcpy(place, PyBytes_AS_STRING(ip), length)
    put32(place + length, port)
    return length + 4


cdef int take_fields(object record, QueueTail queue, int64_t store_timestamp, _Held held, RecordFields *fields) except -1:
    topic = record.topic
    held.topic = queue.topic_bytes if topic == queue.topic else topic.encode("utf-8", "replace")
    body = record.body
    held.body = body if PyBytes_Check(body) else bytes(body)
    properties = record.properties_raw
    held.properties = properties if PyBytes_Check(properties) else bytes(properties)
    fields.topic = <const uint8_t *>PyBytes_AS_STRING(held.topic)
    fields.topic_length = PyBytes_GET_SIZE(held.topic)
    fields.body = <const uint8_t *>PyBytes_AS_STRING(held.body)
    fields.body_length = PyBytes_GET_SIZE(held.body)
    fields.properties = <const uint8_t *>PyBytes_AS_STRING(held.properties)
    fields.properties_length = PyBytes_GET_SIZE(held.properties)
    fields.born_host_length = host_into(record.born_host, held.born_host)
    fields.born_host = held.born_host
    fields.store_host_length = host_into(record.store_host, held.store_host)
    fields.store_host = held.store_host
    try:
        fields.queue_id = record.queue_id
        fields.flag = record.flag
        fields.sys_flag = record.sys_flag
        fields.reconsume_times = record.reconsume_times
        fields.born_timestamp = record.born_timestamp
        fields.prepared_transaction_offset = record.prepared_transaction_offset
    except OverflowError as wrong:
        raise RecordError(f"a field of the record does not fit: {wrong}") from wrong
    fields.store_timestamp = store_timestamp
    return 0


def append(LogTail log, QueueTail queue, IndexTail index, record, int64_t store_timestamp, bint with_crc=False):
    """Write a record with its entries; its size, or which room is missing. Gives the record its place and time."""
    cdef _Held held = _Held.__new__(_Held)
    cdef RecordFields fields
    take_fields(record, queue, store_timestamp, held, &fields)
    cdef int64_t size = append_fields(log, queue, index, &fields, with_crc)
    if size > 0:
        record.queue_offset = fields.queue_offset
        record.physical_offset = fields.physical_offset
        record.store_timestamp = store_timestamp
    return size


cdef int64_t room_for(LogTail log, QueueTail queue, IndexTail index, int64_t size, int64_t count, int64_t words):
    cdef int64_t at = queue.next_offset * 20 - queue.file_start
    if log.place == NULL or log.position + size + BLANK_BYTES > log.size:
        return _NEEDS_SEGMENT
    if at < 0 or (at + 20 * count > queue.limit and queue.next_offset + count > queue.reserved):
        return _NEEDS_QUEUE_ROOM
    if queue.place == NULL:
        if queue.grow is None:
            return _NEEDS_QUEUE_ROOM
        queue.grow()
    if index.enabled and words and not index_has_room(index, words):
        return _NEEDS_INDEX_ROOM
    return 0


def append_batch(
    LogTail log, QueueTail queue, IndexTail index, list records, int64_t store_timestamp, bint with_crc=False,
    int64_t max_body=0x7FFFFFFF,
):
    """Write messages of one queue, all or none, in one segment; their bytes, or which room is missing.

    The second number is how many bytes, entries or words of room that takes.
    """
    cdef _Held held = _Held.__new__(_Held)
    cdef RecordFields fields
    cdef Facts facts
    cdef int64_t total = 0, words = 0, queued = 0, missing, size
    for record in records:
        take_fields(record, queue, store_timestamp, held, &fields)
        check_fields(&fields, with_crc)
        if held.topic is not queue.topic_bytes or fields.queue_id != queue.queue_id:
            raise RecordError("the messages of a batch are of one queue")
        if fields.body_length > max_body:
            raise RecordError(f"a message of the batch has {fields.body_length} bytes, {max_body} are allowed")
        total += record_bytes(&fields, with_crc)
        queued += 1 if is_queued(fields.sys_flag) else 0
        if index.enabled and (fields.sys_flag & 0xC) != 0xC:
            find_facts(fields.properties, fields.properties_length, &facts)
            words += count_words(&facts)
    missing = room_for(log, queue, index, total, queued, words)
    if missing:
        return missing, (total if missing == _NEEDS_SEGMENT else queued if missing == _NEEDS_QUEUE_ROOM else words)
    for record in records:
        take_fields(record, queue, store_timestamp, held, &fields)
        size = append_fields(log, queue, index, &fields, with_crc)
        if size <= 0:
            raise RuntimeError("room for the whole batch was made, and yet it is missing")
        record.queue_offset = fields.queue_offset
        record.physical_offset = fields.physical_offset
        record.store_timestamp = store_timestamp
    return total, len(records)


cdef int64_t next_item(const uint8_t *data, int64_t at, int64_t length, RecordFields *fields) except -1:
    """Point the fields at the batch item at `at`; where the next one begins. Layout: `wire.batch`."""
    cdef int64_t size, body_length, properties_length
    if length - at < 22:
        raise RecordError(f"{length - at} bytes are too few for a batch item", at)
    size = get32(data + at)
    if size < 22 or size > length - at:
        raise RecordError(f"the batch item claims {size} bytes, {length - at} are there", at)
    body_length = get32(data + at + 16)
    if body_length < 0 or body_length > size - 22:
        raise RecordError(f"the body of a batch item claims {body_length} bytes", at + 16)
    properties_length = <int64_t>((data[at + 20 + body_length] << 8) | data[at + 21 + body_length])
    if properties_length >= 32768 or properties_length != size - 22 - body_length:
        raise RecordError(f"the properties of a batch item claim {properties_length} bytes", at + 20 + body_length)
    fields.flag = get32(data + at + 12)
    fields.body = data + at + 20
    fields.body_length = body_length
    fields.properties = data + at + 22 + body_length
    fields.properties_length = properties_length
    return at + size


def append_client_batch(
    LogTail log, QueueTail queue, IndexTail index, template, bytes data, int64_t store_timestamp, bint with_crc=False,
    int64_t max_body=0x7FFFFFFF,
):
    """Write the messages of a client's batch body, each with the template's queue, hosts and flags; as `append_batch`.

    Of the answer's two numbers the second is the count of messages.
    """
    cdef _Held held = _Held.__new__(_Held)
    cdef RecordFields fields
    cdef Facts facts
    cdef const uint8_t *place = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t length = PyBytes_GET_SIZE(data)
    cdef int64_t at = 0, total = 0, words = 0, count = 0, missing, size
    take_fields(template, queue, store_timestamp, held, &fields)
    while at < length:
        at = next_item(place, at, length, &fields)
        check_fields(&fields, with_crc)
        if fields.body_length > max_body:
            raise RecordError(f"a message of the batch has {fields.body_length} bytes, {max_body} are allowed")
        total += record_bytes(&fields, with_crc)
        count += 1
        if index.enabled:
            find_facts(fields.properties, fields.properties_length, &facts)
            words += count_words(&facts)
    if not count:
        raise RecordError("a batch needs at least one message")
    missing = room_for(log, queue, index, total, count, words)
    if missing:
        return missing, (total if missing == _NEEDS_SEGMENT else count if missing == _NEEDS_QUEUE_ROOM else words)
    template.queue_offset = queue.next_offset
    template.physical_offset = log.start + log.position
    template.store_timestamp = store_timestamp
    at = 0
    while at < length:
        at = next_item(place, at, length, &fields)
        size = append_fields(log, queue, index, &fields, with_crc)
        if size <= 0:
            raise RuntimeError("room for the whole batch was made, and yet it is missing")
    return total, count

# cython: language_level=3
"""The ends of the log, of a queue and of the index: the native form of `_tail_plain`, where the layouts stand.

`append_fields` is what everything comes down to: it writes a record straight into the mapped segment, with its queue
entry and index entries, from C values. Every length is checked before it is used.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from arrowmq.wire._bytes cimport get32, get64, put32, put64
from arrowmq.wire.records._layout_native cimport (
    PROPERTIES_TOO_LONG,
    TOPIC_TOO_LONG,
    NewRecord,
    record_size,
    write_record,
)

from arrowmq.wire.errors import RecordError

cdef extern from *:
    """
    #define arrowmq_expect(place) __builtin_prefetch((place), 1, 3)
    """
    void arrowmq_expect(const void *place) noexcept nogil

cdef enum:
    _NEEDS_SEGMENT = -1
    _NEEDS_QUEUE_ROOM = -2
    _NEEDS_INDEX_ROOM = -3
    BLANK_BYTES = 8
    HEADER_BYTES = 40

NEEDS_SEGMENT = _NEEDS_SEGMENT
NEEDS_QUEUE_ROOM = _NEEDS_QUEUE_ROOM
NEEDS_INDEX_ROOM = _NEEDS_INDEX_ROOM

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
        self.position = self.prefaulted = position
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
    """Java's hash continued over ASCII; -1 if the text is not ASCII. Eight letters a step: their weights are 31^7 … 1."""
    cdef int64_t at = 0
    cdef uint8_t any_high = 0
    while at + 8 <= length:
        any_high |= text[at] | text[at + 1] | text[at + 2] | text[at + 3]
        any_high |= text[at + 4] | text[at + 5] | text[at + 6] | text[at + 7]
        value = value * 2487512833u + (
            text[at] * 1742810335u + text[at + 1] * 887503681u + text[at + 2] * 28629151u + text[at + 3] * 923521u
            + text[at + 4] * 29791u + text[at + 5] * 961u + text[at + 6] * 31u + text[at + 7]
        )
        at += 8
    while at < length:
        any_high |= text[at]
        value = value * 31 + text[at]
        at += 1
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
    facts.unique_hash = -1
    while at < stop:
        name_end = at
        while name_end < stop and name_end[0] != 1 and name_end[0] != 2:
            name_end += 1
        item_end = name_end
        if name_end < stop and name_end[0] == 1:
            value = name_end + 1
            item_end = <const uint8_t *>memchr(value, 2, stop - value) if value < stop else NULL
            if item_end == NULL:
                item_end = stop
            name_length = name_end - at
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


cdef int64_t count_index_keys(const Facts *facts) noexcept nogil:
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


def index_keys(bytes keys, bytes unique, bytes tags):
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


cdef inline uint8_t *slot_of(IndexTail index, int64_t hash_of_key) noexcept:
    return index.place + HEADER_BYTES + 4 * <int64_t>(<uint32_t>hash_of_key % <uint32_t>index.slots)


cdef void prefetch_key(QueueTail queue, IndexTail index, Facts *facts) noexcept:
    cdef int64_t found
    if facts.unique_length and index.place != NULL:
        found = hash_ascii(queue.topic_hash, facts.unique, facts.unique_length)
        if found >= 0:
            facts.unique_hash = amount_of(<uint32_t>found)
            arrowmq_expect(slot_of(index, facts.unique_hash))


cdef int write_key(IndexTail index, int64_t hash_of_key, int64_t physical, int64_t time) except -1:
    cdef int64_t number, previous, seconds
    cdef uint8_t *slot
    cdef uint8_t *entry
    if index.count >= index.max_entries and index.roll is not None:
        write_header(index)
        index.roll()
    number = index.count
    if index.place == NULL or number >= index.max_entries or number >= index.limit:
        raise ValueError("the index has no room for an entry")
    slot = slot_of(index, hash_of_key)
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
    return 0


cdef void write_header(IndexTail index) noexcept:
    if index.place == NULL:
        return
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
    write_header(index)


cdef int write_keys(QueueTail queue, IndexTail index, const Facts *facts, int64_t physical, int64_t time) except -1:
    """The index entries of one message: its unique key, each word of its keys, its tag. The header is left to do."""
    cdef int64_t at = 0
    cdef int64_t start
    cdef uint32_t mark = (queue.topic_hash * 31 + 84) * 31 + 35  # "T#"
    cdef int64_t unique_hash = facts.unique_hash
    if facts.unique_length:
        if unique_hash < 0:
            unique_hash = amount_of(hash_text(queue.topic_hash, facts.unique, facts.unique_length))
        write_key(index, unique_hash, physical, time)
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

cdef inline void describe(const RecordFields *fields, bint with_crc, NewRecord *record) noexcept nogil:
    """The fields as the wire's record writer takes them."""
    record.queue_id = fields.queue_id
    record.flag = fields.flag
    record.queue_offset = fields.queue_offset
    record.physical_offset = fields.physical_offset
    record.sys_flag = fields.sys_flag
    record.born_timestamp = fields.born_timestamp
    record.born_ip = fields.born_host
    record.born_ip_length = fields.born_host_length - 4
    record.born_port = get32(fields.born_host + fields.born_host_length - 4) if fields.born_host_length >= 4 else 0
    record.store_timestamp = fields.store_timestamp
    record.store_ip = fields.store_host
    record.store_ip_length = fields.store_host_length - 4
    record.store_port = get32(fields.store_host + fields.store_host_length - 4) if fields.store_host_length >= 4 else 0
    record.reconsume_times = fields.reconsume_times
    record.prepared_transaction_offset = fields.prepared_transaction_offset
    record.body = fields.body
    record.body_length = fields.body_length
    record.topic = fields.topic
    record.topic_length = fields.topic_length
    record.properties = fields.properties
    record.properties_length = fields.properties_length
    record.with_record_crc = with_crc


cdef int64_t record_bytes(const RecordFields *fields, bint with_crc) noexcept nogil:
    cdef NewRecord record  # no more of it than its size depends on
    record.born_ip_length = fields.born_host_length - 4
    record.store_ip_length = fields.store_host_length - 4
    record.body_length = fields.body_length
    record.topic_length = fields.topic_length
    record.properties = fields.properties
    record.properties_length = fields.properties_length
    record.with_record_crc = with_crc
    return record_size(&record)


cdef int64_t checked_bytes(const RecordFields *fields, bint with_crc) except -100:
    """The record's size; raises if it cannot be one."""
    cdef int64_t size = record_bytes(fields, with_crc)
    if size > 0:
        return size
    if size == PROPERTIES_TOO_LONG:
        raise RecordError(f"the properties have {fields.properties_length} bytes, a record has room for 32767")
    if size == TOPIC_TOO_LONG:
        raise RecordError(f"the topic has {fields.topic_length} bytes, a record has room for 32767")
    raise RecordError("the body or a host's address does not fit into a record")


cdef inline bint is_queued(int32_t sys_flag) noexcept nogil:
    return (sys_flag & 0xC) != 0x4 and (sys_flag & 0xC) != 0xC


cdef int64_t append_fields(LogTail log, QueueTail queue, IndexTail index, RecordFields *fields, bint with_crc) except -100:
    cdef int64_t size = checked_bytes(fields, with_crc)
    cdef bint queued = is_queued(fields.sys_flag)
    cdef Facts facts
    cdef int64_t words = 0
    cdef int64_t at
    if log.place == NULL or log.position + size + BLANK_BYTES > log.size:
        return _NEEDS_SEGMENT
    if queued:
        at = queue.next_offset * 20 - queue.file_start
        if queue.place == NULL or at < 0 or (at + 20 > queue.limit and queue.next_offset >= queue.reserved):
            return _NEEDS_QUEUE_ROOM
    find_facts(fields.properties, fields.properties_length, &facts)
    if index.enabled and (fields.sys_flag & 0xC) != 0xC:
        words = count_index_keys(&facts)
        if words and not index_has_room(index, words):
            return _NEEDS_INDEX_ROOM
        prefetch_key(queue, index, &facts)
    append_known(log, queue, index, fields, &facts, size, words, with_crc)
    if words:
        write_header(index)
    return size


cdef int64_t append_known(
    LogTail log, QueueTail queue, IndexTail index, RecordFields *fields, const Facts *facts, int64_t size, int64_t words,
    bint with_crc,
) except -100:
    """The second half of an append: the room is there, and the size and the number of index keys are known. The header of the
    index is left to do, once for a whole batch."""
    cdef bint queued = is_queued(fields.sys_flag)
    cdef NewRecord record
    fields.queue_offset = queue.next_offset if queued else 0
    fields.physical_offset = log.start + log.position
    describe(fields, with_crc, &record)
    if log.place == NULL or log.position + size + BLANK_BYTES > log.size:
        raise RuntimeError("the segment has no room for the record")
    if log.position + size > log.prefaulted and log.prefault is not None:
        log.prefault(log.position + size)
    if write_record(log.place + log.position, size, &record) != size:
        raise RuntimeError("a record came out in another size than was foreseen")
    log.position += size
    log.last_store_timestamp = fields.store_timestamp
    if queued:
        write_entry(log, queue, fields.physical_offset, size, code_of(queue, facts, fields.store_timestamp))
    if words:
        write_keys(queue, index, facts, fields.physical_offset, fields.store_timestamp)
    return size

# cython: language_level=3
"""Appending messages, one by one and in batches: the native form of `_append_plain`, over the tails' `append_fields`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from arrowmq.wire._bytes cimport get32, put32
from arrowmq.store.append._tail_native cimport (
    Facts,
    IndexTail,
    LogTail,
    QueueTail,
    RecordFields,
    append_fields,
    append_known,
    write_header,
    checked_bytes,
    count_index_keys,
    find_facts,
    index_has_room,
)

from arrowmq.wire.errors import RecordError

cdef enum:
    NEEDS_SEGMENT = -1
    NEEDS_QUEUE_ROOM = -2
    NEEDS_INDEX_ROOM = -3
    BLANK_BYTES = 8


cdef inline bint is_queued(int32_t sys_flag) noexcept nogil:
    return (sys_flag & 0xC) != 0x4 and (sys_flag & 0xC) != 0xC


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
        return NEEDS_SEGMENT
    if at < 0 or (at + 20 * count > queue.limit and queue.next_offset + count > queue.reserved):
        return NEEDS_QUEUE_ROOM
    if queue.place == NULL:
        if queue.grow is None:
            return NEEDS_QUEUE_ROOM
        queue.grow()
    if index.enabled and words and not index_has_room(index, words):
        return NEEDS_INDEX_ROOM
    return 0


def append_batch(
    LogTail log, QueueTail queue, IndexTail index, list records, int64_t store_timestamp, bint with_crc=False,
    int64_t max_body=0x7FFFFFFF,
):
    """Write messages of one queue, all or none, in one segment; their bytes, or which room is missing.

    The second number is how many bytes, entries or keys of room that takes.
    """
    cdef _Held held = _Held.__new__(_Held)
    cdef RecordFields fields
    cdef Facts facts
    cdef int64_t total = 0, words = 0, queued = 0, missing, size
    for record in records:
        take_fields(record, queue, store_timestamp, held, &fields)
        total += checked_bytes(&fields, with_crc)
        if held.topic is not queue.topic_bytes or fields.queue_id != queue.queue_id:
            raise RecordError("the messages of a batch are of one queue")
        if fields.body_length > max_body:
            raise RecordError(f"a message of the batch has {fields.body_length} bytes, {max_body} are allowed")
        queued += 1 if is_queued(fields.sys_flag) else 0
        if index.enabled and (fields.sys_flag & 0xC) != 0xC:
            find_facts(fields.properties, fields.properties_length, &facts)
            words += count_index_keys(&facts)
    missing = room_for(log, queue, index, total, queued, words)
    if missing:
        return missing, (total if missing == NEEDS_SEGMENT else queued if missing == NEEDS_QUEUE_ROOM else words)
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


cdef struct Item:
    # What reading a batch found out of one message of it.
    int64_t at
    int64_t size
    int64_t words
    Facts facts


def append_client_batch(
    LogTail log, QueueTail queue, IndexTail index, template, bytes data, int64_t store_timestamp, bint with_crc=False,
    int64_t max_body=0x7FFFFFFF,
):
    """Write the messages of a client's batch body, each with the template's queue, hosts and flags; as `append_batch`.

    Of the answer's two numbers the second is the count of messages.
    """
    cdef _Held held = _Held.__new__(_Held)
    cdef RecordFields fields
    cdef int64_t number, missing
    cdef const uint8_t *place = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t length = PyBytes_GET_SIZE(data)
    cdef int64_t total = 0, words = 0, count = 0
    cdef Item *items = NULL
    take_fields(template, queue, store_timestamp, held, &fields)
    try:
        items = read_items(index, place, length, &fields, with_crc, max_body, &count, &total, &words)
        missing = room_for(log, queue, index, total, count, words)
        if missing:
            return missing, (total if missing == NEEDS_SEGMENT else count if missing == NEEDS_QUEUE_ROOM else words)
        template.queue_offset = queue.next_offset
        template.physical_offset = log.start + log.position
        template.store_timestamp = store_timestamp
        for number in range(count):
            next_item(place, items[number].at, length, &fields)
            append_known(log, queue, index, &fields, &items[number].facts, items[number].size, items[number].words, with_crc)
        if words:
            write_header(index)
        return total, count
    finally:
        free(items)


cdef Item *read_items(
    IndexTail index, const uint8_t *place, int64_t length, RecordFields *fields, bint with_crc, int64_t max_body,
    int64_t *count, int64_t *total, int64_t *words,
) except NULL:
    """Every message of a batch body, checked; the caller frees the answer."""
    cdef int64_t at = 0, room = length // 22 + 1
    cdef Item *items = <Item *>malloc(room * sizeof(Item))
    cdef Item *item
    if items == NULL:
        raise MemoryError
    try:
        while at < length:
            item = items + count[0]
            item.at = at
            at = next_item(place, at, length, fields)
            if fields.body_length > max_body:
                raise RecordError(f"a message of the batch has {fields.body_length} bytes, {max_body} are allowed")
            item.size = checked_bytes(fields, with_crc)
            find_facts(fields.properties, fields.properties_length, &item.facts)
            item.words = count_index_keys(&item.facts) if index.enabled else 0
            total[0] += item.size
            words[0] += item.words
            count[0] += 1
        if not count[0]:
            raise RecordError("a batch needs at least one message")
    except:
        free(items)
        raise
    return items

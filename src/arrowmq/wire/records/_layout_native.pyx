"""The bytes of a record: where its parts lie, whether its checksums are right, and writing it.

C for other native modules, no Python interface. `_records_plain` has the layout and says what is right. Every length is
checked before it is used.
"""

from libc.stdint cimport INT32_MAX, int32_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

from arrowmq.wire._bytes cimport get16, get32, put16, put32, put64
from arrowmq.wire._checksum_native cimport crc32_bytes

cdef enum:
    V1 = -626843481
    V2 = -626843477
    SMALLEST = 91
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    CRC_BYTES = 20

# --------------------------------------------------------------------------------------------------------- reading


cdef bint find_layout(const unsigned char* data, Py_ssize_t room, Layout* at) noexcept nogil:
    cdef Py_ssize_t length_bytes
    if room < SMALLEST:
        return False
    at.size = get32(data)
    at.magic = get32(data + 4)
    if (at.magic != V1 and at.magic != V2) or at.size < SMALLEST or at.size > room:
        return False
    at.sys_flag = get32(data + 36)
    at.store_host = 48 + (20 if at.sys_flag & BORN_V6 else 8) + 8
    at.body = at.store_host + (20 if at.sys_flag & STORE_V6 else 8) + 16
    length_bytes = 2 if at.magic == V2 else 1
    if at.size - at.body < length_bytes + 2:
        return False
    at.body_length = get32(data + at.body - 4)
    if at.body_length < 0 or at.body_length > at.size - at.body - length_bytes - 2:
        return False
    at.topic = at.body + at.body_length + length_bytes
    if length_bytes == 2:
        at.topic_length = get16(data + at.topic - 2)
    else:
        at.topic_length = data[at.topic - 1]
        if at.topic_length > 127:
            return False
    if at.topic_length < 0 or at.topic_length > at.size - at.topic - 2:
        return False
    at.properties = at.topic + at.topic_length + 2
    at.properties_length = get16(data + at.properties - 2)
    return at.properties_length == at.size - at.properties


cdef bint crc_is_right(const unsigned char* data, const Layout* at) noexcept nogil:
    cdef Py_ssize_t tail
    cdef unsigned char expected[CRC_BYTES]
    if <uint32_t>get32(data + 8) != crc32_bytes(data + at.body, at.body_length):
        return False
    if has_crc_property(data + at.properties, at.properties_length):
        tail = at.size - CRC_BYTES
        write_crc_property(expected, crc32_bytes(data, tail))
        return memcmp(data + tail, expected, CRC_BYTES) == 0
    return True


cdef bint has_crc_property(const unsigned char* properties, Py_ssize_t length) noexcept nogil:
    return (
        length >= CRC_BYTES
        and memcmp(properties + length - CRC_BYTES, b"__CRC32#\x01", 9) == 0
        and properties[length - 1] == 2
        and (length == CRC_BYTES or properties[length - CRC_BYTES - 1] == 2)
    )


cdef void write_crc_property(unsigned char* target, uint32_t crc) noexcept nogil:
    cdef int digit
    memcpy(target, b"__CRC32#\x01", 9)
    for digit in range(10):  # least significant first
        target[9 + digit] = 48 + crc % 10
        crc //= 10
    target[19] = 2


cdef bint find_value(
    const unsigned char* properties, Py_ssize_t length, const unsigned char* name, Py_ssize_t name_length,
    const unsigned char** value, Py_ssize_t* value_length
) noexcept nogil:
    cdef const unsigned char* item = properties
    cdef const unsigned char* end = properties + length
    cdef const unsigned char* item_end
    cdef bint found = False
    if name_length <= 0:
        return False
    while item < end:
        item_end = <const unsigned char*>memchr(item, 2, end - item)
        if item_end == NULL:
            item_end = end
        if item_end - item > name_length + 1 and item[name_length] == 1 and memcmp(item, name, name_length) == 0:
            value[0] = item + name_length + 1
            value_length[0] = item_end - item - name_length - 1
            found = True
        item = item_end + 1
    return found


# --------------------------------------------------------------------------------------------------------- writing


cdef inline Py_ssize_t kept_properties_length(const NewRecord* record) noexcept nogil:
    """The properties without a checksum of other bytes at their end."""
    cdef Py_ssize_t length = record.properties_length
    while has_crc_property(record.properties, length):
        length -= CRC_BYTES
    return length


cdef inline Py_ssize_t stored_length(const NewRecord* record, Py_ssize_t kept_length) noexcept nogil:
    """How long they are with the checksum that the record gets."""
    if not record.with_record_crc:
        return kept_length
    return kept_length + CRC_BYTES + (1 if kept_length > 0 and record.properties[kept_length - 1] != 2 else 0)


cdef Py_ssize_t stored_properties_length(const NewRecord* record) noexcept nogil:
    return stored_length(record, kept_properties_length(record))


cdef Py_ssize_t record_size(const NewRecord* record) noexcept nogil:
    return size_with(record, stored_properties_length(record))


cdef inline Py_ssize_t size_with(const NewRecord* record, Py_ssize_t properties_length) noexcept nogil:
    cdef Py_ssize_t size
    if properties_length > 32767:
        return PROPERTIES_TOO_LONG
    if record.topic_length > 32767:
        return TOPIC_TOO_LONG
    if (record.born_ip_length != 4 and record.born_ip_length != 16) or (
        record.store_ip_length != 4 and record.store_ip_length != 16
    ):
        return BAD_ADDRESS
    if record.body_length > INT32_MAX - 70000:
        return RECORD_TOO_LONG
    size = 80 + record.born_ip_length + record.store_ip_length + record.body_length
    return size + (2 if record.topic_length > 127 else 1) + record.topic_length + 2 + properties_length


cdef Py_ssize_t write_record(unsigned char* target, Py_ssize_t room, const NewRecord* record) noexcept nogil:
    cdef Py_ssize_t kept_length = kept_properties_length(record)
    cdef Py_ssize_t properties_length = stored_length(record, kept_length)
    cdef Py_ssize_t size = size_with(record, properties_length)
    cdef unsigned char* at = target
    cdef int32_t sys_flag
    if size < 0:
        return size
    if size > room:
        return NO_ROOM
    sys_flag = record.sys_flag & ~(BORN_V6 | STORE_V6)
    if record.born_ip_length == 16:
        sys_flag |= BORN_V6
    if record.store_ip_length == 16:
        sys_flag |= STORE_V6
    put32(at, size)
    put32(at + 4, V2 if record.topic_length > 127 else V1)
    put32(at + 8, crc32_bytes(record.body, record.body_length))
    put32(at + 12, record.queue_id)
    put32(at + 16, record.flag)
    put64(at + 20, record.queue_offset)
    put64(at + 28, record.physical_offset)
    put32(at + 36, sys_flag)
    put64(at + 40, record.born_timestamp)
    at += 48
    memcpy(at, record.born_ip, record.born_ip_length)
    put32(at + record.born_ip_length, record.born_port)
    at += record.born_ip_length + 4
    put64(at, record.store_timestamp)
    at += 8
    memcpy(at, record.store_ip, record.store_ip_length)
    put32(at + record.store_ip_length, record.store_port)
    at += record.store_ip_length + 4
    put32(at, record.reconsume_times)
    put64(at + 4, record.prepared_transaction_offset)
    put32(at + 12, record.body_length)
    at += 16
    if record.body_length:
        memcpy(at, record.body, record.body_length)
        at += record.body_length
    if record.topic_length > 127:
        at[0] = <unsigned char>(record.topic_length >> 8)
        at += 1
    at[0] = <unsigned char>record.topic_length
    at += 1
    if record.topic_length:
        memcpy(at, record.topic, record.topic_length)
        at += record.topic_length
    put16(at, properties_length)
    at += 2
    if kept_length:
        memcpy(at, record.properties, kept_length)
        at += kept_length
    if record.with_record_crc:
        if kept_length and record.properties[kept_length - 1] != 2:
            at[0] = 2
            at += 1
        write_crc_property(at, crc32_bytes(target, at - target))
    return size

"""Stored records, compiled. `_records_plain` has the layout and says what is right; this says it faster.

Whatever cannot be read is handed to the plain twin, which finds the words for it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from arrowmq.wire import _records_plain as plain
from arrowmq.wire.compression import decompress
from arrowmq.wire.errors import RecordError
from arrowmq.wire.ids import offset_message_id
from arrowmq.wire.properties import decode_properties

cdef extern from "Python.h":
    int PyUnicode_KIND(object text)
    void* PyUnicode_DATA(object text)
    uint32_t PyUnicode_READ(int kind, void* data, Py_ssize_t index) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from "arrowmq/wire/crc32_fold.h" nogil:
    void arrowmq_crc32_setup()
    uint32_t arrowmq_crc32(const unsigned char* data, size_t length, int wants_clmul)

arrowmq_crc32_setup()

MAGIC_V1 = plain.MAGIC_V1
MAGIC_V2 = plain.MAGIC_V2
BLANK_MAGIC = plain.BLANK_MAGIC
MIN_RECORD_BYTES = plain.MIN_RECORD_BYTES
ENTRY_BYTES = plain.ENTRY_BYTES
CRC_PROPERTY_BYTES = plain.CRC_PROPERTY_BYTES
crc_property = plain.crc_property

cdef enum:
    V1 = -626843481
    V2 = -626843477
    SMALLEST = 91
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    CRC_BYTES = 20
    ENTRY = 20
    FEW_TAGS = 16

# ------------------------------------------------------------------------------------------------------ big endian


cdef int32_t read_int32(const unsigned char* data) noexcept nogil:
    return <int32_t>((<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3])


cdef int64_t read_int64(const unsigned char* data) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>read_int32(data) << 32) | <uint32_t>read_int32(data + 4))


cdef inline int32_t read_int16(const unsigned char* data) noexcept nogil:
    return <int32_t>(<short>((<uint16_t>data[0] << 8) | data[1]))


cdef inline void put_int32(unsigned char* target, uint32_t value) noexcept nogil:
    target[0] = <unsigned char>(value >> 24)
    target[1] = <unsigned char>(value >> 16)
    target[2] = <unsigned char>(value >> 8)
    target[3] = <unsigned char>value


cdef inline void put_int64(unsigned char* target, uint64_t value) noexcept nogil:
    put_int32(target, <uint32_t>(value >> 32))
    put_int32(target + 4, <uint32_t>value)


# ----------------------------------------------------------------------------------------------- checksum and hash


cdef uint32_t crc32_bytes(const unsigned char* data, size_t length) noexcept nogil:
    return arrowmq_crc32(data, length, 1) & 0x7FFFFFFF


def crc32(data):
    """CRC-32 with the top bit cleared, which is how RocketMQ keeps it."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len > 262144:  # long enough to let others run meanwhile
        with nogil:
            crc = crc32_bytes(<const unsigned char*>view.buf, view.len)
    else:
        crc = crc32_bytes(<const unsigned char*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32_by_tables(data):
    """The same without the processor's carry-less multiplication, for the tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t crc = arrowmq_crc32(<const unsigned char*>view.buf, view.len, 0) & 0x7FFFFFFF
    PyBuffer_Release(&view)
    return crc


def java_hash(str text not None):
    """Java's `String.hashCode`: over UTF-16 units, signed 32 bits."""
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef uint32_t hashed = 0, unit
    cdef Py_ssize_t index
    for index in range(PyUnicode_GET_LENGTH(text)):
        unit = PyUnicode_READ(kind, data, index)
        if unit > 0xFFFF:
            unit -= 0x10000
            hashed = 31 * hashed + (0xD800 | (unit >> 10))
            unit = 0xDC00 | (unit & 0x3FF)
        hashed = 31 * hashed + unit
    return <int32_t>hashed


cdef bint java_hash_utf8(const unsigned char* text, Py_ssize_t length, int32_t* hashed) noexcept nogil:
    cdef uint32_t value = 0, unit
    cdef Py_ssize_t position = 0, more, index
    while position < length:
        unit = text[position]
        position += 1
        if unit >= 0x80:
            if 0xC2 <= unit <= 0xDF:
                more = 1
                unit &= 0x1F
            elif 0xE0 <= unit <= 0xEF:
                more = 2
                unit &= 0x0F
            elif 0xF0 <= unit <= 0xF4:
                more = 3
                unit &= 0x07
            else:
                return False
            if length - position < more:
                return False
            for index in range(more):
                if text[position] & 0xC0 != 0x80:
                    return False
                unit = (unit << 6) | (text[position] & 0x3F)
                position += 1
            # Overlong forms, surrogates and what lies beyond Unicode are no UTF-8.
            if (more == 2 and (unit < 0x800 or 0xD800 <= unit <= 0xDFFF)) or (
                more == 3 and (unit < 0x10000 or unit > 0x10FFFF)
            ):
                return False
            if unit > 0xFFFF:
                unit -= 0x10000
                value = 31 * value + (0xD800 | (unit >> 10))
                unit = 0xDC00 | (unit & 0x3FF)
        value = 31 * value + unit
    hashed[0] = <int32_t>value
    return True


def java_hash_of_bytes(bytes text not None):
    """Java's hash of UTF-8 bytes, or None if they are none."""
    cdef int32_t hashed
    if java_hash_utf8(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &hashed):
        return hashed
    return None


# -------------------------------------------------------------------------------------------------------- layout


cdef bint find_layout(const unsigned char* data, Py_ssize_t room, Layout* at) noexcept nogil:
    cdef Py_ssize_t length_bytes
    if room < SMALLEST:
        return False
    at.size = read_int32(data)
    at.magic = read_int32(data + 4)
    if (at.magic != V1 and at.magic != V2) or at.size < SMALLEST or at.size > room:
        return False
    at.sys_flag = read_int32(data + 36)
    at.store_host = 48 + (20 if at.sys_flag & BORN_V6 else 8) + 8
    at.body = at.store_host + (20 if at.sys_flag & STORE_V6 else 8) + 16
    length_bytes = 2 if at.magic == V2 else 1
    if at.size - at.body < length_bytes + 2:
        return False
    at.body_length = read_int32(data + at.body - 4)
    if at.body_length < 0 or at.body_length > at.size - at.body - length_bytes - 2:
        return False
    at.topic = at.body + at.body_length + length_bytes
    if length_bytes == 2:
        at.topic_length = read_int16(data + at.topic - 2)
    else:
        at.topic_length = data[at.topic - 1]
        if at.topic_length > 127:
            return False
    if at.topic_length < 0 or at.topic_length > at.size - at.topic - 2:
        return False
    at.properties = at.topic + at.topic_length + 2
    at.properties_length = read_int16(data + at.properties - 2)
    return at.properties_length == at.size - at.properties


cdef bint crc_is_right(const unsigned char* data, const Layout* at) noexcept nogil:
    cdef Py_ssize_t tail
    cdef unsigned char expected[CRC_BYTES]
    if <uint32_t>read_int32(data + 8) != crc32_bytes(data + at.body, at.body_length):
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


# --------------------------------------------------------------------------------------------------------- writing


cdef inline Py_ssize_t kept_properties_length(const NewRecord* record) noexcept nogil:
    """The properties without a checksum of other bytes at their end."""
    cdef Py_ssize_t length = record.properties_length
    while has_crc_property(record.properties, length):
        length -= CRC_BYTES
    return length


cdef inline Py_ssize_t stored_properties_length(const NewRecord* record) noexcept nogil:
    cdef Py_ssize_t length = kept_properties_length(record)
    if record.with_record_crc:
        if length > 0 and record.properties[length - 1] != 2:
            length += 1
        length += CRC_BYTES
    return length


cdef Py_ssize_t record_size(const NewRecord* record) noexcept nogil:
    cdef Py_ssize_t properties_length = stored_properties_length(record), size
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
    cdef Py_ssize_t size = record_size(record), properties_length, kept_length
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
    put_int32(at, <uint32_t>size)
    put_int32(at + 4, <uint32_t>(V2 if record.topic_length > 127 else V1))
    put_int32(at + 8, crc32_bytes(record.body, record.body_length))
    put_int32(at + 12, <uint32_t>record.queue_id)
    put_int32(at + 16, <uint32_t>record.flag)
    put_int64(at + 20, <uint64_t>record.queue_offset)
    put_int64(at + 28, <uint64_t>record.physical_offset)
    put_int32(at + 36, <uint32_t>sys_flag)
    put_int64(at + 40, <uint64_t>record.born_timestamp)
    at += 48
    memcpy(at, record.born_ip, record.born_ip_length)
    put_int32(at + record.born_ip_length, <uint32_t>record.born_port)
    at += record.born_ip_length + 4
    put_int64(at, <uint64_t>record.store_timestamp)
    at += 8
    memcpy(at, record.store_ip, record.store_ip_length)
    put_int32(at + record.store_ip_length, <uint32_t>record.store_port)
    at += record.store_ip_length + 4
    put_int32(at, <uint32_t>record.reconsume_times)
    put_int64(at + 4, <uint64_t>record.prepared_transaction_offset)
    put_int32(at + 12, <uint32_t>record.body_length)
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
    properties_length = stored_properties_length(record)
    at[0] = <unsigned char>(properties_length >> 8)
    at[1] = <unsigned char>properties_length
    at += 2
    kept_length = kept_properties_length(record)
    if kept_length:
        memcpy(at, record.properties, kept_length)
        at += kept_length
    if record.with_record_crc:
        if kept_length and record.properties[kept_length - 1] != 2:
            at[0] = 2
            at += 1
        write_crc_property(at, crc32_bytes(target, at - target))
    return size


def encode_record(Record record not None, *, bint with_record_crc=False):
    """The bytes of a record. Size, CRC, the version and the IPv6 bits follow from the content, whatever they were."""
    cdef NewRecord new
    cdef bytes born_ip, store_ip, topic, encoded
    cdef Py_ssize_t size
    born_ip, new.born_port = record.born_host
    store_ip, new.store_port = record.store_host
    topic = record.topic.encode("utf-8", "replace")
    new.queue_id = record.queue_id
    new.flag = record.flag
    new.queue_offset = record.queue_offset
    new.physical_offset = record.physical_offset
    new.sys_flag = record.sys_flag
    new.born_timestamp = record.born_timestamp
    new.born_ip = <const unsigned char*>PyBytes_AS_STRING(born_ip)
    new.born_ip_length = PyBytes_GET_SIZE(born_ip)
    new.store_timestamp = record.store_timestamp
    new.store_ip = <const unsigned char*>PyBytes_AS_STRING(store_ip)
    new.store_ip_length = PyBytes_GET_SIZE(store_ip)
    new.reconsume_times = record.reconsume_times
    new.prepared_transaction_offset = record.prepared_transaction_offset
    new.body = <const unsigned char*>PyBytes_AS_STRING(record.body)
    new.body_length = PyBytes_GET_SIZE(record.body)
    new.topic = <const unsigned char*>PyBytes_AS_STRING(topic)
    new.topic_length = PyBytes_GET_SIZE(topic)
    new.properties = <const unsigned char*>PyBytes_AS_STRING(record.properties_raw)
    new.properties_length = PyBytes_GET_SIZE(record.properties_raw)
    new.with_record_crc = with_record_crc
    size = record_size(&new)
    if size == PROPERTIES_TOO_LONG:
        raise RecordError(
            f"the properties have {stored_properties_length(&new)} bytes, a record has room for 32767"
        )
    if size == TOPIC_TOO_LONG:
        raise RecordError(f"the topic has {new.topic_length} bytes, a record has room for 32767")
    if size == BAD_ADDRESS:
        raise RecordError("a host has 4 or 16 bytes of address")
    if size < 0:
        raise RecordError(f"a body of {new.body_length} bytes does not fit in a record")
    encoded = PyBytes_FromStringAndSize(NULL, size)
    write_record(<unsigned char*>PyBytes_AS_STRING(encoded), size, &new)
    return encoded


# --------------------------------------------------------------------------------------------------------- reading


cdef class Record:
    """One message as the commit log holds it and as pulls deliver it. `body` is as stored, so perhaps compressed."""

    cdef public str topic
    cdef public bytes body
    cdef public bytes properties_raw
    cdef public tuple born_host
    cdef public tuple store_host
    cdef public int32_t queue_id
    cdef public int32_t flag
    cdef public int32_t sys_flag
    cdef public int32_t reconsume_times
    cdef public int32_t size
    cdef public int32_t magic
    cdef public int32_t body_crc
    cdef public int64_t queue_offset
    cdef public int64_t physical_offset
    cdef public int64_t born_timestamp
    cdef public int64_t store_timestamp
    cdef public int64_t prepared_transaction_offset
    cdef dict _properties

    def __init__(
        self,
        str topic="",
        bytes body=b"",
        bytes properties_raw=b"",
        int32_t queue_id=0,
        int32_t flag=0,
        int64_t queue_offset=0,
        int64_t physical_offset=0,
        int32_t sys_flag=0,
        int64_t born_timestamp=0,
        tuple born_host=(b"\x00\x00\x00\x00", 0),
        int64_t store_timestamp=0,
        tuple store_host=(b"\x00\x00\x00\x00", 0),
        int32_t reconsume_times=0,
        int64_t prepared_transaction_offset=0,
        int32_t size=0,
        int32_t magic=0,
        int32_t body_crc=0,
    ):
        self.topic = topic
        self.body = body
        self.properties_raw = properties_raw
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.size = size
        self.magic = magic
        self.body_crc = body_crc

    @property
    def properties(self):
        """The properties, read on first use. Changing the dict does not change `properties_raw`."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_raw)
        return self._properties

    @property
    def tag(self):
        return self.property("TAGS")

    @property
    def keys(self):
        """The index keys; the property separates them by spaces."""
        cdef str text = self.property("KEYS")
        return text.split() if text else []

    @property
    def msg_id(self):
        """The client's unique id, or the broker's id of a message that has none."""
        return self.property("UNIQ_KEY") or self.offset_msg_id

    @property
    def offset_msg_id(self):
        return offset_message_id(self.store_host[0], self.store_host[1], self.physical_offset)

    cpdef property(self, str name):
        """One property, without reading the others."""
        cdef const unsigned char* value
        cdef Py_ssize_t value_length
        cdef bytes name_bytes
        if self._properties is not None:
            return self._properties.get(name)
        name_bytes = name.encode("utf-8", "replace")
        if find_value(
            <const unsigned char*>PyBytes_AS_STRING(self.properties_raw),
            PyBytes_GET_SIZE(self.properties_raw),
            <const unsigned char*>PyBytes_AS_STRING(name_bytes),
            PyBytes_GET_SIZE(name_bytes),
            &value,
            &value_length,
        ):
            return PyUnicode_DecodeUTF8(<const char*>value, value_length, "replace")
        return None

    def decompressed_body(self):
        """The body as its sender had it."""
        return decompress(self.sys_flag, self.body)

    def replace(self, **changes):
        """A copy with some fields changed."""
        fields = {name: getattr(self, name) for name in plain.FIELDS}
        fields.update(changes)
        return Record(**fields)

    def __reduce__(self):
        return Record, tuple([getattr(self, name) for name in plain.FIELDS])

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return all([getattr(self, name) == getattr(other, name) for name in plain.FIELDS])

    __hash__ = None

    def __repr__(self):
        return (
            f"<Record {self.topic}/{self.queue_id}@{self.queue_offset} at {self.physical_offset}, "
            f"body {len(self.body)} bytes>"
        )


cdef class _Last:
    """The topic and hosts of the record before: neighbours mostly share them, and so the objects."""

    cdef const unsigned char* topic_bytes
    cdef Py_ssize_t topic_length
    cdef str topic
    cdef const unsigned char* born_bytes
    cdef Py_ssize_t born_length
    cdef tuple born_host
    cdef const unsigned char* store_bytes
    cdef Py_ssize_t store_length
    cdef tuple store_host

    def __cinit__(self):
        self.topic_bytes = self.born_bytes = self.store_bytes = NULL


cdef tuple host_at(const unsigned char* data, Py_ssize_t length):
    return (data[: length - 4], read_int32(data + length - 4))


cdef Record build(const unsigned char* data, const Layout* at, _Last last):
    cdef Record record = Record.__new__(Record)
    cdef const unsigned char* part = data + at.topic
    cdef Py_ssize_t length = at.topic_length
    if last.topic_bytes == NULL or last.topic_length != length or memcmp(last.topic_bytes, part, length) != 0:
        last.topic = PyUnicode_DecodeUTF8(<const char*>part, length, "replace")
        last.topic_bytes = part
        last.topic_length = length
    record.topic = last.topic
    part = data + 48
    length = at.store_host - 8 - 48
    if last.born_bytes == NULL or last.born_length != length or memcmp(last.born_bytes, part, length) != 0:
        last.born_host = host_at(part, length)
        last.born_bytes = part
        last.born_length = length
    record.born_host = last.born_host
    part = data + at.store_host
    length = at.body - 16 - at.store_host
    if last.store_bytes == NULL or last.store_length != length or memcmp(last.store_bytes, part, length) != 0:
        last.store_host = host_at(part, length)
        last.store_bytes = part
        last.store_length = length
    record.store_host = last.store_host
    record.body = PyBytes_FromStringAndSize(<const char*>data + at.body, at.body_length)
    record.properties_raw = PyBytes_FromStringAndSize(<const char*>data + at.properties, at.properties_length)
    record.size = <int32_t>at.size
    record.magic = at.magic
    record.body_crc = read_int32(data + 8)
    record.queue_id = read_int32(data + 12)
    record.flag = read_int32(data + 16)
    record.queue_offset = read_int64(data + 20)
    record.physical_offset = read_int64(data + 28)
    record.sys_flag = at.sys_flag
    record.born_timestamp = read_int64(data + 40)
    record.store_timestamp = read_int64(data + at.store_host - 8)
    record.reconsume_times = read_int32(data + at.body - 16)
    record.prepared_transaction_offset = read_int64(data + at.body - 12)
    return record


def decode_record(buffer, Py_ssize_t offset=0, *, bint check_crc=True, bint require_record_crc=False):
    """The record at `offset`. With `check_crc` the body's checksum, and the record's if it has one, must be right."""
    cdef Py_buffer view
    cdef Layout at
    cdef const unsigned char* data
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char*>view.buf + offset
        if (
            offset < 0
            or offset > view.len
            or not find_layout(data, view.len - offset, &at)
            or ((check_crc or require_record_crc) and not crc_is_right(data, &at))
            or (require_record_crc and not has_crc_property(data + at.properties, at.properties_length))
        ):
            plain.decode_record(buffer, offset, check_crc=check_crc, require_record_crc=require_record_crc)
            raise RecordError("the record cannot be read", offset)
        return build(data, &at, _Last())
    finally:
        PyBuffer_Release(&view)


def decode_records(buffer, *, bint check_crc=False):
    """Every record of a pull's body. One that cannot be read raises `RecordError`, with its position."""
    cdef Py_buffer view
    cdef Layout at
    cdef const unsigned char* data
    cdef Py_ssize_t offset = 0
    cdef list records = []
    cdef _Last last = _Last()
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while offset < view.len:
            data = <const unsigned char*>view.buf + offset
            if not find_layout(data, view.len - offset, &at) or (check_crc and not crc_is_right(data, &at)):
                plain.decode_record(buffer, offset, check_crc=check_crc)
                raise RecordError("the record cannot be read", offset)
            records.append(build(data, &at, last))
            offset += at.size
        return records
    finally:
        PyBuffer_Release(&view)


def record_bounds(buffer, Py_ssize_t offset=0):
    """(offset, size) of the records one after another from `offset`, up to the end or the first that is none."""
    cdef Py_buffer view
    cdef Layout at
    cdef list bounds = []
    if offset < 0:
        return bounds
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while offset < view.len:
            if not find_layout(<const unsigned char*>view.buf + offset, view.len - offset, &at):
                break
            bounds.append((offset, at.size))
            offset += at.size
        return bounds
    finally:
        PyBuffer_Release(&view)


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


def find_property(properties, bytes name not None):
    """The value of one property (of the last item with that name), without reading the others into a dict."""
    cdef Py_buffer view
    cdef const unsigned char* value
    cdef Py_ssize_t value_length
    PyObject_GetBuffer(properties, &view, PyBUF_SIMPLE)
    try:
        if find_value(
            <const unsigned char*>view.buf, view.len,
            <const unsigned char*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), &value, &value_length,
        ):
            return PyBytes_FromStringAndSize(<const char*>value, value_length)
        return None
    finally:
        PyBuffer_Release(&view)


def scan_entries(buffer, wanted=None, Py_ssize_t max_count=1 << 30):
    """(index, physical offset, size, tags code) of the ConsumeQueue entries in `buffer` whose tags code is wanted."""
    cdef Py_buffer view
    cdef const unsigned char* entry
    cdef int64_t few[FEW_TAGS]
    cdef int64_t tags_code
    cdef int few_count = -1, tag
    cdef Py_ssize_t index
    cdef int32_t size
    cdef bint is_wanted
    cdef list found = []
    if wanted is not None and len(wanted) <= FEW_TAGS:
        few_count = 0
        for code in wanted:
            if -0x8000000000000000 <= code <= 0x7FFFFFFFFFFFFFFF:  # any other can match nothing
                few[few_count] = code
                few_count += 1
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        for index in range(view.len // ENTRY):
            if len(found) >= max_count:
                break
            entry = <const unsigned char*>view.buf + index * ENTRY
            size = read_int32(entry + 8)
            if size <= 0:
                break
            tags_code = read_int64(entry + 12)
            if wanted is None:
                is_wanted = True
            elif few_count >= 0:
                is_wanted = False
                for tag in range(few_count):
                    if few[tag] == tags_code:
                        is_wanted = True
                        break
            else:
                is_wanted = tags_code in wanted
            if is_wanted:
                found.append((index, read_int64(entry), size, tags_code))
        return found
    finally:
        PyBuffer_Release(&view)

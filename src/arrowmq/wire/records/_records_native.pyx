"""Stored records, compiled. `_records_plain` has the layout and says what is right; this says it faster.

Whatever cannot be read is handed to the reference, which finds the words for it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

from arrowmq.wire._bytes cimport get32, get64
from arrowmq.wire.records._layout_native cimport (
    BAD_ADDRESS,
    PROPERTIES_TOO_LONG,
    TOPIC_TOO_LONG,
    Layout,
    NewRecord,
    crc_is_right,
    find_layout,
    find_value,
    has_crc_property,
    record_size,
    stored_properties_length,
    write_record,
)

from arrowmq.wire.records import _records_plain as plain
from arrowmq.wire.compression import decompress
from arrowmq.wire.errors import RecordError
from arrowmq.wire.ids import offset_message_id
from arrowmq.wire.properties import decode_properties

MAGIC_V1 = plain.MAGIC_V1
MAGIC_V2 = plain.MAGIC_V2
BLANK_MAGIC = plain.BLANK_MAGIC
MIN_RECORD_BYTES = plain.MIN_RECORD_BYTES

# --------------------------------------------------------------------------------------------------------- writing


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
    return (data[: length - 4], get32(data + length - 4))


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
    record.body_crc = get32(data + 8)
    record.queue_id = get32(data + 12)
    record.flag = get32(data + 16)
    record.queue_offset = get64(data + 20)
    record.physical_offset = get64(data + 28)
    record.sys_flag = at.sys_flag
    record.born_timestamp = get64(data + 40)
    record.store_timestamp = get64(data + at.store_host - 8)
    record.reconsume_times = get32(data + at.body - 16)
    record.prepared_transaction_offset = get64(data + at.body - 12)
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

"""Records to columns, compiled: two passes, one that counts and one that writes. `_columns_plain` says what is right."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy, memset

from arrowmq.wire._bytes cimport get32, get64
from arrowmq.wire.records._layout_native cimport Layout, crc_is_right, find_layout, find_value

from arrowmq.wire.records import _columns_plain as plain
from arrowmq.wire.records import _records_plain as records
from arrowmq.wire.records._columns_plain import Column, Columns
from arrowmq.wire.compression import decompress as decompressed
from arrowmq.wire.errors import RecordError
from arrowmq.wire.ids import offset_message_id
from arrowmq.wire.properties import decode_properties

cdef enum:
    MANY_PROPERTIES = 48  # from here on a dict finds repeated names faster than comparing each with each


cdef class Growing:
    """A column of bytes that grows at its end."""

    cdef unsigned char* data
    cdef Py_ssize_t length
    cdef Py_ssize_t room
    cdef int32_t* offsets
    cdef Py_ssize_t count
    cdef Py_ssize_t offsets_room

    def __cinit__(self, Py_ssize_t data_room, Py_ssize_t values):
        self.data = NULL
        self.offsets = NULL
        self.length = self.room = self.count = self.offsets_room = 0
        self.reserve(data_room)
        self.reserve_values(values)
        self.offsets[0] = 0

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.offsets)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef unsigned char* grown
        cdef Py_ssize_t room
        if self.length + more > INT32_MAX:
            raise RecordError("the records hold more than 2 GiB, which one column cannot")
        if self.room - self.length >= more and self.data != NULL:
            return 0
        room = self.length + more + self.length // 2 + 64
        grown = <unsigned char*>PyMem_Realloc(self.data, room)
        if grown == NULL:
            raise MemoryError
        self.data = grown
        self.room = room
        return 0

    cdef int reserve_values(self, Py_ssize_t more) except -1:
        cdef int32_t* grown
        cdef Py_ssize_t room
        if self.offsets != NULL and self.offsets_room - self.count - 1 >= more:
            return 0
        room = self.count + more + self.count // 2 + 17
        grown = <int32_t*>PyMem_Realloc(self.offsets, room * sizeof(int32_t))
        if grown == NULL:
            raise MemoryError
        self.offsets = grown
        self.offsets_room = room
        return 0

    cdef int add(self, const unsigned char* value, Py_ssize_t length) except -1:
        self.reserve(length)
        self.reserve_values(1)
        if length:
            memcpy(self.data + self.length, value, length)
        self.length += length
        self.count += 1
        self.offsets[self.count] = <int32_t>self.length
        return 0

    cdef int add_bytes(self, bytes value) except -1:
        return self.add(<const unsigned char*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))

    cdef int add_text(self, const unsigned char* value, Py_ssize_t length) except -1:
        """Adds text, made valid UTF-8 if it is not."""
        cdef Py_ssize_t index
        for index in range(length):
            if value[index] >= 0x80:
                return self.add_bytes(PyUnicode_DecodeUTF8(<const char*>value, length, "replace").encode())
        return self.add(value, length)

    cdef object finish(self, validity):
        return Column(
            PyBytes_FromStringAndSize(<const char*>self.offsets, (self.count + 1) * sizeof(int32_t)),
            PyBytes_FromStringAndSize(<const char*>self.data, self.length),
            validity,
        )


cdef inline bytes room_for(Py_ssize_t count, Py_ssize_t width):
    return PyBytes_FromStringAndSize(NULL, count * width)


def decode_columns(buffer, *, bint check_crc=False, bint decompress=True):
    """The records of a pull's body, or of a piece of a commit log, as columns. One that cannot be read raises."""
    cdef Py_buffer view
    cdef Layout at
    cdef const unsigned char* data
    cdef Py_ssize_t offset = 0, count = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while offset < view.len:
            data = <const unsigned char*>view.buf + offset
            if not find_layout(data, view.len - offset, &at) or (check_crc and not crc_is_right(data, &at)):
                records.decode_record(buffer, offset, check_crc=check_crc)
                raise RecordError("the record cannot be read", offset)
            count += 1
            offset += at.size
        return fill(<const unsigned char*>view.buf, view.len, count, decompress)
    finally:
        PyBuffer_Release(&view)


cdef object fill(const unsigned char* start, Py_ssize_t length, Py_ssize_t count, bint decompress):
    cdef Layout at
    cdef const unsigned char* data = start
    cdef Py_ssize_t index, left = length
    cdef bytes queue_id = room_for(count, 4), size = room_for(count, 4), flag = room_for(count, 4)
    cdef bytes sys_flag = room_for(count, 4), reconsume_times = room_for(count, 4)
    cdef bytes queue_offset = room_for(count, 8), physical_offset = room_for(count, 8)
    cdef bytes born_timestamp = room_for(count, 8), store_timestamp = room_for(count, 8)
    cdef bytes prepared = room_for(count, 8)
    cdef bytes property_offsets = room_for(count + 1, 4)
    cdef bytes tags_validity = room_for((count + 7) // 8, 1), keys_validity = room_for((count + 7) // 8, 1)
    cdef Growing topic = Growing(32 * count, count), body = Growing(0, count)
    cdef Growing born_host = Growing(24 * count, count), store_host = Growing(24 * count, count)
    cdef Growing tags = Growing(16 * count, count), keys = Growing(16 * count, count)
    cdef Growing msg_id = Growing(32 * count, count), raw = Growing(128 * count, count)
    cdef Growing names = Growing(64 * count, 8 * count), values = Growing(64 * count, 8 * count)
    memset(PyBytes_AS_STRING(tags_validity), 0, (count + 7) // 8)
    memset(PyBytes_AS_STRING(keys_validity), 0, (count + 7) // 8)
    (<int32_t*>PyBytes_AS_STRING(property_offsets))[0] = 0
    for index in range(count):
        # The buffer may be a mapping that somebody writes to: what was right in the first pass is checked again.
        if not find_layout(data, left, &at):
            raise RecordError("the record changed while it was read", data - start)
        (<int32_t*>PyBytes_AS_STRING(queue_id))[index] = get32(data + 12)
        (<int32_t*>PyBytes_AS_STRING(flag))[index] = get32(data + 16)
        (<int32_t*>PyBytes_AS_STRING(size))[index] = <int32_t>at.size
        (<int32_t*>PyBytes_AS_STRING(sys_flag))[index] = at.sys_flag
        (<int32_t*>PyBytes_AS_STRING(reconsume_times))[index] = get32(data + at.body - 16)
        (<int64_t*>PyBytes_AS_STRING(queue_offset))[index] = get64(data + 20)
        (<int64_t*>PyBytes_AS_STRING(physical_offset))[index] = get64(data + 28)
        (<int64_t*>PyBytes_AS_STRING(born_timestamp))[index] = get64(data + 40)
        (<int64_t*>PyBytes_AS_STRING(store_timestamp))[index] = get64(data + at.store_host - 8)
        (<int64_t*>PyBytes_AS_STRING(prepared))[index] = get64(data + at.body - 12)
        topic.add_text(data + at.topic, at.topic_length)
        add_host(born_host, data + 48, at.store_host - 56)
        add_host(store_host, data + at.store_host, at.body - 16 - at.store_host)
        if decompress and at.sys_flag & 1:
            body.add_bytes(decompressed(at.sys_flag, data[at.body : at.body + at.body_length]))
        else:
            body.add(data + at.body, at.body_length)
        raw.add(data + at.properties, at.properties_length)
        add_named(tags, tags_validity, index, data, &at, b"TAGS", 4)
        add_named(keys, keys_validity, index, data, &at, b"KEYS", 4)
        add_msg_id(msg_id, data, &at)
        add_properties(names, values, data + at.properties, at.properties_length)
        (<int32_t*>PyBytes_AS_STRING(property_offsets))[index + 1] = <int32_t>names.count
        data += at.size
        left -= at.size
    return Columns(
        count, topic.finish(None), queue_id, queue_offset, physical_offset, size, flag, sys_flag, born_timestamp,
        store_timestamp, reconsume_times, prepared, born_host.finish(None), store_host.finish(None), body.finish(None),
        tags.finish(tags_validity), keys.finish(keys_validity), msg_id.finish(None), raw.finish(None),
        property_offsets, names.finish(None), values.finish(None),
    )


cdef int add_host(Growing column, const unsigned char* host, Py_ssize_t length) except -1:
    cdef char text[32]
    cdef int written
    if length != 8:
        return column.add_bytes(plain.host_text(host[: length - 4], get32(host + length - 4)))
    written = snprintf(
        text, sizeof(text), "%d.%d.%d.%d:%d", <int>host[0], <int>host[1], <int>host[2], <int>host[3],
        <int>get32(host + 4),
    )
    return column.add(<const unsigned char*>text, written)


cdef int add_named(
    Growing column, bytes validity, Py_ssize_t index, const unsigned char* data, const Layout* at, const char* name,
    Py_ssize_t name_length
) except -1:
    cdef const unsigned char* value
    cdef Py_ssize_t value_length
    if find_value(
        data + at.properties, at.properties_length, <const unsigned char*>name, name_length, &value, &value_length
    ):
        PyBytes_AS_STRING(validity)[index >> 3] |= 1 << (index & 7)
        return column.add_text(value, value_length)
    return column.add(NULL, 0)


cdef int add_msg_id(Growing column, const unsigned char* data, const Layout* at) except -1:
    cdef const unsigned char* value
    cdef Py_ssize_t value_length, ip_length = at.body - 16 - at.store_host - 4
    if find_value(
        data + at.properties, at.properties_length, <const unsigned char*>b"UNIQ_KEY", 8, &value, &value_length
    ):
        return column.add_text(value, value_length)
    return column.add_bytes(
        offset_message_id(
            data[at.store_host : at.store_host + ip_length],
            get32(data + at.store_host + ip_length),
            get64(data + 28),
        ).encode()
    )


cdef int add_properties(Growing names, Growing values, const unsigned char* start, Py_ssize_t length) except -1:
    """Every property once. A name that comes twice, or text that is no ASCII, takes the way over a dict."""
    cdef const unsigned char* item = start
    cdef const unsigned char* end = start + length
    cdef const unsigned char* item_end
    cdef const unsigned char* separator
    cdef Py_ssize_t index, first = names.count, names_length = names.length, values_length = values.length
    cdef Py_ssize_t name_length
    cdef bint is_simple = True
    for index in range(length):
        if start[index] >= 0x80:
            is_simple = False
            break
    while is_simple and item < end:
        item_end = <const unsigned char*>memchr(item, 2, end - item)
        if item_end == NULL:
            item_end = end
        separator = <const unsigned char*>memchr(item, 1, item_end - item)
        if separator != NULL and separator > item and item_end - separator > 1:
            name_length = separator - item
            for index in range(first, names.count):
                if names.offsets[index + 1] - names.offsets[index] == name_length and memcmp(
                    names.data + names.offsets[index], item, name_length
                ) == 0:
                    is_simple = False
                    break
            if names.count - first >= MANY_PROPERTIES:
                is_simple = False
            if not is_simple:
                break
            names.add(item, name_length)
            values.add(separator + 1, item_end - separator - 1)
        item = item_end + 1
    if is_simple:
        return 0
    names.count = values.count = first
    names.length = names_length
    values.length = values_length
    for name, value in decode_properties(start[:length]).items():
        names.add_bytes(name.encode())
        values.add_bytes(value.encode())
    return 0

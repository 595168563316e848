"""Checksum and hash, compiled. `_checksum_plain` says what is right; this says it faster."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t

cdef extern from "Python.h":
    int PyUnicode_KIND(object text)
    void* PyUnicode_DATA(object text)
    uint32_t PyUnicode_READ(int kind, void* data, Py_ssize_t index) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef extern from "arrowmq/wire/crc32_fold.h" nogil:
    void arrowmq_crc32_setup()
    uint32_t arrowmq_crc32(const unsigned char* data, size_t length, int wants_clmul)

arrowmq_crc32_setup()


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

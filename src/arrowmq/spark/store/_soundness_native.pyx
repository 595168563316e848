"""Are these records whole? At the speed of the checksum; `_soundness_plain` says what is right."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from arrowmq.wire._bytes cimport get64
from arrowmq.wire.records._layout_native cimport Layout, crc_is_right, find_layout


def sound_run(buffer, Py_ssize_t start, Py_ssize_t stop, int64_t base):
    """Where the run of sound records that begins at `start` ends, and how many records it has."""
    cdef Py_buffer view
    cdef Layout at
    cdef const unsigned char* data
    cdef Py_ssize_t position = start, count = 0
    if start < 0:
        raise ValueError("start is negative")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if stop > view.len:
            stop = view.len
        with nogil:
            while position < stop:
                data = <const unsigned char*>view.buf + position
                if not find_layout(data, view.len - position, &at) or not crc_is_right(data, &at):
                    break
                if get64(data + 28) != base + position:
                    break
                position += at.size
                count += 1
    finally:
        PyBuffer_Release(&view)
    return position, count

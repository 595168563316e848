# cython: language_level=3
"""A mapped file for a reader that comes back to it: the native form of `_pin_plain`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


cdef class Pin:
    def __init__(self, view, int64_t start):
        cdef Py_buffer buffer
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        self.place = <const uint8_t *>buffer.buf
        self.size = buffer.len
        PyBuffer_Release(&buffer)
        self.view = view
        self.start = start

    def drop(self):
        self.place = NULL
        self.size = 0
        self.view = None

# A mapped file for a reader that comes back to it, in C; `_pin_plain.py` says why it is no view.

from libc.stdint cimport int64_t, uint8_t


cdef class Pin:
    cdef readonly object view
    cdef const uint8_t *place  # NULL once it is dropped
    cdef readonly int64_t start
    cdef readonly int64_t size

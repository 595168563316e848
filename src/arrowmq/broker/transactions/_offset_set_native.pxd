# The set as C sees it: see `_offset_set_plain`.

from libc.stdint cimport int64_t


cdef class OffsetSet:
    cdef readonly int64_t floor
    cdef int64_t _base
    cdef bytearray _bits

    cdef bint has(self, int64_t offset) noexcept
    cdef int take_in(self, int64_t offset) except -1

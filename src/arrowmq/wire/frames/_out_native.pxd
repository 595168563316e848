# A buffer that frames are written into, for all native modules.

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef class Out:
    """Frames that leave, one after another. Who puts something reserves its room first."""
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    cdef void clear(self) noexcept
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef void put(self, const void* data, Py_ssize_t size) noexcept
    cdef void put_bytes(self, bytes data) noexcept
    cdef void put_u32(self, uint32_t value) noexcept
    cdef void set_u32(self, Py_ssize_t at, uint32_t value) noexcept
    cdef int put_decimal(self, int64_t value) noexcept
    cdef int put_number_entry(self, const char* name, int name_size, int64_t value) noexcept

# The file of the log that a short way reads from, in C.

from libc.stdint cimport int64_t, uint8_t


cdef class LogWindow:
    cdef object commit_log
    cdef object view            # keeps the file mapped
    cdef const uint8_t* place
    cdef int64_t start
    cdef int64_t size

    # Whether the window stands where this byte of the log is; moves it there if need be. `log_begin` is the log's own.
    cdef bint reach(self, int64_t physical, int64_t log_begin) except -1
    cdef void leave(self) noexcept


# Where a mapped file lies; whoever keeps the view keeps the file mapped.
cdef const uint8_t* address_of(object view) except NULL

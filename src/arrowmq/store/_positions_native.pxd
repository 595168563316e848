# How far the log has come, in C.

from libc.stdint cimport int64_t

from arrowmq.store.append._tail_native cimport LogTail


cdef class Marks:
    cdef LogTail tail
    cdef public int64_t flushed_end
    cdef public int64_t replicated_end
    cdef public bint needs_flush
    cdef public bint needs_replicas

    cdef int64_t confirmed(self) noexcept

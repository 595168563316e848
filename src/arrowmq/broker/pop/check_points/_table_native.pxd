# Check points as C sees them, for the fast path of pops and acks.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    MOST_MESSAGES = 127
    PAGE_OFFSETS = 32
    RECENT_BUCKETS = 8
    RECENT_MASK = 7


cdef class CheckPoint:
    cdef readonly Lane lane
    cdef readonly int64_t start_offset
    cdef readonly int64_t pop_time
    cdef readonly int64_t invisible_ms
    cdef public int64_t revive_offset
    cdef readonly int64_t bucket        # -1: in none
    cdef readonly tuple diffs           # None where the offsets follow each other
    cdef readonly str broker_name
    cdef readonly str client
    cdef PyObject* due_before           # in its bucket, which owns it
    cdef PyObject* due_after
    cdef CheckPoint following           # in the table: another one that begins at this offset
    cdef uint64_t low                   # acks of the first 64 messages, and of the others
    cdef uint64_t high
    cdef readonly int32_t revive_queue
    cdef public int32_t tries
    cdef readonly uint8_t count
    cdef public bint is_suspend
    cdef public bint waits_for_timer

    cdef int index(self, int64_t offset) except -2
    cdef bint has_open(self) noexcept
    cdef bint is_acked(self, int index) noexcept


# Check points that begin at one of some offsets that follow each other.
cdef class Page:
    cdef PyObject* places[PAGE_OFFSETS]     # owned; NULL where none begins
    cdef int count


cdef class Lane:
    cdef readonly str topic
    cdef readonly str group
    cdef readonly int32_t queue_id
    cdef readonly object moved
    cdef readonly object steps
    cdef public int64_t in_flight
    cdef public bint is_busy
    cdef public bint is_forgotten
    cdef dict pages                     # by start offset // PAGE_OFFSETS
    cdef int64_t count

    cdef CheckPoint get(self, int64_t start_offset, int64_t pop_time)
    cdef int forget(self) except -1


cdef class Bucket:
    cdef int64_t number
    cdef PyObject* first

    cdef list empty(self)


# By the moment at which they are due.
cdef class CheckPointBuckets:
    cdef dict buckets
    cdef PyObject* recent[RECENT_BUCKETS]

    # True if there was no such bucket.
    cdef bint put(self, CheckPoint check_point, int64_t number) except -1
    cdef int drop(self, CheckPoint check_point) except -1


cdef class CheckPoints:
    cdef readonly dict lanes
    cdef readonly CheckPointBuckets due
    cdef public int64_t in_flight
    cdef public int64_t count
    cdef readonly list on_closed

    cpdef add(self, CheckPoint check_point)
    # The first 64 messages, by their bits.
    cdef int settle_low(self, CheckPoint check_point, uint64_t bits) except -1
    cdef int settle_bits(self, CheckPoint check_point, uint64_t low, uint64_t high) except -1

# Finding the records that a read wants, and copying them out, in C. `_reader_plain.py` says what is right.

from libc.stdint cimport int32_t, int64_t, uint8_t

from arrowmq.store._positions_native cimport Marks
from arrowmq.store.append._tail_native cimport LogTail, QueueTail
from arrowmq.store.log._pin_native cimport Pin

cdef enum:
    NOTHING = 0
    FOUND = 1
    COLD = 2
    ODD = 3
    MAX_CODES = 64
    MAX_RECORDS = 1024
    KNOWN_PARTS = 64


cdef struct Wanted:
    int64_t offset
    int64_t max_count
    int64_t max_bytes
    const int32_t* codes     # of the tags that are wanted; NULL: every message
    int code_count


cdef struct Found:
    int count
    int64_t total_bytes
    int64_t min_offset
    int64_t max_offset
    int64_t next_offset
    bint suggests_slave
    int64_t starts[MAX_RECORDS]
    int32_t sizes[MAX_RECORDS]


cdef struct KnownPart:
    int64_t number           # which part of the log was found in memory
    int times                # for so many answers more that is believed


# The file of the log that was read last: most reads want the same one again, and need no Python then.
cdef class LogWindow:
    cdef object commit_log
    cdef Pin pin
    cdef const uint8_t* place
    cdef int64_t start
    cdef int64_t size

    # Whether the window stands where this byte of the log is; moves it there if need be.
    cdef bint reach(self, int64_t physical) except -1
    cdef void leave(self) noexcept


cdef class Cursor:
    cdef readonly object queue
    cdef QueueTail tail
    cdef Pin pin             # the file of entries in use
    cdef int64_t hot_from    # in the queue: entries between these two were found in memory
    cdef int64_t hot_to
    cdef int hot_times       # for so many answers more that is believed
    cdef int64_t min_of      # the log's begin that `min_offset` was found for
    cdef int64_t min_offset

    cdef bint open(self, int64_t position) except -1
    cdef int64_t readable_max(self, int64_t confirmed) except -1


cdef class QueueReader:
    cdef LogTail tail
    cdef Marks positions
    cdef object commit_log
    cdef readonly object limits
    cdef int64_t scan_bytes
    cdef int64_t memory_bytes
    cdef int64_t memory_most_bytes
    cdef int64_t memory_most_count
    cdef int64_t disk_most_bytes
    cdef int64_t disk_most_count
    cdef public int64_t checked_from
    cdef public object residency
    cdef LogWindow window
    cdef KnownPart[KNOWN_PARTS] known

    # One of the four outcomes; of anything but FOUND, `found` says nothing.
    cdef int find_records(self, Cursor cursor, const Wanted* wanted, Found* found) except -1
    # The records just found, one behind the other; `target` has room for `found.total_bytes`. Nothing may run between.
    cdef uint8_t* copy_records(self, const Found* found, uint8_t* target) noexcept
    cdef int scan(self, Cursor cursor, const Wanted* wanted, int64_t limit, int64_t confirmed, Found* found) except -1
    cdef int look(self, Found* found) except -1
    cdef bint entries_are_hot(self, Cursor cursor, int64_t position, int64_t size) except -1
    cdef bint log_is_hot(self, int64_t first, int64_t last) except -1
    cdef bint asks(self, Pin pin, int64_t position, int64_t size) except -1
    cdef int64_t hot_from(self) noexcept

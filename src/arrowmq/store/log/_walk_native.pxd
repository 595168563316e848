# What other native modules use of the walk: whether a record is sound.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    CHECK_BODY_CRC = 1
    CHECK_RECORD_CRC = 2
    IS_COMPLETE = 4


# The places of the parts of a record, relative to the buffer.
cdef struct Parts:
    int64_t size
    int64_t body
    int64_t body_length
    int64_t topic
    int64_t topic_length
    int64_t properties
    int64_t properties_length
    int64_t store_timestamp_at


# The size of a sound record at `position` of a file that starts at `start` of the log, or the verdict (1 and below).
cdef int64_t check(
    const uint8_t *place, int64_t position, int64_t end, int64_t start, int checks, Parts *parts
) noexcept nogil

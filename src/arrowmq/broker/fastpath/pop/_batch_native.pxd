# The body of BATCH_ACK_MESSAGE, read where it lies; C only.

from libc.stdint cimport int64_t, uint64_t

from arrowmq.wire.in_place._request_native cimport Text


# Acks of one pop of one queue: bit i is the offset `first` + i.
cdef struct BatchPart:
    Text topic
    Text group
    Text flag
    int64_t queue_id
    int64_t revive_queue
    int64_t first
    int64_t start             # the same; for who goes through the bits
    int64_t pop_time
    uint64_t bits


# How many parts the body has; 0 if it has none, too many, or another form than clients write.
cdef int read_batch(Text body, BatchPart* parts, int most) noexcept nogil

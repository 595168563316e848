# Topics that a handler may write to, with what it has written to them; C only.

from libc.stdint cimport int64_t

from arrowmq.wire.in_place._request_native cimport Text


cdef struct Written:
    int64_t messages
    int64_t size


cdef class Topic:
    cdef bytes name
    cdef str text
    cdef int queue_count
    cdef list queues
    cdef Written* written       # by queue, since it was last taken

    # Whether all that was counted has been taken.
    cdef bint is_taken(self) except -1


cdef class KnownTopics:
    cdef object find_topic      # how many queues of a topic may be written to; 0: it is left to the general path
    cdef object kind            # of Topic
    cdef dict topics
    cdef Topic last
    cdef list touched           # those in use, and those that were forgotten before their counts were taken

    cdef Topic find(self, Text name)
    cdef int forget(self) except -1
    # What was written since the last call: (topic, queue id, messages, bytes).
    cdef list take_written(self)
    # Drops what was forgotten and is taken.
    cdef int drop_forgotten(self) except -1

# One queue as one group pops it, and writing to the revive topic; C only.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from arrowmq.broker.pop.check_points._table_native cimport CheckPoint, CheckPoints, Lane
from arrowmq.store._positions_native cimport Marks
from arrowmq.store.append._tail_native cimport IndexTail, LogTail, QueueTail, RecordFields
from arrowmq.store.read._reader_native cimport Cursor
from arrowmq.wire.frames._out_native cimport Out


# How often something was stored, until it is taken.
cdef class Tally:
    cdef int64_t count


cdef class PopLane:
    cdef str topic
    cdef str group
    cdef int32_t queue_id
    cdef object queue_key
    cdef bint is_retry
    cdef Lane lane               # of the table
    cdef Cursor cursor           # None: nothing was ever written to the queue
    cdef dict committed          # what the group committed in the topic; None: nothing
    # as they stand in JSON, and in a unique key
    cdef bytes topic_json
    cdef bytes group_json
    cdef bytes topic_raw
    cdef bytes group_raw
    cdef Tally stored            # shared by the lanes of a group and topic
    # since they were last taken
    cdef int64_t times
    cdef int64_t messages
    cdef int64_t size


cdef class Lanes:
    """Makes lanes, and keeps them up with the tables that they stand for."""
    cdef CheckPoints table
    cdef object find_queue
    cdef object commits_of       # the table of what a group committed in a topic, or None
    cdef object commit_log
    cdef Marks positions
    cdef str kind                # of what is counted
    cdef dict tallies            # by group, topic, kind and status

    cdef PopLane make(self, str topic, str group, int32_t queue_id, bint is_retry)
    # Whether the lane stands for its queue now; its Lane and its Cursor may have been renewed.
    cdef int refresh(self, PopLane lane) except -1
    # The first and the end offset that readers see.
    cdef int bounds(self, PopLane lane, int64_t* lowest, int64_t* highest) except -1


cdef class ReviveWriter:
    """Writes check points and acks to the revive topic as `revive_messages` has them."""
    cdef LogTail log
    cdef IndexTail index
    cdef bytes topic
    cdef bytes store_host
    cdef str broker_name
    cdef bytes broker_json
    cdef bytes broker_raw
    cdef list tails              # of the revive queues
    cdef object find_queue
    cdef object notify
    cdef object watchers         # how many listen to a queue, by topic and queue; one of them is the revive log itself
    cdef list keys               # of the revive queues among those
    cdef Out body
    cdef Out properties
    cdef int64_t queue_offset    # of what was written last

    cdef QueueTail tail(self, int32_t queue_id)
    cdef bint is_heard(self, int32_t queue_id) except -1
    # Whether so many messages with so many bytes of names and offsets can be written one behind the other.
    cdef bint has_room(self, int32_t queue_id, int count, int64_t size) except -1
    cdef int write_check_point(
        self, PopLane lane, int32_t queue_id, int64_t start, int64_t pop_time, int64_t invisible_ms,
        const int64_t* offsets, int count, int64_t now
    ) except -1
    cdef int write_ack(
        self, PopLane lane, CheckPoint check_point, const int64_t* offsets, int count, bint is_batch, int64_t now
    ) except -1
    cdef int write(self, int32_t queue_id, int64_t now) except -1
    cdef int begin_properties(self, PopLane lane, int64_t offset, int64_t pop_time, int64_t now) except -1

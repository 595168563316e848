# Revive queues as C sees them, for the fast path of pops and acks.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from arrowmq.broker.pop.check_points._table_native cimport CheckPoint

cdef enum:
    BLOCK = 512
    LEAVING_AT_ONCE = 4


cdef class Block:
    cdef PyObject* places[BLOCK]


cdef class OpenCheckPoints:
    cdef list blocks           # each a Block, the first one begins at `begin`
    cdef Py_ssize_t begin
    cdef Py_ssize_t end        # in the last block

    cdef int push(self, CheckPoint check_point) except -1


cdef class ReviveQueue:
    cdef readonly int queue_id
    cdef public int64_t read_offset
    cdef public int64_t noted
    cdef public int64_t unreadable
    cdef public OpenCheckPoints open
    cdef public object maybe_moved


cdef class QueueTurn:
    cdef readonly int count
    cdef readonly int upcoming

    cpdef int take(self) except -1


cdef class Chance:
    cdef uint64_t state
    cdef public int value

    cpdef int draw(self) except -1

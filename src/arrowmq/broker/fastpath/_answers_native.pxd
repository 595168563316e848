# Answers of success, for the short ways of sends and transactions.

from libc.stdint cimport int32_t, int64_t

from arrowmq.broker.fastpath._request_native cimport Request, Text
from arrowmq.wire.frames._out_native cimport Out


cdef class Answers:
    cdef list json_pieces
    cdef list json_order          # which figure stands behind which piece
    cdef bytes binary_start       # of the header, up to the opaque
    cdef bytes binary_entries     # the ext entries that are always the same


# What an answer to a send tells of the message.
cdef struct Figures:
    int32_t queue_id
    int64_t queue_offset
    int64_t physical_offset
    const int64_t* sizes      # of the messages of a batch, which lie behind each other; NULL of one
    int count
    Text unique               # without one of its own a batch has no transaction id either


# Writes the answer to a request; `figures` may be NULL. `id_start` begins an offset message id.
cdef int write_answer(Out out, Answers answers, Request* request, const Figures* figures, bytes id_start) except -1

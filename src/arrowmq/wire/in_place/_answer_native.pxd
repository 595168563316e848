# Answers of success, written around template parts; C only.

from libc.stdint cimport int64_t

from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._fields cimport FIELDS
from arrowmq.wire.in_place._request_native cimport Request, Text


# Offset message ids of records that lie one behind the other.
cdef struct MessageIds:
    const char* start         # the store host in hex, of `start_size` letters
    Py_ssize_t start_size
    int64_t physical_offset
    const int64_t* sizes      # of the records; NULL of one
    int count


# A value of an answer's header. Of the three, the first that is there counts.
cdef struct Value:
    const MessageIds* ids
    const Text* text
    int64_t number


cdef class AnswerTemplate:
    cdef list json_parts          # the header between its placeholders
    cdef int json_places[FIELDS + 1]   # which field stands behind which part; -1 is the opaque
    cdef int json_count
    cdef bytes binary_start       # of the header, up to the opaque
    cdef bytes binary_remark      # with its length
    cdef bytes binary_entries     # the ext entries that are always the same
    cdef list binary_names        # of the other entries, with their lengths
    cdef int binary_places[FIELDS]     # which fields these are
    cdef int binary_count


# Writes the answer to a request, up to its body of so many bytes. `values` are by the places of the answer's fields, and
# may be NULL where the template has no placeholders.
cdef int write_answer(
    Out out, AnswerTemplate template, Request* request, const Value* values, Py_ssize_t body_bytes
) except -1

# Reading requests where they lie; C only. `__init__.py` says what for, `_fields.pxd` has the places of the fields.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from arrowmq.wire.in_place._fields cimport EXTRA_FIELDS, FIELDS
from arrowmq.wire.in_place._names_native cimport NameTable


cdef struct Text:
    const uint8_t* data
    Py_ssize_t size


cdef enum:
    ALL_FIELDS = FIELDS + EXTRA_FIELDS
    MAX_CODES = 16
    ONEWAY = 2                # of a request's flag


cdef struct Request:
    int32_t code
    int32_t opaque
    int32_t flag
    int place                 # of its code in the reader's list
    bint is_json
    int64_t number            # of this reading; no other of the same reader has it
    Text fields[ALL_FIELDS]   # without data where there is none
    Text body
    Py_ssize_t frame_size     # with the length word


cdef struct Scratch:
    uint8_t* data
    Py_ssize_t used


cdef class RequestReader:
    """Reads requests of the codes that it was given the field names of, and no others."""
    cdef int count
    cdef int32_t codes[MAX_CODES]
    cdef list tables          # of field names, in the order of the codes
    cdef Scratch scratch
    cdef int64_t readings

    # Reads the frame at `at`. False if it is not whole, of another code, or not of the plain form that clients write.
    # What the request points to holds until the next one is read by `read`; `read_behind` leaves what was read before it,
    # and also says no where there is no room left beside that.
    cdef bint read(self, const uint8_t* at, const uint8_t* end, Request* request) noexcept
    cdef bint read_behind(self, const uint8_t* at, const uint8_t* end, Request* request) noexcept
    cdef int place_of(self, int32_t code) noexcept


cdef inline uint32_t u32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline uint32_t u16(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 8) | <uint32_t>at[1]


cdef inline bint text_is(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.data, word, size) == 0


# The number in a text, if it is plain decimal within bounds.
cdef bint text_to_int(Text text, int64_t low, int64_t high, int64_t* value) noexcept nogil

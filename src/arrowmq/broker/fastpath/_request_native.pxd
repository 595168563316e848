# Reading a request's header in place: shared by the short ways of sends, pulls and transactions.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef struct Text:
    const uint8_t* data
    Py_ssize_t size


cdef enum:
    FIELDS = 20               # slots for the fields of a header; which field has which slot depends on the code
    SEND_V2 = 310
    SEND_BATCH = 320
    PULL = 11
    END_TRANSACTION = 37
    ONEWAY = 2


cdef struct Request:
    int32_t code
    int32_t opaque
    int32_t flag
    bint is_json
    Text fields[FIELDS]
    Text body
    Py_ssize_t frame_size     # with the length word


cdef struct Scratch:
    uint8_t* data
    Py_ssize_t used


cdef inline uint32_t u32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline uint32_t u16(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 8) | <uint32_t>at[1]


cdef inline bint text_is(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.data, word, size) == 0


# The number in a text, if it is plain decimal within bounds.
cdef bint text_to_int(Text text, int64_t low, int64_t high, int64_t* value) noexcept nogil

# The code of the first frame if it is one that a short way may know, else -1; a cheap look.
cdef int32_t code_of(const uint8_t* at, const uint8_t* end) noexcept nogil

# Reads the frame at `at`. False if it is not whole, or not of the plain form that the short ways know.
cdef bint read_request(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil

# The same for END_TRANSACTION and nothing else; its fields' slots are those of `END_NAMES`.
cdef bint read_ending(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil

# Whether the first frame is an END_TRANSACTION; a cheap look.
cdef bint is_ending(const uint8_t* at, const uint8_t* end) noexcept nogil

cdef Scratch new_scratch() except *

# What the properties of a half message say, and writing others, for the handler of transactions.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from arrowmq.wire.in_place._names_native cimport NameTable
from arrowmq.wire.in_place._request_native cimport Text


# A size of 0 says there is none.
cdef struct Said:
    Text unique
    Text group
    Text topic                # REAL_TOPIC and REAL_QID, of a stored one
    Text queue
    bint is_half


# Whether the general path would take these properties just as they are, and what they say.
cdef bint read_properties(
    Text properties, NameTable known, Said* said, bint is_stored, bint may_wait
) noexcept nogil

cdef bint is_ascii(Text text) noexcept nogil


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t* put_number(uint8_t* at, int64_t value) noexcept nogil:
    """A number that is not negative, as text."""
    cdef uint8_t digits[20]
    cdef int count = 0
    while True:
        digits[count] = <uint8_t>(48 + value % 10)
        count += 1
        value = value // 10
        if value == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at

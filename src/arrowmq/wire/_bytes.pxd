# Numbers in bytes at any place, big-endian or as plain text, for all native modules.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define ARROWMQ_SWAP16(x) __builtin_bswap16(x)
    #define ARROWMQ_SWAP32(x) __builtin_bswap32(x)
    #define ARROWMQ_SWAP64(x) __builtin_bswap64(x)
    """
    uint16_t ARROWMQ_SWAP16(uint16_t x) nogil
    uint32_t ARROWMQ_SWAP32(uint32_t x) nogil
    uint64_t ARROWMQ_SWAP64(uint64_t x) nogil


cdef inline void put16(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint16_t big = ARROWMQ_SWAP16(<uint16_t>value)
    memcpy(at, &big, 2)


cdef inline void put32(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint32_t big = ARROWMQ_SWAP32(<uint32_t>value)
    memcpy(at, &big, 4)


cdef inline void put64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t big = ARROWMQ_SWAP64(<uint64_t>value)
    memcpy(at, &big, 8)


cdef inline int16_t get16(const uint8_t *at) noexcept nogil:
    cdef uint16_t big
    memcpy(&big, at, 2)
    return <int16_t>ARROWMQ_SWAP16(big)


cdef inline int32_t get32(const uint8_t *at) noexcept nogil:
    cdef uint32_t big
    memcpy(&big, at, 4)
    return <int32_t>ARROWMQ_SWAP32(big)


cdef inline int64_t get64(const uint8_t *at) noexcept nogil:
    cdef uint64_t big
    memcpy(&big, at, 8)
    return <int64_t>ARROWMQ_SWAP64(big)


cdef inline bint number(const uint8_t* text, Py_ssize_t size, int64_t* value) noexcept nogil:
    """A plain decimal number that no Python code need look at."""
    cdef Py_ssize_t at = 0
    cdef int64_t found = 0
    if size < 1 or size > 18:
        return False
    while at < size:
        if text[at] < 48 or text[at] > 57:
            return False
        found = found * 10 + text[at] - 48
        at += 1
    value[0] = found
    return True

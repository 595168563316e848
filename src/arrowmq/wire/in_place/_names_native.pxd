# A table of exact names, each with a number, looked up by bytes without a Python object; C only.

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp


cdef struct Named:
    const uint8_t* text      # NULL: the place is empty
    int32_t size
    int32_t number


cdef class NameTable:
    cdef Named* places
    cdef uint32_t mask
    cdef int32_t longest
    cdef int32_t letters[128]    # of names that are one letter
    cdef list texts              # keeps the bytes that `places` points to


cdef inline uint32_t place_of(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """The length and three letters tell RocketMQ's names apart well enough; where they do not, the next place is looked at."""
    cdef uint32_t mixed = <uint32_t>size * 31 + text[0]
    mixed = mixed * 31 + text[size >> 1]
    mixed = mixed * 31 + text[size - 1]
    return mixed * 0x9E3779B1u >> 16


cdef inline int32_t number_of(NameTable table, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """The number of a name, or 0 if it is not in the table. The name must not be empty."""
    cdef uint32_t place
    cdef Named* named
    if size == 1:
        return table.letters[text[0]] if text[0] < 128 else 0
    if size > table.longest:
        return 0
    place = place_of(text, size) & table.mask
    while True:
        named = table.places + place
        if named.text == NULL:
            return 0
        if named.size == size and memcmp(named.text, text, size) == 0:
            return named.number
        place = (place + 1) & table.mask

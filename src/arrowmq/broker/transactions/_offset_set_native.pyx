"""A set of offsets, compiled. `_offset_set_plain` says what is right."""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t


cdef class OffsetSet:
    def __init__(self, int64_t base=0):
        self.floor = base
        self._base = base & ~<int64_t>7
        self._bits = bytearray()

    cdef bint has(self, int64_t offset) noexcept:
        cdef int64_t place = offset - self._base
        if place < 0 or place >> 3 >= PyByteArray_GET_SIZE(self._bits):
            return False
        return (<uint8_t*>PyByteArray_AS_STRING(self._bits))[place >> 3] >> (place & 7) & 1

    cdef int take_in(self, int64_t offset) except -1:
        cdef int64_t place = offset - self._base
        cdef int64_t missing
        if place < 0:
            return 0
        missing = (place >> 3) + 1 - PyByteArray_GET_SIZE(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        (<uint8_t*>PyByteArray_AS_STRING(self._bits))[place >> 3] |= <uint8_t>(1 << (place & 7))
        return 0

    def add(self, int64_t offset):
        """Takes an offset in; one that was forgotten stays forgotten."""
        self.take_in(offset)

    def __contains__(self, int64_t offset):
        return self.has(offset)

    def is_missing(self, int64_t offset):
        """Whether an offset is neither in the set nor done with."""
        return offset >= self.floor and not self.has(offset)

    def next_missing(self, int64_t offset):
        """The first offset from here on that is not in the set."""
        cdef int64_t size = <int64_t>PyByteArray_GET_SIZE(self._bits) << 3
        cdef int64_t place = max(<int64_t>0, offset - self._base)
        cdef const uint8_t* bits = <const uint8_t*>PyByteArray_AS_STRING(self._bits)
        while place < size:
            if place & 7 == 0 and bits[place >> 3] == 0xFF:
                place += 8
            elif bits[place >> 3] >> (place & 7) & 1:
                place += 1
            else:
                break
        return max(offset, self._base + place)

    def forget_below(self, int64_t offset):
        """Lets go of the memory for offsets that nobody will ask for again."""
        cdef int64_t whole = min((offset - self._base) >> 3, <int64_t>PyByteArray_GET_SIZE(self._bits))
        self.floor = max(self.floor, offset)
        if whole > 0:
            del self._bits[:whole]
            self._base += whole << 3
        if not self._bits:
            self._base = max(self._base, offset & ~<int64_t>7)

    @property
    def memory_bytes(self):
        return PyByteArray_GET_SIZE(self._bits)

"""A buffer that frames are written into. C for other native modules, no Python interface."""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef enum:
    START_BYTES = 64 * 1024
    KEPT_BYTES = 1024 * 1024


cdef class Out:
    def __cinit__(self):
        self.room = START_BYTES
        self.size = 0
        self.data = <uint8_t*>malloc(self.room)
        if self.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.data)

    cdef void clear(self) noexcept:
        """Nothing is in it any more. What one large frame needed is not kept for the small ones."""
        cdef uint8_t* small
        self.size = 0
        if self.room > KEPT_BYTES:
            small = <uint8_t*>malloc(START_BYTES)
            if small != NULL:
                free(self.data)
                self.data = small
                self.room = START_BYTES

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef uint8_t* grown
        cdef Py_ssize_t room = self.room
        if self.size + more > room:
            while self.size + more > room:
                room *= 2
            grown = <uint8_t*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            self.room = room
        return 0

    cdef void put(self, const void* data, Py_ssize_t size) noexcept:
        memcpy(self.data + self.size, data, size)
        self.size += size

    cdef void put_bytes(self, bytes data) noexcept:
        memcpy(self.data + self.size, <const char*>data, len(data))
        self.size += len(data)

    cdef void put_u32(self, uint32_t value) noexcept:
        self.set_u32(self.size, value)
        self.size += 4

    cdef void set_u32(self, Py_ssize_t at, uint32_t value) noexcept:
        self.data[at] = <uint8_t>(value >> 24)
        self.data[at + 1] = <uint8_t>(value >> 16)
        self.data[at + 2] = <uint8_t>(value >> 8)
        self.data[at + 3] = <uint8_t>value

    cdef int put_decimal(self, int64_t value) noexcept:
        """The number as text; how many characters that were."""
        cdef uint8_t digits[20]
        cdef int count = 0, length
        cdef bint is_negative = value < 0
        cdef uint64_t rest = <uint64_t>(-value) if is_negative else <uint64_t>value
        while True:
            digits[count] = c"0" + <uint8_t>(rest % 10)
            count += 1
            rest //= 10
            if rest == 0:
                break
        length = count + is_negative
        if is_negative:
            self.data[self.size] = c"-"
            self.size += 1
        while count:
            count -= 1
            self.data[self.size] = digits[count]
            self.size += 1
        return length

    cdef int put_number_entry(self, const char* name, int name_size, int64_t value) noexcept:
        """An entry of a binary header's ext map: a short name and a number as text."""
        cdef Py_ssize_t at
        self.data[self.size] = 0
        self.data[self.size + 1] = <uint8_t>name_size
        self.size += 2
        self.put(name, name_size)
        at = self.size
        self.size += 4
        self.set_u32(at, self.put_decimal(value))
        return 0

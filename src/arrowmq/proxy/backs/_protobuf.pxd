# Protobuf on the wire, read and written in place; for the native modules of this package.
#
#  A field of a message: key (number << 3 | kind), then by kind
#   0  a number, seven bits a byte, the lowest first
#   1  eight bytes     2  length and so many bytes     5  four bytes

from libc.stdint cimport uint8_t, uint64_t


cdef struct Reader:
    const uint8_t* at
    const uint8_t* end


cdef struct Text:
    const uint8_t* data
    Py_ssize_t size


cdef inline bint number(Reader* reader, uint64_t* value) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while reader.at < reader.end and shift < 64:
        byte = reader.at[0]
        reader.at += 1
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False


cdef inline bint text(Reader* reader, Text* found) noexcept nogil:
    cdef uint64_t size
    if not number(reader, &size) or size > <uint64_t>(reader.end - reader.at):
        return False
    found.data, found.size = reader.at, <Py_ssize_t>size
    reader.at += size
    return True


cdef inline Reader within(Text found) noexcept nogil:
    cdef Reader reader
    reader.at, reader.end = found.data, found.data + found.size
    return reader


cdef inline bint milliseconds(Text duration, uint64_t* value) noexcept nogil:
    """Of a Duration that is not negative and below some ten thousand years."""
    cdef Reader reader = within(duration)
    cdef uint64_t key, part, seconds = 0, nanos = 0
    while reader.at < reader.end:
        if not number(&reader, &key) or not number(&reader, &part):
            return False
        if key == 8:
            seconds = part
        elif key == 16:
            nanos = part
        else:
            return False
    value[0] = seconds * 1000 + nanos // 1000000
    return seconds <= 315576000000ULL and nanos < 1000000000


cdef inline int number_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* put_number(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 128:
        at[0] = <uint8_t>(value & 0x7F | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return at + 1

# cython: language_level=3
"""HPACK (RFC 7541) for the native core: reading header blocks, and writing them in their simplest form.

Serves `_core_native` alone; what is right is defined by the `hpack` library, on which the plain core stands.

What we write is literal, without Huffman coding and without the dynamic table: answers have three or four short headers
that stand in the static table by name, and a block that never changes can be kept.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

cdef uint32_t* CODES = [
    0x1ff8, 0x7fffd8, 0xfffffe2, 0xfffffe3, 0xfffffe4, 0xfffffe5, 0xfffffe6, 0xfffffe7, 0xfffffe8, 0xffffea,
    0x3ffffffc, 0xfffffe9, 0xfffffea, 0x3ffffffd, 0xfffffeb, 0xfffffec, 0xfffffed, 0xfffffee, 0xfffffef, 0xffffff0,
    0xffffff1, 0xffffff2, 0x3ffffffe, 0xffffff3, 0xffffff4, 0xffffff5, 0xffffff6, 0xffffff7, 0xffffff8, 0xffffff9,
    0xffffffa, 0xffffffb, 0x14, 0x3f8, 0x3f9, 0xffa, 0x1ff9, 0x15, 0xf8, 0x7fa, 0x3fa, 0x3fb, 0xf9, 0x7fb, 0xfa, 0x16,
    0x17, 0x18, 0x0, 0x1, 0x2, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x5c, 0xfb, 0x7ffc, 0x20, 0xffb, 0x3fc,
    0x1ffa, 0x21, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c,
    0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0xfc, 0x73, 0xfd, 0x1ffb, 0x7fff0, 0x1ffc, 0x3ffc, 0x22, 0x7ffd, 0x3, 0x23,
    0x4, 0x24, 0x5, 0x25, 0x26, 0x27, 0x6, 0x74, 0x75, 0x28, 0x29, 0x2a, 0x7, 0x2b, 0x76, 0x2c, 0x8, 0x9, 0x2d, 0x77,
    0x78, 0x79, 0x7a, 0x7b, 0x7ffe, 0x7fc, 0x3ffd, 0x1ffd, 0xffffffc, 0xfffe6, 0x3fffd2, 0xfffe7, 0xfffe8, 0x3fffd3,
    0x3fffd4, 0x3fffd5, 0x7fffd9, 0x3fffd6, 0x7fffda, 0x7fffdb, 0x7fffdc, 0x7fffdd, 0x7fffde, 0xffffeb, 0x7fffdf,
    0xffffec, 0xffffed, 0x3fffd7, 0x7fffe0, 0xffffee, 0x7fffe1, 0x7fffe2, 0x7fffe3, 0x7fffe4, 0x1fffdc, 0x3fffd8,
    0x7fffe5, 0x3fffd9, 0x7fffe6, 0x7fffe7, 0xffffef, 0x3fffda, 0x1fffdd, 0xfffe9, 0x3fffdb, 0x3fffdc, 0x7fffe8,
    0x7fffe9, 0x1fffde, 0x7fffea, 0x3fffdd, 0x3fffde, 0xfffff0, 0x1fffdf, 0x3fffdf, 0x7fffeb, 0x7fffec, 0x1fffe0,
    0x1fffe1, 0x3fffe0, 0x1fffe2, 0x7fffed, 0x3fffe1, 0x7fffee, 0x7fffef, 0xfffea, 0x3fffe2, 0x3fffe3, 0x3fffe4,
    0x7ffff0, 0x3fffe5, 0x3fffe6, 0x7ffff1, 0x3ffffe0, 0x3ffffe1, 0xfffeb, 0x7fff1, 0x3fffe7, 0x7ffff2, 0x3fffe8,
    0x1ffffec, 0x3ffffe2, 0x3ffffe3, 0x3ffffe4, 0x7ffffde, 0x7ffffdf, 0x3ffffe5, 0xfffff1, 0x1ffffed, 0x7fff2,
    0x1fffe3, 0x3ffffe6, 0x7ffffe0, 0x7ffffe1, 0x3ffffe7, 0x7ffffe2, 0xfffff2, 0x1fffe4, 0x1fffe5, 0x3ffffe8,
    0x3ffffe9, 0xffffffd, 0x7ffffe3, 0x7ffffe4, 0x7ffffe5, 0xfffec, 0xfffff3, 0xfffed, 0x1fffe6, 0x3fffe9, 0x1fffe7,
    0x1fffe8, 0x7ffff3, 0x3fffea, 0x3fffeb, 0x1ffffee, 0x1ffffef, 0xfffff4, 0xfffff5, 0x3ffffea, 0x7ffff4, 0x3ffffeb,
    0x7ffffe6, 0x3ffffec, 0x3ffffed, 0x7ffffe7, 0x7ffffe8, 0x7ffffe9, 0x7ffffea, 0x7ffffeb, 0xffffffe, 0x7ffffec,
    0x7ffffed, 0x7ffffee, 0x7ffffef, 0x7fffff0, 0x3ffffee, 0x3fffffff,
]
cdef uint8_t* LENGTHS = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6,
    12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15,
    5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20,
    22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
    23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26,
    27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
]
STATIC = (
    (b':authority', b''), (b':method', b'GET'), (b':method', b'POST'), (b':path', b'/'), (b':path', b'/index.html'),
    (b':scheme', b'http'), (b':scheme', b'https'), (b':status', b'200'), (b':status', b'204'), (b':status', b'206'),
    (b':status', b'304'), (b':status', b'400'), (b':status', b'404'), (b':status', b'500'), (b'accept-charset', b''),
    (b'accept-encoding', b'gzip, deflate'), (b'accept-language', b''), (b'accept-ranges', b''), (b'accept', b''),
    (b'access-control-allow-origin', b''), (b'age', b''), (b'allow', b''), (b'authorization', b''),
    (b'cache-control', b''), (b'content-disposition', b''), (b'content-encoding', b''), (b'content-language', b''),
    (b'content-length', b''), (b'content-location', b''), (b'content-range', b''), (b'content-type', b''),
    (b'cookie', b''), (b'date', b''), (b'etag', b''), (b'expect', b''), (b'expires', b''), (b'from', b''),
    (b'host', b''), (b'if-match', b''), (b'if-modified-since', b''), (b'if-none-match', b''), (b'if-range', b''),
    (b'if-unmodified-since', b''), (b'last-modified', b''), (b'link', b''), (b'location', b''),
    (b'max-forwards', b''), (b'proxy-authenticate', b''), (b'proxy-authorization', b''), (b'range', b''),
    (b'referer', b''), (b'refresh', b''), (b'retry-after', b''), (b'server', b''), (b'set-cookie', b''),
    (b'strict-transport-security', b''), (b'transfer-encoding', b''), (b'user-agent', b''), (b'vary', b''),
    (b'via', b''), (b'www-authenticate', b''),
)
cdef enum:
    STATIC_ENTRIES = 61
    ENTRY_OVERHEAD = 32
    EOS = 256
    MAX_NODES = 300

# The tree of codes, walked four bits at a time: where from a node, and which symbol was passed on the way (-1: none).
cdef int16_t NEXT[MAX_NODES][16]
cdef int16_t SYMBOL[MAX_NODES][16]
cdef uint8_t IS_END[MAX_NODES]       # the bits since the last symbol are padding: at most seven, all ones


cdef void build_tree():
    cdef int16_t children[MAX_NODES][2]
    cdef int16_t leaf[MAX_NODES][2]
    cdef int nodes = 1, node, bit, symbol, position, nibble, at, found, dead, depth
    for node in range(MAX_NODES):
        children[node][0] = children[node][1] = -1
        leaf[node][0] = leaf[node][1] = -1
        IS_END[node] = 0
    for symbol in range(257):
        node = 0
        for position in range(LENGTHS[symbol] - 1, -1, -1):
            bit = (CODES[symbol] >> position) & 1
            if position == 0:
                leaf[node][bit] = symbol
            else:
                if children[node][bit] < 0:
                    children[node][bit] = nodes
                    nodes += 1
                node = children[node][bit]
    node, depth = 0, 0
    while node >= 0 and depth < 8:
        IS_END[node] = 1
        node = children[node][1]
        depth += 1
    for node in range(nodes):
        for nibble in range(16):
            at, found, dead = node, -1, 0
            for position in range(3, -1, -1):
                bit = (nibble >> position) & 1
                if leaf[at][bit] >= 0:
                    found = leaf[at][bit]
                    at = 0
                    if found == EOS:
                        dead = 1
                        break
                else:
                    at = children[at][bit]
                    if at < 0:
                        dead = 1
                        break
            NEXT[node][nibble] = -1 if dead else at
            SYMBOL[node][nibble] = -1 if dead else found


build_tree()


class HpackError(ValueError):
    """A header block that cannot be read."""


cdef bytes huffman_decoded(const uint8_t* data, Py_ssize_t size):
    # The shortest code has five bits.
    cdef Py_ssize_t room = size * 8 // 5 + 1, length = 0, position
    cdef uint8_t* out = <uint8_t*>malloc(room)
    cdef int node = 0, half, nibble, symbol
    cdef bytes made
    if out == NULL:
        raise MemoryError
    try:
        for position in range(size):
            for half in range(2):
                nibble = data[position] >> 4 if half == 0 else data[position] & 15
                symbol = SYMBOL[node][nibble]
                node = NEXT[node][nibble]
                if node < 0:
                    raise HpackError("a Huffman code that does not exist")
                if symbol >= 0:
                    out[length] = <uint8_t>symbol
                    length += 1
        if not IS_END[node]:
            raise HpackError("Huffman padding that is none")
        made = PyBytes_FromStringAndSize(<char*>out, length)
    finally:
        free(out)
    return made


cdef class Decoder:
    def __cinit__(self, Py_ssize_t max_list_bytes):
        self.entries = []
        self.size = 0
        self.allowed = 4096
        self.limit = 4096
        self.max_list_bytes = max_list_bytes

    cdef list decode(self, const uint8_t* data, Py_ssize_t size):
        """The headers of a block. Raises `HpackError`; None if the list is longer than allowed."""
        cdef list headers = []
        cdef Py_ssize_t position = 0, index, total = 0
        cdef uint8_t first
        cdef bint is_too_long = False
        cdef bytes name, value
        cdef tuple entry
        while position < size:
            first = data[position]
            if first & 0x80:
                index = self.integer(data, size, &position, 7)
                entry = self.entry(index)
            elif first & 0xC0 == 0x40:
                index = self.integer(data, size, &position, 6)
                name = self.string(data, size, &position) if index == 0 else <bytes>self.entry(index)[0]
                value = self.string(data, size, &position)
                entry = (name, value)
                self.insert(entry)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise HpackError("the table's size changes in the middle of a block")
                index = self.integer(data, size, &position, 5)
                if index > self.allowed:
                    raise HpackError("a table larger than allowed")
                self.limit = index
                self.evict()
                continue
            else:
                index = self.integer(data, size, &position, 4)
                name = self.string(data, size, &position) if index == 0 else <bytes>self.entry(index)[0]
                value = self.string(data, size, &position)
                entry = (name, value)
            total += PyBytes_GET_SIZE(<bytes>entry[0]) + PyBytes_GET_SIZE(<bytes>entry[1]) + ENTRY_OVERHEAD
            if total > self.max_list_bytes:
                is_too_long = True
                headers.clear()
            if not is_too_long:
                headers.append(entry)
        return None if is_too_long else headers

    cdef Py_ssize_t integer(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, int bits) except -1:
        cdef Py_ssize_t mask = (1 << bits) - 1
        cdef Py_ssize_t value = data[position[0]] & mask
        cdef int shift = 0
        cdef uint8_t byte
        position[0] += 1
        if value < mask:
            return value
        while True:
            if position[0] >= size:
                raise HpackError("a number without an end")
            byte = data[position[0]]
            position[0] += 1
            value += <Py_ssize_t>(byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 28:
                raise HpackError("a number too large")

    cdef bytes string(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* position):
        cdef bint is_huffman
        cdef Py_ssize_t length, begin
        if position[0] >= size:
            raise HpackError("a text is missing")
        is_huffman = data[position[0]] & 0x80 != 0
        length = self.integer(data, size, position, 7)
        begin = position[0]
        if length > size - begin:
            raise HpackError("a text longer than its block")
        position[0] = begin + length
        if is_huffman:
            return huffman_decoded(data + begin, length)
        return PyBytes_FromStringAndSize(<const char*>data + begin, length)

    cdef tuple entry(self, Py_ssize_t index):
        if index <= 0:
            raise HpackError("there is no entry 0")
        if index <= STATIC_ENTRIES:
            return <tuple>STATIC[index - 1]
        index -= STATIC_ENTRIES
        if index > len(self.entries):
            raise HpackError("there is no such entry")
        return <tuple>self.entries[len(self.entries) - index]  # the newest is the last

    cdef int insert(self, tuple entry) except -1:
        self.entries.append(entry)
        self.size += PyBytes_GET_SIZE(<bytes>entry[0]) + PyBytes_GET_SIZE(<bytes>entry[1]) + ENTRY_OVERHEAD
        self.evict()
        return 0

    cdef int evict(self) except -1:
        cdef Py_ssize_t count = 0
        cdef tuple entry
        while self.size > self.limit:
            entry = <tuple>self.entries[count]
            self.size -= PyBytes_GET_SIZE(<bytes>entry[0]) + PyBytes_GET_SIZE(<bytes>entry[1]) + ENTRY_OVERHEAD
            count += 1
        if count:
            del self.entries[:count]
        return 0


cdef dict STATIC_PAIRS = {}
cdef dict STATIC_NAMES = {}
for _number, _pair in enumerate(STATIC, 1):
    STATIC_PAIRS.setdefault(_pair, _number)
    STATIC_NAMES.setdefault(_pair[0], _number)


cdef bytes number_bytes(Py_ssize_t value, int bits, int first):
    cdef Py_ssize_t mask = (1 << bits) - 1
    if value < mask:
        return bytes((first | value,))
    made = bytearray((first | mask,))
    value -= mask
    while value >= 128:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


cdef bytes encoded(list headers):
    """The block of these headers."""
    cdef list pieces = []
    for name, value in headers:
        index = STATIC_PAIRS.get((name, value))
        if index is not None:
            pieces.append(number_bytes(index, 7, 0x80))
            continue
        index = STATIC_NAMES.get(name, 0)
        pieces.append(number_bytes(index, 4, 0))
        if index == 0:
            pieces.append(number_bytes(len(name), 7, 0))
            pieces.append(name)
        pieces.append(number_bytes(len(value), 7, 0))
        pieces.append(value)
    return b"".join(pieces)

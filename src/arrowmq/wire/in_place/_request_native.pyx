# cython: language_level=3
"""Request headers read where they lie. C for other native modules; `wire.frames` is what says how a frame is read.

No Python object is made, and nothing is copied unless a JSON string has escapes. Whatever is not of the plain form that
clients write makes `read` say no; then the frame is the general path's, which judges it.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from arrowmq.wire.in_place._names_native cimport NameTable, number_of

cdef enum:
    SCRATCH_BYTES = 65536     # for JSON strings with escapes; a longer header is left to the general path


cdef bint text_to_int(Text text, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """Plain decimal within bounds; anything else is for the general path to judge."""
    cdef Py_ssize_t index = 0
    cdef int64_t total = 0
    cdef bint is_negative = False
    if text.size > 0 and text.data[0] == c"-":
        is_negative = True
        index = 1
    if text.size == index or text.size - index > 18:
        return False
    while index < text.size:
        if text.data[index] < c"0" or text.data[index] > c"9":
            return False
        total = total * 10 + (text.data[index] - c"0")
        index += 1
    if is_negative:
        total = -total
    value[0] = total
    return low <= total <= high


cdef inline bint keep_field(Request* request, NameTable names, Text name, Text value) noexcept:
    """Only fields that the header has, each once."""
    cdef int place = number_of(names, name.data, name.size) - 1 if name.size else -1
    if place < 0 or request.fields[place].data != NULL:
        return False
    request.fields[place] = value
    return True


cdef bint read_binary(RequestReader reader, const uint8_t* at, const uint8_t* end, Request* request) noexcept:
    """The ROCKETMQ header: code 2, language 1, version 2, opaque 4, flag 4, remark, ext map."""
    cdef uint32_t size
    cdef Text name, value
    cdef NameTable names
    if end - at < 21:
        return False
    request.code = <int16_t>u16(at)
    request.place = reader.place_of(request.code)
    if request.place < 0:
        return False
    names = <NameTable>reader.tables[request.place]
    request.opaque = <int32_t>u32(at + 5)
    request.flag = <int32_t>u32(at + 9)
    if u32(at + 13) != 0:              # a remark; no client sends one with a message
        return False
    size = u32(at + 17)
    at += 21
    if size != <uint32_t>(end - at):
        return False
    while at < end:
        if end - at < 2:
            return False
        name.size = u16(at)
        name.data = at + 2
        at += 2
        if name.size == 0 or name.size > end - at:
            return False
        at += name.size
        if end - at < 4:
            return False
        size = u32(at)
        at += 4
        if size > <uint32_t>(end - at):
            return False
        value.data = at
        value.size = size
        at += size
        if size and not keep_field(request, names, name, value):
            return False
    return True


cdef inline int hex_digit(uint8_t character) noexcept nogil:
    if c"0" <= character <= c"9":
        return character - c"0"
    character |= 0x20
    if c"a" <= character <= c"f":
        return character - c"a" + 10
    return -1


cdef const uint8_t* json_string(const uint8_t* at, const uint8_t* end, Text* text, Scratch* scratch) noexcept nogil:
    """A string from behind its opening quote; the position behind its closing quote, or NULL. Only escapes of ASCII."""
    cdef const uint8_t* start = at
    cdef Py_ssize_t length
    cdef int value, index
    cdef uint8_t* target
    while at < end and at[0] != c'"' and at[0] != c"\\":
        if at[0] < 0x20:
            return NULL
        at += 1
    if at == end:
        return NULL
    if at[0] == c'"':
        text.data = start
        text.size = at - start
        return at + 1
    length = at - start
    if scratch.used + (end - start) > SCRATCH_BYTES:
        return NULL
    target = scratch.data + scratch.used
    memcpy(target, start, length)
    while at < end:
        if at[0] == c'"':
            text.data = target
            text.size = length
            scratch.used += length
            return at + 1
        if at[0] != c"\\":
            if at[0] < 0x20:
                return NULL
            target[length] = at[0]
            length += 1
            at += 1
            continue
        if end - at < 2:
            return NULL
        if at[1] == c"u":
            if end - at < 6:
                return NULL
            value = 0
            for index in range(2, 6):
                if hex_digit(at[index]) < 0:
                    return NULL
                value = value * 16 + hex_digit(at[index])
            if value >= 0x80:
                return NULL
            target[length] = <uint8_t>value
            at += 6
        else:
            if at[1] == c'"' or at[1] == c"\\" or at[1] == c"/":
                target[length] = at[1]
            elif at[1] == c"n":
                target[length] = 10
            elif at[1] == c"t":
                target[length] = 9
            elif at[1] == c"r":
                target[length] = 13
            elif at[1] == c"b":
                target[length] = 8
            elif at[1] == c"f":
                target[length] = 12
            else:
                return NULL
            at += 2
        length += 1
    return NULL


cdef const uint8_t* json_word(const uint8_t* at, const uint8_t* end, Text* text) noexcept nogil:
    """A number or a bare word (true, null), as text."""
    text.data = at
    while at < end and (
        c"0" <= at[0] <= c"9" or c"a" <= at[0] <= c"z" or at[0] == c"-" or at[0] == c"+" or at[0] == c"." or at[0] == c"E"
    ):
        at += 1
    text.size = at - text.data
    return at if text.size else NULL


cdef const uint8_t* json_ext(
    const uint8_t* at, const uint8_t* end, Request* request, NameTable names, Scratch* scratch
) noexcept:
    """The object of ext fields from behind its brace. Node sends numbers and booleans where others send strings."""
    cdef Text name, value
    if at < end and at[0] == c"}":
        return at + 1
    while at < end:
        if at[0] != c'"':
            return NULL
        at = json_string(at + 1, end, &name, scratch)
        if at == NULL or at == end or at[0] != c":":
            return NULL
        at += 1
        if at < end and at[0] == c'"':
            at = json_string(at + 1, end, &value, scratch)
        else:
            at = json_word(at, end, &value)
            if at != NULL and text_is(value, b"null", 4):
                return NULL
        if at == NULL or at == end or not keep_field(request, names, name, value):
            return NULL
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at += 1
    return NULL


cdef bint read_json(RequestReader reader, const uint8_t* at, const uint8_t* end, Request* request) noexcept:
    """The JSON header as clients write it: compact, one level of ext fields."""
    cdef Text name, value
    cdef Scratch* scratch = &reader.scratch
    cdef int64_t number
    cdef bint has_code = False, has_opaque = False, has_ext = False
    if at == end or at[0] != c"{":
        return False
    at += 1
    request.flag = 0
    while at < end:
        if at[0] != c'"':
            return False
        at = json_string(at + 1, end, &name, scratch)
        if at == NULL or at == end or at[0] != c":":
            return False
        at += 1
        if at == end:
            return False
        if at[0] == c"{":
            if has_ext or not has_code or not text_is(name, b"extFields", 9):
                return False
            has_ext = True
            at = json_ext(at + 1, end, request, <NameTable>reader.tables[request.place], scratch)
        elif at[0] == c'"':
            at = json_string(at + 1, end, &value, scratch)
            if at != NULL and value.size and text_is(name, b"remark", 6):
                return False
        else:
            at = json_word(at, end, &value)
            if at != NULL:
                if text_is(name, b"code", 4):
                    if not text_to_int(value, 0, 0x7FFFFFFF, &number):
                        return False
                    request.code = <int32_t>number
                    request.place = reader.place_of(request.code)
                    if has_ext or request.place < 0:
                        return False        # the fields' places depend on the code: it has to come first
                    has_code = True
                elif text_is(name, b"opaque", 6):
                    if not text_to_int(value, -0x80000000LL, 0x7FFFFFFF, &number):
                        return False
                    request.opaque = <int32_t>number
                    has_opaque = True
                elif text_is(name, b"flag", 4):
                    if not text_to_int(value, 0, 0x7FFFFFFF, &number):
                        return False
                    request.flag = <int32_t>number
        if at == NULL or at == end:
            return False
        if at[0] == c"}":
            return at + 1 == end and has_code and has_opaque
        if at[0] != c",":
            return False
        at += 1
    return False


cdef class RequestReader:
    def __cinit__(self):
        self.scratch.used = 0
        self.scratch.data = <uint8_t*>malloc(SCRATCH_BYTES)
        if self.scratch.data == NULL:
            raise MemoryError()
        self.count = 0
        self.tables = []

    def __dealloc__(self):
        free(self.scratch.data)

    def use(self, int32_t code, NameTable names not None):
        """From now on, requests of this code are read by these names of fields: place + 1 of each."""
        cdef int place = self.place_of(code)
        if place >= 0:
            self.tables[place] = names
            return
        if self.count == MAX_CODES:
            raise ValueError(f"{MAX_CODES} codes are known already")
        self.tables.append(names)
        self.codes[self.count] = code
        self.count += 1

    cdef int place_of(self, int32_t code) noexcept:
        cdef int place
        for place in range(self.count):
            if self.codes[place] == code:
                return place
        return -1

    cdef bint read(self, const uint8_t* at, const uint8_t* end, Request* request) noexcept:
        self.scratch.used = 0
        return self.read_behind(at, end, request)

    cdef bint read_behind(self, const uint8_t* at, const uint8_t* end, Request* request) noexcept:
        cdef uint32_t length, header_length
        if end - at < 12:
            return False
        length = u32(at)
        if length < 8 or length > 0xFFFFFC or <Py_ssize_t>length > end - at - 4:
            return False
        header_length = u32(at + 4)
        if header_length >> 24 > 1:
            return False
        request.is_json = header_length >> 24 == 0
        header_length &= 0xFFFFFF
        if header_length > length - 4:
            return False
        self.readings += 1
        request.number = self.readings
        memset(request.fields, 0, sizeof(request.fields))
        request.frame_size = 4 + <Py_ssize_t>length
        request.body.data = at + 8 + header_length
        request.body.size = length - 4 - header_length
        if request.is_json:
            return read_json(self, at + 8, at + 8 + header_length, request)
        return read_binary(self, at + 8, at + 8 + header_length, request)

"""Request headers read where they lie: C for the short ways, no Python interface.

No Python object is made, and nothing is copied unless a JSON string has escapes. Whatever is not of the plain form that
clients write makes `read_request` say no; then the frame goes the general way, which judges it.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    SCRATCH_BYTES = 65536     # for JSON strings with escapes; a longer header goes the general way


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


cdef struct Name:
    const char* text
    Py_ssize_t size


# The slots of a pull header's fields; a field that is not here makes a request unusual.
cdef Name[19] PULL_NAMES
PULL_NAMES[0] = Name(b"consumerGroup", 13)
PULL_NAMES[1] = Name(b"topic", 5)
PULL_NAMES[2] = Name(b"queueId", 7)
PULL_NAMES[3] = Name(b"queueOffset", 11)
PULL_NAMES[4] = Name(b"maxMsgNums", 10)
PULL_NAMES[5] = Name(b"sysFlag", 7)
PULL_NAMES[6] = Name(b"commitOffset", 12)
PULL_NAMES[7] = Name(b"suspendTimeoutMillis", 20)
PULL_NAMES[8] = Name(b"subscription", 12)
PULL_NAMES[9] = Name(b"subVersion", 10)
PULL_NAMES[10] = Name(b"expressionType", 14)
PULL_NAMES[11] = Name(b"maxMsgBytes", 11)
PULL_NAMES[12] = Name(b"requestSource", 13)
PULL_NAMES[13] = Name(b"proxyFrowardClientId", 20)
PULL_NAMES[14] = Name(b"bname", 5)
PULL_NAMES[15] = Name(b"ns", 2)
PULL_NAMES[16] = Name(b"nsd", 3)
PULL_NAMES[17] = Name(b"lo", 2)
PULL_NAMES[18] = Name(b"oway", 4)


# The slots of an END_TRANSACTION's fields.
cdef Name[9] END_NAMES
END_NAMES[0] = Name(b"producerGroup", 13)
END_NAMES[1] = Name(b"tranStateTableOffset", 20)
END_NAMES[2] = Name(b"commitLogOffset", 15)
END_NAMES[3] = Name(b"commitOrRollback", 16)
END_NAMES[4] = Name(b"fromTransactionCheck", 20)
END_NAMES[5] = Name(b"msgId", 5)
END_NAMES[6] = Name(b"transactionId", 13)
END_NAMES[7] = Name(b"bname", 5)
END_NAMES[8] = Name(b"topic", 5)


cdef int slot_of(int32_t code, Text name) noexcept nogil:
    cdef int slot
    if code == END_TRANSACTION:
        for slot in range(9):
            if END_NAMES[slot].size == name.size and memcmp(END_NAMES[slot].text, name.data, name.size) == 0:
                return slot
        return -1
    if code != PULL:
        slot = name.data[0] - c"a" if name.size == 1 else -1
        return slot if 0 <= slot < 14 else -1
    for slot in range(19):
        if PULL_NAMES[slot].size == name.size and memcmp(PULL_NAMES[slot].text, name.data, name.size) == 0:
            return slot
    return -1


cdef inline bint keep_field(Request* request, Text name, Text value) noexcept nogil:
    """Only fields that the header has, each once."""
    cdef int slot = slot_of(request.code, name)
    if slot < 0 or request.fields[slot].data != NULL:
        return False
    request.fields[slot] = value
    return True


cdef inline bint is_known(int32_t code) noexcept nogil:
    return code == SEND_V2 or code == SEND_BATCH or code == PULL


cdef inline bint is_wanted(int32_t code, int32_t only) noexcept nogil:
    """Whoever asks for sends and pulls is given no other code: the slots of its fields mean something else."""
    return code == only if only else is_known(code)


cdef bint read_binary(const uint8_t* at, const uint8_t* end, Request* request, int32_t only) noexcept nogil:
    """The ROCKETMQ header: code 2, language 1, version 2, opaque 4, flag 4, remark, ext map."""
    cdef uint32_t size
    cdef Text name, value
    if end - at < 21:
        return False
    request.code = <int16_t>u16(at)
    if not is_wanted(request.code, only):
        return False
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
        if size and not keep_field(request, name, value):
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


cdef const uint8_t* json_ext(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil:
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
        if at == NULL or at == end or not keep_field(request, name, value):
            return NULL
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at += 1
    return NULL


cdef bint read_json(
    const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch, int32_t only
) noexcept nogil:
    """The JSON header as clients write it: compact, one level of ext fields."""
    cdef Text name, value
    cdef int64_t number
    cdef bint has_code = False, has_opaque = False, has_ext = False
    if at == end or at[0] != c"{":
        return False
    at += 1
    scratch.used = 0
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
            at = json_ext(at + 1, end, request, scratch)
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
                    if has_ext or not is_wanted(request.code, only):
                        return False        # the fields' slots depend on the code: it has to come first
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
            return at + 1 == end and has_code and has_opaque and has_ext
        if at[0] != c",":
            return False
        at += 1
    return False


cdef int32_t code_of(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int32_t code
    if end - at < 20:
        return -1
    if at[4] == 1:
        code = <int32_t>u16(at + 8)
        return code if is_known(code) else -1
    if at[4] != 0 or at[8] != c"{":
        return -1
    if memcmp(at + 8, b'{"code":', 8) != 0:
        return 0                         # another order of keys: worth reading, the code is not known yet
    if at[16] == c"3" and (at[17] == c"1" or at[17] == c"2") and at[18] == c"0" and at[19] == c",":
        return SEND_V2 if at[17] == c"1" else SEND_BATCH
    if at[16] == c"1" and at[17] == c"1" and at[18] == c",":
        return PULL
    return -1


cdef bint is_ending(const uint8_t* at, const uint8_t* end) noexcept nogil:
    if end - at < 20:
        return False
    if at[4] == 1:
        return u16(at + 8) == END_TRANSACTION
    return at[4] == 0 and memcmp(at + 8, b'{"code":37,', 11) == 0


cdef bint read_request(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil:
    return read_one(at, end, request, scratch, 0)


cdef bint read_ending(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil:
    return read_one(at, end, request, scratch, END_TRANSACTION)


cdef bint read_one(
    const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch, int32_t only
) noexcept nogil:
    cdef uint32_t length, header_length
    cdef int slot
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
    for slot in range(FIELDS):
        request.fields[slot].data = NULL
        request.fields[slot].size = 0
    request.frame_size = 4 + <Py_ssize_t>length
    request.body.data = at + 8 + header_length
    request.body.size = length - 4 - header_length
    if request.is_json:
        return read_json(at + 8, at + 8 + header_length, request, scratch, only)
    return read_binary(at + 8, at + 8 + header_length, request, only)


cdef Scratch new_scratch() except *:
    cdef Scratch scratch
    scratch.used = 0
    scratch.data = <uint8_t*>malloc(SCRATCH_BYTES)
    if scratch.data == NULL:
        raise MemoryError()
    return scratch

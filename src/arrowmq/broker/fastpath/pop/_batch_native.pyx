# cython: language_level=3
"""The body of BATCH_ACK_MESSAGE, read where it lies: compact JSON, as clients write it. C for the handler of acks.

  {"acks":[{"b":"/w==","c":"G","it":60000,"pt":17…,"q":0,"r":"0","rq":3,"so":7,"t":"T"},…],"brokerName":"broker-a"}

  b the offsets as bits, in base64 and little-endian; the other names are those of `BatchAck` in `wire/bodies/clients.py`.

Whatever has another form, escapes or spaces among it, is left to the general path, which reads all of JSON.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from arrowmq.wire.in_place._request_native cimport Text, text_is, text_to_int

cdef enum:
    MOST_LETTERS = 12         # of base64, for 64 bits
    HAS_BITS = 1
    HAS_GROUP = 2
    HAS_POP_TIME = 4
    HAS_QUEUE = 8
    HAS_FLAG = 16
    HAS_REVIVE_QUEUE = 32
    HAS_START = 64
    HAS_TOPIC = 128
    HAS_ALL = 255

cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFF


cdef const uint8_t* read_text(const uint8_t* at, const uint8_t* end, Text* text) noexcept nogil:
    """A string without escapes, from its opening quote; the position behind its closing one, or NULL."""
    if at >= end or at[0] != c'"':
        return NULL
    at += 1
    text.data = at
    while at < end and at[0] != c'"':
        if at[0] == c"\\" or at[0] < 0x20:
            return NULL
        at += 1
    if at == end:
        return NULL
    text.size = at - text.data
    return at + 1


cdef const uint8_t* read_number(const uint8_t* at, const uint8_t* end, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    cdef Text text
    text.data = at
    while at < end and (c"0" <= at[0] <= c"9" or at[0] == c"-"):
        at += 1
    text.size = at - text.data
    return at if text_to_int(text, low, high, value) else NULL


cdef inline int letter_value(uint8_t letter) noexcept nogil:
    if c"A" <= letter <= c"Z":
        return letter - c"A"
    if c"a" <= letter <= c"z":
        return letter - c"a" + 26
    if c"0" <= letter <= c"9":
        return letter - c"0" + 52
    return 62 if letter == c"+" else 63 if letter == c"/" else -1


cdef bint read_bits(Text text, uint64_t* bits) noexcept nogil:
    """Up to 64 bits in base64, the first byte the lowest."""
    cdef Py_ssize_t index, letters = text.size
    cdef uint32_t group = 0
    cdef int value, filled = 0, octets = 0
    bits[0] = 0
    if text.size == 0 or text.size % 4 or text.size > MOST_LETTERS:
        return False
    while letters > text.size - 2 and text.data[letters - 1] == c"=":
        letters -= 1
    for index in range(letters):
        value = letter_value(text.data[index])
        if value < 0:
            return False
        group = group << 6 | <uint32_t>value
        filled += 6
        if filled >= 8:
            filled -= 8
            if octets == 8:
                return False
            bits[0] |= <uint64_t>(group >> filled & 255) << (8 * octets)
            octets += 1
            group &= (1 << filled) - 1
    return group == 0


cdef const uint8_t* read_part(const uint8_t* at, const uint8_t* end, BatchPart* part) noexcept nogil:
    """One object of the list, from its brace; the position behind it, or NULL."""
    cdef Text name, bits
    cdef int64_t ignored
    cdef int has = 0, is_one
    if at >= end or at[0] != c"{":
        return NULL
    while True:
        at = read_text(at + 1, end, &name)
        if at == NULL or at == end or at[0] != c":":
            return NULL
        at += 1
        is_one = 0
        if text_is(name, b"b", 1):
            is_one = HAS_BITS
            at = read_text(at, end, &bits)
            if at != NULL and not read_bits(bits, &part.bits):
                return NULL
        elif text_is(name, b"c", 1):
            is_one = HAS_GROUP
            at = read_text(at, end, &part.group)
        elif text_is(name, b"t", 1):
            is_one = HAS_TOPIC
            at = read_text(at, end, &part.topic)
        elif text_is(name, b"r", 1):
            is_one = HAS_FLAG
            at = read_text(at, end, &part.flag)
        elif text_is(name, b"q", 1):
            is_one = HAS_QUEUE
            at = read_number(at, end, 0, 0x7FFFFFFF, &part.queue_id)
        elif text_is(name, b"rq", 2):
            is_one = HAS_REVIVE_QUEUE
            at = read_number(at, end, 0, 0x7FFFFFFF, &part.revive_queue)
        elif text_is(name, b"so", 2):
            is_one = HAS_START
            at = read_number(at, end, 0, LARGEST, &part.first)
        elif text_is(name, b"pt", 2):
            is_one = HAS_POP_TIME
            at = read_number(at, end, 0, LARGEST, &part.pop_time)
        elif text_is(name, b"it", 2):
            at = read_number(at, end, -LARGEST, LARGEST, &ignored)
        else:
            return NULL
        if at == NULL or at == end or has & is_one:
            return NULL
        has |= is_one
        if at[0] == c"}":
            part.start = part.first
            return at + 1 if has == HAS_ALL else NULL
        if at[0] != c",":
            return NULL


cdef int read_batch(Text body, BatchPart* parts, int most) noexcept nogil:
    cdef const uint8_t* at = body.data
    cdef const uint8_t* end = body.data + body.size
    cdef Text name, broker
    cdef int count = 0
    cdef bint has_acks = False, has_broker = False
    if body.size < 2 or at[0] != c"{":
        return 0
    while True:
        at = read_text(at + 1, end, &name)
        if at == NULL or at == end or at[0] != c":":
            return 0
        at += 1
        if text_is(name, b"acks", 4) and not has_acks:
            has_acks = True
            if at == end or at[0] != c"[":
                return 0
            while True:
                if count == most:
                    return 0
                at = read_part(at + 1, end, &parts[count])
                if at == NULL or at == end:
                    return 0
                count += 1
                if at[0] == c"]":
                    break
                if at[0] != c",":
                    return 0
            at += 1
        elif text_is(name, b"brokerName", 10) and not has_broker:
            has_broker = True
            at = read_text(at, end, &broker)
        else:
            return 0
        if at == NULL or at == end:
            return 0
        if at[0] == c"}":
            return count if at + 1 == end else 0
        if at[0] != c",":
            return 0

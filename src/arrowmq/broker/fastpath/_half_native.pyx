# cython: language_level=3
"""Reads the properties of half messages where they lie: C for the handler of transactions, no Python interface.

Whatever is not of the plain form makes `read_properties` say no; then the general path judges the request.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from arrowmq.broker.fastpath._ordinary cimport (
    PRODUCER_GROUP, REAL_QUEUE, REAL_TOPIC, TRANSACTION_MARK, UNIQUE_KEY, UNUSUAL, WAIT, is_word
)
from arrowmq.wire.in_place._names_native cimport NameTable, number_of
from arrowmq.wire.in_place._request_native cimport Text, text_is

cdef enum:
    MAX_NAMES = 40            # a message with more properties is left to the general path
    MAX_ID = 255              # characters of a transaction's id


cdef bint read_properties(
    Text properties, NameTable known, Said* said, bint is_stored, bint may_wait
) noexcept nogil:
    """Whether the general path would take these properties of a half message just as they are, and what they say.

    It parses and writes them anew, so: every item has a name and a value and their ends, no name comes twice, none
    asks for special treatment, and all is sound UTF-8. `may_wait` says whether WAIT=false makes no difference here.
    """
    cdef Text names[MAX_NAMES]
    cdef int count = 0, index, meaning
    cdef const uint8_t* at = properties.data
    cdef const uint8_t* end = properties.data + properties.size
    cdef Text name, value
    said.unique.size = said.group.size = said.topic.size = said.queue.size = 0
    said.is_half = False
    while at < end:
        name.data = at
        while at < end and at[0] > 2:
            at += 1
        if at == end or at[0] != 1:
            return False
        name.size = at - name.data
        at += 1
        value.data = at
        while at < end and at[0] > 2:
            at += 1
        if (at == end and is_stored) or (at < end and at[0] != 2):
            return False
        value.size = at - value.data
        at += 1                          # past the end of the text too: some clients leave the last 0x02 away
        if name.size == 0 or value.size == 0 or count == MAX_NAMES:
            return False
        meaning = number_of(known, name.data, name.size)
        if meaning == UNUSUAL:
            return False
        if meaning == TRANSACTION_MARK:
            if not text_is(value, b"true", 4):
                return False
            said.is_half = True
        elif meaning == PRODUCER_GROUP:
            said.group = value
        elif meaning == REAL_TOPIC:
            said.topic = value
        elif meaning == REAL_QUEUE:
            said.queue = value
        elif meaning == UNIQUE_KEY:
            said.unique = value
        elif meaning == WAIT and not may_wait and not text_is(value, b"true", 4):
            return False
        for index in range(count):
            if names[index].size == name.size and memcmp(names[index].data, name.data, name.size) == 0:
                return False
        names[count] = name
        count += 1
    return said.is_half and said.unique.size <= MAX_ID and is_word(said.unique) and is_utf8(properties)


cdef bint is_utf8(Text text) noexcept nogil:
    """Whether decoding and encoding the text again gives the same bytes: no overlong forms, no surrogates."""
    cdef const uint8_t* at = text.data
    cdef const uint8_t* end = text.data + text.size
    cdef int more, index
    cdef uint32_t letter
    while at < end:
        if at[0] < 0x80:
            at += 1
            continue
        more = 1 if at[0] & 0xE0 == 0xC0 else 2 if at[0] & 0xF0 == 0xE0 else 3 if at[0] & 0xF8 == 0xF0 else 0
        if more == 0 or end - at <= more:
            return False
        letter = at[0] & (0x3F >> more)
        at += 1
        for index in range(more):
            if at[0] & 0xC0 != 0x80:
                return False
            letter = (letter << 6) | (at[0] & 0x3F)
            at += 1
        if letter < (0x80 if more == 1 else 0x800 if more == 2 else 0x10000):
            return False
        if letter > 0x10FFFF or 0xD800 <= letter <= 0xDFFF:
            return False
    return True


cdef bint is_ascii(Text text) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(text.size):
        if text.data[index] >= 0x80:
            return False
    return True

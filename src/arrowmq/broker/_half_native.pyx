"""Reads the properties of half messages where they lie: C for the short way of transactions, no Python interface.

Whatever is not of the plain form makes `read_properties` say no; then the request goes the general way, which judges it.
"""
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from arrowmq.broker._request_native cimport Text, text_is

cdef enum:
    MAX_NAMES = 40            # more properties than that go the general way
    MAX_ID = 255              # characters of a transaction's id


cdef bint is_unusual_name(Text name) noexcept nogil:
    """Names by which the general path bends a message, or that it sets itself. The first letter sorts most out."""
    cdef const uint8_t* at = name.data
    if name.size < 4:
        return text_is(name, b"TTL", 3)
    if at[0] == c"T":
        return not text_is(name, b"TAGS", 4) and (
            memcmp(at, b"TRAN", 4) == 0 or memcmp(at, b"TIME", 4) == 0 or memcmp(at, b"TRAC", 4) == 0
        )
    if at[0] == c"D":
        return text_is(name, b"DELAY", 5) or memcmp(at, b"DLQ_", 4) == 0 or text_is(name, b"DUP_INFO", 8)
    if at[0] == c"R":
        return memcmp(at, b"RE", 2) == 0
    if at[0] == c"I":
        return memcmp(at, b"INNE", 4) == 0
    if at[0] == c"M":
        return memcmp(at, b"MSG_", 4) == 0 or memcmp(at, b"MAX_", 4) == 0 or memcmp(at, b"MIN_", 4) == 0
    if at[0] == c"P":
        return memcmp(at, b"PGRO", 4) == 0 or memcmp(at, b"POP_", 4) == 0 or memcmp(at, b"PROP", 4) == 0
    if at[0] == c"C":
        return memcmp(at, b"CLUS", 4) == 0 or memcmp(at, b"CHEC", 4) == 0 or memcmp(at, b"CORR", 4) == 0
    if at[0] == c"B":
        return memcmp(at, b"BORN", 4) == 0
    if at[0] == c"_":
        return not text_is(name, b"__SHARDINGKEY", 13)
    return at[0] == c"1"


cdef bint is_of_stored(Text name) noexcept nogil:
    """Names that the broker itself gives a half message."""
    return (
        text_is(name, b"__transactionId__", 17) or text_is(name, b"MSG_REGION", 10) or text_is(name, b"TRACE_ON", 8)
        or text_is(name, b"CLUSTER", 7) or text_is(name, b"TRANSACTION_CHECK_TIMES", 23)
    )


cdef bint read_properties(Text properties, Said* said, bint is_stored, bint may_wait) noexcept nogil:
    """Whether the general path would take these properties of a half message just as they are, and what they say.

    It parses and writes them anew, so: every item has a name and a value and their ends, no name comes twice, none
    asks for special treatment, and all is ASCII. `may_wait` says whether WAIT=false makes no difference here.
    """
    cdef Text names[MAX_NAMES]
    cdef int count = 0, index
    cdef const uint8_t* at = properties.data
    cdef const uint8_t* end = properties.data + properties.size
    cdef Text name, value
    said.unique.size = said.group.size = said.topic.size = said.queue.size = 0
    said.is_half = False
    while at < end:
        name.data = at
        while at < end and at[0] > 2 and at[0] < 0x80:
            at += 1
        if at == end or at[0] != 1:
            return False
        name.size = at - name.data
        at += 1
        value.data = at
        while at < end and at[0] > 2 and at[0] < 0x80:
            at += 1
        if (at == end and is_stored) or (at < end and at[0] != 2):
            return False
        value.size = at - value.data
        at += 1                          # past the end of the text too: some clients leave the last 0x02 away
        if name.size == 0 or value.size == 0 or count == MAX_NAMES:
            return False
        if text_is(name, b"TRAN_MSG", 8):
            if not text_is(value, b"true", 4):
                return False
            said.is_half = True
        elif text_is(name, b"PGROUP", 6):
            said.group = value
        elif is_stored and text_is(name, b"REAL_TOPIC", 10):
            said.topic = value
        elif is_stored and text_is(name, b"REAL_QID", 8):
            said.queue = value
        elif text_is(name, b"UNIQ_KEY", 8):
            said.unique = value
        elif text_is(name, b"WAIT", 4):
            if not may_wait and not text_is(value, b"true", 4):
                return False
        elif is_unusual_name(name) and not (is_stored and is_of_stored(name)):
            return False
        for index in range(count):
            if names[index].size == name.size and memcmp(names[index].data, name.data, name.size) == 0:
                return False
        names[count] = name
        count += 1
    return said.is_half and said.unique.size <= MAX_ID and is_word(said.unique)


cdef bint is_word(Text text) noexcept nogil:
    """Letters, digits and - _ only: stands in JSON, and in a message's keys, as it is."""
    cdef Py_ssize_t index
    cdef uint8_t character
    for index in range(text.size):
        character = text.data[index]
        if not (
            c"0" <= character <= c"9" or c"A" <= character <= c"Z" or c"a" <= character <= c"z"
            or character == c"-" or character == c"_"
        ):
            return False
    return text.size > 0


cdef bint is_ascii(Text text) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(text.size):
        if text.data[index] >= 0x80:
            return False
    return True

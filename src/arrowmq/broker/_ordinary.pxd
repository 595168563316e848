# What the short ways may take as it is: names and values of properties that mean nothing to the broker.

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from arrowmq.broker._request_native cimport Text, text_is


cdef inline bint is_unusual_name(Text name) noexcept nogil:
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


cdef inline bint is_word(Text text) noexcept nogil:
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

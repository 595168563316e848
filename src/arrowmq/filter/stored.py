"""The properties of a message, read out of its record in the log without decoding the rest."""

from __future__ import annotations

import struct

from arrowmq.wire.properties import decode_properties
from arrowmq.wire.records import MAGIC_V2
from arrowmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

#  Where a stored record says how to find its properties (big endian; an IPv6 address makes a host 20 bytes, not 8)
#   4  4  magic: which of two record forms
#  36  4  sysFlag: bit 0x10 the born host, bit 0x20 the store host is an IPv6 address
#  48  .  born host, store time (8), store host, reconsume times (4), prepared transaction offset (8)
#   .  4  body length, body; topic length (1, in the second form 2), topic; properties length (2), properties
_MAGIC = struct.Struct(">i")
_SYS_FLAG = struct.Struct(">i")
_LENGTH4 = struct.Struct(">i")
_LENGTH2 = struct.Struct(">h")
_BODY_LENGTH_AT = 48 + 8 + 8 + 8 + 4 + 8


def stored_properties(record: memoryview | bytes) -> dict[str, str]:
    """The properties in a record; none if the record is cut off before them."""
    try:
        (magic,) = _MAGIC.unpack_from(record, 4)
        (sys_flag,) = _SYS_FLAG.unpack_from(record, 36)
        position = _BODY_LENGTH_AT + 12 * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
        (body_length,) = _LENGTH4.unpack_from(record, position)
        position += 4 + max(0, body_length)
        if magic == MAGIC_V2:
            position += 2 + max(0, _LENGTH2.unpack_from(record, position)[0])
        else:
            position += 1 + record[position]
        (length,) = _LENGTH2.unpack_from(record, position)
    except (struct.error, IndexError):
        return {}
    position += 2
    return decode_properties(record[position : position + max(0, length)])

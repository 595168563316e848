"""The body of a batch: many messages of one topic sent as one request.

0    4  size of the item
4    4  magic, written 0, not read
8    4  CRC, written 0, not read
12   4  flag
16 4+n  body
   2+n  properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from arrowmq.wire.errors import RecordError

_START = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
ITEM_BYTES = _START.size + _SHORT.size  # of an item without body and properties


class BatchItem(NamedTuple):
    flag: int
    body: bytes
    properties_raw: bytes


def encode_batch(items: Iterable[BatchItem | tuple[int, bytes, bytes]]) -> bytes:
    pieces: list[bytes] = []
    for flag, body, properties in items:
        if len(properties) > 32767:
            raise RecordError(f"the properties of a batch item have {len(properties)} bytes, 32767 are allowed")
        pieces += (
            _START.pack(ITEM_BYTES + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(pieces)


def decode_batch(data: bytes | bytearray | memoryview) -> list[BatchItem]:
    """The items of a batch body; any that does not fit exactly raises `RecordError`."""
    view = memoryview(data)
    items: list[BatchItem] = []
    position, limit = 0, len(view)
    while position < limit:
        if limit - position < ITEM_BYTES:
            raise RecordError(f"{limit - position} bytes are too few for a batch item", position)
        size, _, _, flag, body_length = _START.unpack_from(view, position)
        if size < ITEM_BYTES or size > limit - position:
            raise RecordError(f"the batch item claims {size} bytes, {limit - position} are there", position)
        if body_length < 0 or body_length > size - ITEM_BYTES:
            raise RecordError(f"the body of a batch item claims {body_length} bytes", position + 16)
        body_end = position + _START.size + body_length
        properties_length = _SHORT.unpack_from(view, body_end)[0]
        if properties_length != size - ITEM_BYTES - body_length:
            raise RecordError(f"the properties of a batch item claim {properties_length} bytes", body_end)
        end = position + size
        items.append(BatchItem(flag, bytes(view[body_end - body_length : body_end]), bytes(view[body_end + 2 : end])))
        position = end
    return items

"""Many records as columns, in the memory layout of Arrow, so that no object is made per record.

Numbers are arrays in the machine's byte order. Text and binary are `Column`s: count + 1 offsets (int32) into the data,
and where values may be missing a validity bitmap, least significant bit first. `pyarrow.Array.from_buffers` takes them
as they are. Text is always valid UTF-8: bytes that are not become U+FFFD, as everywhere in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.wire.records._columns_plain import Column, Columns

if TYPE_CHECKING:
    from arrowmq.wire.records import _columns_plain as _columns
else:
    _columns = native.load("arrowmq.wire.records._columns")

__all__ = ["Column", "Columns", "decode_columns"]

decode_columns = _columns.decode_columns

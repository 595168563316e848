"""Stored records: the bytes of one message in the commit log, in pulls, and in answers to queries.

The layout is at the head of `_records_plain`; the work is done there or by the native module.

In: messages, or bytes of a log. Out: a record's bytes, or a `Record` whose lengths and checksums were checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.wire.errors import RecordError

if TYPE_CHECKING:
    from arrowmq.wire.records import _records_plain as _records
    from arrowmq.wire.records._records_plain import Record
else:
    _records = native.load("arrowmq.wire.records._records")
    Record = _records.Record

__all__ = [
    "BLANK_MAGIC",
    "MAGIC_V1",
    "MAGIC_V2",
    "MIN_RECORD_BYTES",
    "Record",
    "RecordError",
    "decode_record",
    "decode_records",
    "encode_record",
    "record_bounds",
]

MAGIC_V1 = _records.MAGIC_V1
MAGIC_V2 = _records.MAGIC_V2
BLANK_MAGIC = _records.BLANK_MAGIC
MIN_RECORD_BYTES = _records.MIN_RECORD_BYTES

encode_record = _records.encode_record
decode_record = _records.decode_record
decode_records = _records.decode_records
record_bounds = _records.record_bounds

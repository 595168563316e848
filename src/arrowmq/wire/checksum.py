"""CRC32 as RocketMQ keeps it (top bit cleared), and Java's string hash, by which tags and index keys are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native

if TYPE_CHECKING:
    from arrowmq.wire import _records_plain as _records
else:
    _records = native.load("arrowmq.wire._records")

crc32 = _records.crc32
java_hash = _records.java_hash

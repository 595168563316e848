"""CRC32 as RocketMQ keeps it (top bit cleared), and Java's string hash, by which tags and index keys are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native

if TYPE_CHECKING:
    from arrowmq.wire import _checksum_plain as _checksum
else:
    _checksum = native.load("arrowmq.wire._checksum")

crc32 = _checksum.crc32
java_hash = _checksum.java_hash

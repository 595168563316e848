"""Checksum and hash in plain Python: the reference that the native module must agree with."""

from __future__ import annotations

import zlib
from array import array

Buffer = bytes | bytearray | memoryview


def crc32(data: Buffer) -> int:
    """CRC-32 with the top bit cleared, which is how RocketMQ keeps it."""
    return zlib.crc32(data) & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, signed 32 bits."""
    value = 0
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return (value ^ 0x80000000) - 0x80000000


def java_hash_of_bytes(text: bytes) -> int | None:
    """Java's hash of UTF-8 bytes, or None if they are none."""
    try:
        return java_hash(text.decode())
    except UnicodeDecodeError:
        return None

"""Bodies compressed by the sender: zlib, lz4 frames, zstd frames.

The broker stores and serves them as they are; the message's sys flag says what they are. Bit 0 alone, without type
bits, is zlib: so write old Java clients, Go and Node.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

from arrowmq.wire.errors import BodyError
from arrowmq.wire.sysflag import COMPRESSED, COMPRESSION_MASK

try:
    from isal import isal_zlib as _fast_zlib
except ImportError:
    _fast_zlib = zlib  # type: ignore[misc]

_ZlibError: type[Exception] = _fast_zlib.error  # type: ignore[assignment]  # isal's stub names an instance
MAX_BODY_BYTES = 256 * 1024 * 1024  # what a body may unpack to: sixteen times the largest frame


class CompressionType(IntEnum):
    """The values are the type bits of the sys flag, shifted down."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that a message compressed this way carries."""
        return COMPRESSED | (self.value << 8)


def compression_type(sys_flag: int) -> CompressionType | None:
    """How the body of a message with this sys flag is compressed, or None if it is not."""
    if not sys_flag & COMPRESSED:
        return None
    bits = (sys_flag & COMPRESSION_MASK) >> 8
    if bits == 0:
        return CompressionType.ZLIB
    if bits > 3:
        raise BodyError(f"sys flag {sys_flag:#x} names compression type {bits}, which does not exist")
    return CompressionType(bits)


def compress(type: CompressionType | int, data: bytes | memoryview, level: int = 5) -> bytes:
    """`data` compressed so that the Java client reads it."""
    match CompressionType(type):
        case CompressionType.ZLIB:
            return zlib.compress(data, max(-1, min(level, 9)))
        case CompressionType.LZ4:
            from arrowmq.wire.compression_frames import pack_lz4

            return pack_lz4(data, level)
        case CompressionType.ZSTD:
            from arrowmq.wire.compression_frames import pack_zstd

            return pack_zstd(data, level)


def decompress(sys_flag: int, data: bytes | memoryview, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The body as the sender had it; `data` itself if the sys flag says that it is not compressed."""
    kind = compression_type(sys_flag)
    if kind is None:
        return bytes(data)
    try:
        match kind:
            case CompressionType.ZLIB:
                unpacked, is_whole = _inflate(data, max_bytes)
            case CompressionType.LZ4:
                from arrowmq.wire.compression_frames import unpack_lz4

                unpacked, is_whole = unpack_lz4(data, max_bytes)
            case CompressionType.ZSTD:
                from arrowmq.wire.compression_frames import unpack_zstd

                unpacked, is_whole = unpack_zstd(bytes(data), max_bytes)
    except (zlib.error, _ZlibError, ValueError) as broken:
        raise BodyError(f"the body is not {kind.name}, though sys flag {sys_flag:#x} says so: {broken}") from broken
    if len(unpacked) > max_bytes:
        raise BodyError(f"the body unpacks to more than {max_bytes} bytes")
    if not is_whole:
        raise BodyError(f"the {kind.name} body is cut off after {len(data)} bytes")
    return unpacked


def _inflate(data: bytes | memoryview, max_bytes: int) -> tuple[bytes, bool]:
    reader = _fast_zlib.decompressobj()
    return reader.decompress(data, max_bytes + 1), reader.eof

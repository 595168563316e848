"""lz4 and zstd frames. Apart from `compression`, because few programs meet them and the libraries take time to load."""

from __future__ import annotations

import lz4.frame
import zstandard


def pack_lz4(data: bytes | memoryview, level: int) -> bytes:
    # lz4-java refuses frames whose blocks lean on each other.
    packed: bytes = lz4.frame.compress(data, compression_level=level, block_linked=False)
    return packed


def pack_zstd(data: bytes | memoryview, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=max(1, min(level, 22))).compress(data)


def unpack_lz4(data: bytes | memoryview, max_bytes: int) -> tuple[bytes, bool]:
    """At least what fits into `max_bytes`, and whether the frame is whole. Raises ValueError for what is no lz4."""
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        return reader.decompress(data, max_length=max_bytes + 1), reader.eof
    except RuntimeError as broken:
        raise ValueError(str(broken)) from broken


def unpack_zstd(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """The same for zstd."""
    # A streaming writer leaves the content size out, so the reader must not ask for it, and must bound what comes.
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    pieces: list[bytes] = []
    total = 0
    try:
        for start in range(0, len(data), 65536):
            if reader.eof:
                break
            piece = reader.decompress(data[start : start + 65536])
            total += len(piece)
            pieces.append(piece)
            if total > max_bytes:
                break
    except zstandard.ZstdError as broken:
        raise ValueError(str(broken)) from broken
    return b"".join(pieces), reader.eof or total > max_bytes

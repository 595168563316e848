"""Messages in a stream's data.

#  0  1  1 if the message is compressed, by the algorithm that the header grpc-encoding names
#  1  4  length, big endian
#  5     the message
"""

from __future__ import annotations

import struct
import zlib

from arrowmq.proxy.grpc.status import GrpcCode, GrpcError

PREFIX = struct.Struct(">BI")
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
#  What we can read: name → the window bits of zlib for it
ENCODINGS = {b"gzip": 31, b"deflate": 15}
ACCEPTED = b"identity,gzip,deflate"


def framed(message: bytes) -> bytes:
    return PREFIX.pack(0, len(message)) + message


def whole_message(data: bytes, limit: int) -> bytes | None:
    """The one message that this data is, if it is nothing else: what most requests are."""
    size = len(data) - 5
    if size < 0 or data[0] or int.from_bytes(data[1:5], "big") != size or size > limit:
        return None
    return data[5:]


class MessageReader:
    """Data in, messages out. Holds at most one message that is not whole."""

    __slots__ = ("_buffer", "_encoding", "_limit")

    def __init__(self, encoding: bytes = b"", limit: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = b""
        self._encoding = encoding
        self._limit = limit

    @property
    def held(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Raises `GrpcError` on what is no message."""
        buffer = self._buffer + data if self._buffer else data
        messages: list[bytes] = []
        position = 0
        end = len(buffer)
        while end - position >= 5:
            flag, length = PREFIX.unpack_from(buffer, position)
            if length > self._limit:
                raise GrpcError(
                    GrpcCode.RESOURCE_EXHAUSTED, f"a message of {length} bytes; at most {self._limit} are taken"
                )
            if end - position - 5 < length:
                break
            message = buffer[position + 5 : position + 5 + length]
            position += 5 + length
            messages.append(self._decompressed(message) if flag else message)
        self._buffer = buffer[position:] if position else buffer
        return messages

    def _decompressed(self, message: bytes) -> bytes:
        bits = ENCODINGS.get(self._encoding)
        if bits is None:
            name = self._encoding.decode("latin-1") or "nothing"
            raise GrpcError(GrpcCode.UNIMPLEMENTED, f"a compressed message, and grpc-encoding names {name}")
        inflater = zlib.decompressobj(bits)
        try:
            inflated = inflater.decompress(message, self._limit)
        except zlib.error as error:
            raise GrpcError(GrpcCode.INTERNAL, f"a message cannot be decompressed: {error}") from None
        if inflater.unconsumed_tail:
            raise GrpcError(
                GrpcCode.RESOURCE_EXHAUSTED, f"a message of more than {self._limit} bytes when decompressed"
            )
        return inflated

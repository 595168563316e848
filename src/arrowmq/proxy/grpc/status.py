"""gRPC's own statuses: of the transport and of calls that do not exist, never of what RocketMQ refuses."""

from __future__ import annotations

from enum import IntEnum
from urllib.parse import quote


class GrpcCode(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends a call with a status of gRPC."""

    def __init__(self, code: GrpcCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def encoded_message(message: str) -> bytes:
    """A status message as a header may carry it: everything that is not printable ASCII is percent-encoded."""
    return quote(message[:4096], safe=_PRINTABLE).encode("ascii")

"""Where OpenSSL writes what it encrypts: the pure-Python reference of `_outgoing_native.pyx`.

One `Outgoing` serves all encrypted connections of an endpoint, one after another: whoever lets OpenSSL write takes that
out of it before anybody else does.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress

Buffer = bytes | bytearray | memoryview


class Outgoing:
    __slots__ = ("_encrypted",)

    def __init__(self) -> None:
        self._encrypted = ssl.MemoryBIO()

    def accept(self, context: ssl.SSLContext, incoming: ssl.MemoryBIO) -> tuple[ssl.SSLObject, Line]:
        """The server's side of a connection that is read from there and writes here, and what encrypts for it."""
        tls = context.wrap_bio(incoming, self._encrypted, server_side=True)
        return tls, Line(tls)

    @property
    def pending(self) -> int:
        return self._encrypted.pending

    def take(self) -> bytes:
        """All that OpenSSL has written."""
        return self._encrypted.read()

    def send(self, handle: int) -> Buffer:
        """Write it to a socket; what the kernel did not take."""
        data = self._encrypted.read()
        with suppress(OSError):  # who has the rest tries again and finds out why
            return memoryview(data)[os.write(handle, data) :]
        return data


class Line:
    """Encrypts for one connection."""

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls

    def encrypt(self, data: Buffer) -> None:
        """All of it. Raises `ssl.SSLError` if OpenSSL does not encrypt any more."""
        view = memoryview(data)
        position, size = 0, len(view)
        while position < size:
            position += self._tls.write(view[position:])


def make_outgoing() -> Outgoing:
    return Outgoing()

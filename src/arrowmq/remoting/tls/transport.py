"""An accepted connection by TLS: between its plain transport below and the `Peer` that serves it above.

The event loop's own layer keeps OpenSSL's buffers for each connection, which grow with an answer, and takes what is
encrypted out of them as fresh memory: for answers of 160 KB, three calls of `brk` each to grow and trim the heap. Here
all connections of an endpoint share two buffers. What one reads lies in the first until OpenSSL has it; what OpenSSL
writes lies in the second (`_outgoing_plain.py`) until it is sent, and every step here that can make it write sends that
before it returns. So no bytes of one connection can meet those of another.

What is encrypted goes to the socket at once, as from an `Outbox`, and the rules of that hold: once the kernel takes no
more, what is encrypted already (of `SEND_BYTES` at most) goes to the transport below, and nothing further is encrypted
until that is gone.

A close_notify is sent before the socket closes, and the peer's is not waited for. A peer that sends one is served no
longer, like one that closes its half of a plain connection. OpenSSL itself answers a TLSv1.3 peer that changes its keys
and refuses one that wants to begin a hand-shake again.
"""

from __future__ import annotations

import ssl
from asyncio import BufferedProtocol, Transport
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from arrowmq import native
from arrowmq.clock import Clock
from arrowmq.remoting.tls._outgoing_plain import Buffer, Outgoing
from arrowmq.remoting.tls.settings import HANDSHAKE_TIMEOUT_S

RECORD_BYTES = 16 * 1024  # the most that a record carries, and what one call of OpenSSL encrypts
# Encrypted and sent at once. Pieces of 64 KiB, each sent before the next is made, cost more: more system calls.
SEND_BYTES = 16 * RECORD_BYTES
RECEIVE_BYTES = 128 * 1024


class Peer(Protocol):
    """Who is above: a buffered protocol that hears of its hand-shake too."""

    is_active: bool

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def handshake_done(self) -> None: ...

    def handshake_failed(self, reason: str) -> None: ...


class SharedBuffers:
    """What all encrypted connections of an endpoint use one after another."""

    __slots__ = ("outgoing", "received")

    def __init__(self) -> None:
        self.received = memoryview(bytearray(RECEIVE_BYTES))
        self.outgoing: Outgoing = native.load("arrowmq.remoting.tls._outgoing").make_outgoing()


class TlsTransport(Transport, BufferedProtocol):
    """A protocol of the plain transport, and the transport of its peer."""

    __slots__ = (
        "_below",
        "_call_soon",
        "_handle",
        "_handshake_timer",
        "_incoming",
        "_is_blocked",
        "_is_closing",
        "_is_handshaking",
        "_is_reading",
        "_line",
        "_outgoing",
        "_peer",
        "_received",
        "_tls",
    )

    def __init__(
        self,
        peer: Peer,
        below: Transport,
        context: ssl.SSLContext,
        shared: SharedBuffers,
        clock: Clock,
        call_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        super().__init__()
        self._peer = peer
        self._below = below
        self._handle: int = below.get_extra_info("socket").fileno()
        self._received = shared.received
        self._outgoing = shared.outgoing
        self._incoming = ssl.MemoryBIO()
        self._tls, self._line = shared.outgoing.accept(context, self._incoming)
        self._is_blocked = below.get_write_buffer_size() > 0  # it has bytes that the kernel did not take
        self._is_reading = True
        self._is_closing = False
        self._call_soon = call_soon
        self._is_handshaking = True
        self._handshake_timer = clock.call_later(HANDSHAKE_TIMEOUT_S, self._handshake_late)

    def start(self, received: bytes) -> None:
        """Begin the hand-shake with what has been read of it."""
        self._below.set_write_buffer_limits(high=0, low=0)  # it reports as soon as it holds anything
        self._below.set_protocol(self)
        self._incoming.write(received)
        self._shake_hands()

    # --- the transport below calls -----------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._peer.is_active = True
        self._incoming.write(self._received[:nbytes])
        if self._is_handshaking:
            self._shake_hands()
        else:
            self._read()

    def eof_received(self) -> None:
        if not self._is_closing:
            self._peer.eof_received()

    def pause_writing(self) -> None:
        self._is_blocked = True
        if not self._is_handshaking:
            self._peer.pause_writing()

    def resume_writing(self) -> None:
        self._is_blocked = False
        if not self._is_handshaking:
            self._peer.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_handshaking:
            self._handshake_failed(str(error) if error is not None else "the peer went away")
        self._is_closing = True
        self._peer.connection_lost(error)
        del self._peer  # each has the other: OpenSSL's memory is not to wait for the garbage collector

    # --- the hand-shake ----------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert that says why
            self._handshake_failed(str(error))
            self._below.close()
            return
        self._is_handshaking = False
        self._handshake_timer.cancel()
        self._send_encrypted()
        self._peer.handshake_done()
        if not self._is_blocked:
            self._peer.resume_writing()
        self._read()

    def _handshake_late(self) -> None:
        self._handshake_failed(f"not finished within {HANDSHAKE_TIMEOUT_S:g} s")
        self._below.abort()

    def _handshake_failed(self, reason: str) -> None:
        self._is_handshaking = False
        self._is_closing = True
        self._handshake_timer.cancel()
        self._peer.handshake_failed(reason)

    # --- in ----------------------------------------------------------------------------------------------------------

    @property
    def _has_unread(self) -> bool:
        """Something is left of what came in, although perhaps not a whole record."""
        return bool(self._incoming.pending or self._tls.pending())

    def _read(self) -> None:
        """Decrypt what came in. A peer that wants no more leaves the rest encrypted, until it reads on."""
        is_whole = True
        while is_whole and self._is_reading and not self._is_closing and self._has_unread:
            is_whole = self._read_once(self._peer.get_buffer(-1))

    def _read_once(self, view: memoryview) -> bool:
        """Fill the peer's buffer and let it process that. Whether there may be more."""
        read = self._tls.read
        filled, room = 0, len(view)
        ended: str | None = None
        is_whole = True
        try:
            while filled < room and (filled == 0 or self._has_unread):
                count = cast(int, read(room - filled, view[filled:]))
                if not count:
                    ended = "the peer closed it"
                    break
                filled += count
        except ssl.SSLWantReadError:
            is_whole = False
        except ssl.SSLError as error:
            ended = str(error)
        self._send_encrypted()  # an answer to new keys, an alert
        if filled:
            self._peer.buffer_updated(filled)
        if ended is not None and not self._is_closing:
            self._peer.eof_received()
            self.close()
        return is_whole

    def pause_reading(self) -> None:
        self._is_reading = False
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._below.resume_reading()
        if not self._is_handshaking and self._has_unread:
            self._call_soon(self._read)

    def is_reading(self) -> bool:
        return self._is_reading

    # --- out ---------------------------------------------------------------------------------------------------------

    def encrypt(self, data: Buffer) -> int:
        """Encrypt and send. Of how many bytes: of all, unless the kernel takes no more."""
        view = memoryview(data)
        position, size = 0, len(view)
        while position < size and not self._is_blocked:
            end = min(position + SEND_BYTES, size)
            try:
                self._line.encrypt(view[position:end])
                position = end
            except ssl.SSLError:
                self.pause_writing()  # nothing more can be sent
                self.abort()
            self._send_encrypted()
        return position

    def write(self, data: Buffer) -> None:
        raise TypeError("what is to be sent is given to `encrypt`, by an outbox")

    def _send_encrypted(self) -> None:
        """Send what OpenSSL has written. The next connection writes to the same place: nothing may be left there."""
        if not self._outgoing.pending:
            return
        if self._is_closing or self._is_blocked:
            left: Buffer = self._outgoing.take()
        else:
            left = self._outgoing.send(self._handle)
        if left and not self._is_closing:
            self._below.write(left)

    def get_write_buffer_size(self) -> int:
        """What is encrypted already."""
        return self._below.get_write_buffer_size()

    # --- the rest of a transport -------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the connection after what is encrypted already."""
        if self._is_closing:
            return
        if not self._is_handshaking:
            with suppress(ssl.SSLError):  # it waits for the peer's close_notify, or finds requests that nobody reads
                self._tls.unwrap()
            self._send_encrypted()
        self._is_closing = True
        self._below.close()

    def abort(self) -> None:
        self._is_closing = True
        self._below.abort()

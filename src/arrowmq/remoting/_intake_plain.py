"""Where a connection's bytes arrive: the pure-Python reference of `_intake_native.pyx`.

All connections of an endpoint are read into one buffer, which is processed before the next read. A connection keeps
only the unfinished end of what it received: `_held`, which is put before the next read, or `_large`, a buffer of its
own for a frame that is worth one. What arrived goes to `_process`, which a connection defines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrowmq.remoting.endpoint import Endpoint
    from arrowmq.remoting.outbox import Outbox
    from arrowmq.remoting.tls.transport import TlsTransport


class OutboxState:
    """How much waits in an outbox, and whether it may be passed by."""

    __slots__ = ("handle", "is_blocked", "taken_bytes", "tls", "waiting_bytes")

    def __init__(self) -> None:
        self.handle = -1  # of the socket; -1 where all goes through the transport
        self.tls: TlsTransport | None = None  # of an accepted connection that is encrypted
        self.waiting_bytes = 0
        self.taken_bytes = 0  # of all bytes ever added, those the kernel or the transport has taken
        self.is_blocked = False


class Intake:
    __slots__ = (
        "_endpoint",
        "_held",
        "_is_ending",
        "_is_fresh",
        "_is_paused",
        "_is_processing",
        "_large",
        "_large_filled",
        "_large_wanted",
        "_outbox",
        "is_active",
        "peer_bytes",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._outbox: Outbox | None = None
        self._held: bytes | memoryview = b""
        self._large: bytearray | None = None
        self._large_filled = 0
        self._large_wanted = 0
        self._is_ending = False
        self._is_fresh = endpoint.is_listening
        self._is_paused = False
        self._is_processing = False
        self.is_active = True  # since the last sweep
        self.peer_bytes: bytes | None = None  # the peer as a record carries it, once somebody has asked

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_filled : self._large_wanted]
        view = self._endpoint.receive_view
        held = len(self._held)
        if held:
            view[:held] = self._held
            return view[held:]
        return view

    def buffer_updated(self, nbytes: int) -> None:
        self.is_active = True
        large = self._large
        if large is None:
            end = len(self._held) + nbytes
            self._held = b""
            self._process(self._endpoint.receive_view[:end])
            return
        self._large_filled += nbytes
        if self._large_filled == self._large_wanted:
            self._large = None
            self._process(memoryview(large)[: self._large_wanted])
            self._endpoint.large_buffers.give_back(large)
        elif self._large_filled == len(large):
            self._large = self._endpoint.large_buffers.take(self._large_wanted, self._large_filled)
            self._large[: len(large)] = large

    def _process(self, view: memoryview, has_declined: bool = False) -> None:
        raise TypeError("a connection says what to do with its bytes")

"""What a connection still has to send: in order, without copies while the peer reads, bounded while it does not.

Buffers go to the kernel directly (one `write` or `writev` for all that has gathered). Only when the kernel takes no
more is a bounded piece copied into the event loop's transport, which then reports when it is gone; everything behind it
waits here by reference. So a record that lies in a mapped file is never copied for a peer that reads, and a peer that
does not read costs `HAND_OVER_BYTES` of copies plus references, not a copy of every answer.

The transport's limits are set so that it calls `pause_writing` as soon as it holds anything and `resume_writing` when
it holds nothing, which is exactly when the kernel can be asked again. uvloop and asyncio transports keep references to
memoryviews until they are written; because they are only ever given bytes that nobody changes (a copy, where they are
not that yet), `on_sent` can be called at hand-over. An accepted connection that is encrypted sends by its own transport
(`tls/transport.py`), which keeps to the same rules. One that we made by TLS is encrypted by the event loop, and has no
socket to write to past that (`fd` is -1): there all goes by hand-over.
"""

from __future__ import annotations

import os
from asyncio import Transport
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.remoting.tls._outgoing_plain import Buffer
from arrowmq.remoting.tls.transport import RECORD_BYTES, SEND_BYTES

if TYPE_CHECKING:
    from arrowmq.remoting._intake_plain import OutboxState
    from arrowmq.remoting.tls.transport import TlsTransport
else:
    OutboxState = native.load("arrowmq.remoting._intake").OutboxState

JOIN_BYTES = 64 * 1024  # up to here one copy is cheaper than a vector of many small pieces
HAND_OVER_BYTES = 256 * 1024
VECTOR_PIECES = 512  # below IOV_MAX (1024)


class Outbox(OutboxState):
    __slots__ = ("_buffers", "_releases", "_transport")

    def __init__(self, transport: Transport, fd: int) -> None:
        super().__init__()
        self._transport = transport
        self.handle = fd
        _report_all(transport, is_encrypted=fd < 0)
        # Lists, not deques: an empty deque takes 600 bytes, and most connections of a server are idle.
        self._buffers: list[Buffer] = []
        self._releases: list[tuple[int, Callable[[], object]]] = []

    def add(self, buffer: Buffer) -> None:
        self._buffers.append(buffer)
        self.waiting_bytes += len(buffer)

    def add_parts(self, parts: Sequence[Buffer], on_sent: Callable[[], object] | None) -> None:
        for part in parts:
            if len(part):
                self.add(part)
        if on_sent is not None:
            self._releases.append((self.taken_bytes + self.waiting_bytes, on_sent))

    def write_alone(self, frame: bytes) -> None:
        """Add and flush in one, for a frame with nothing before it."""
        if self.handle >= 0 and not (self.waiting_bytes or self.is_blocked or self._releases):
            try:
                written = os.write(self.handle, frame)
            except (BlockingIOError, InterruptedError):
                written = 0
            self.taken_bytes += written
            if written == len(frame):
                return
            self.add(memoryview(frame)[written:])
        else:
            self.add(frame)
        self.flush()

    def flush(self) -> None:
        """Hand over as much as the kernel takes. Raises OSError if the connection is broken."""
        buffers = self._buffers
        while buffers and not self.is_blocked:
            if self.tls is not None:
                self._encrypt(self.tls)
            elif self.handle < 0 or not self._write():
                self._hand_over()
        if self._releases:
            self._release(self.taken_bytes)

    def encrypt_by(self, tls: TlsTransport) -> None:
        """From now on all goes there."""
        self._transport = tls
        self.handle = -1
        self.tls = tls

    def clear(self) -> None:
        """The connection is gone: forget what waits, and release what it refers to."""
        self._buffers.clear()
        self.waiting_bytes = 0
        releases, self._releases = self._releases, []
        for _, release in releases:
            release()

    def _write(self) -> bool:
        """One system call. True if the kernel took all that was offered."""
        buffers = self._buffers
        try:
            if len(buffers) == 1:
                offered = self.waiting_bytes
                written = os.write(self.handle, buffers[0])
            elif self.waiting_bytes <= JOIN_BYTES:
                offered = self.waiting_bytes
                joined = b"".join(buffers)
                buffers.clear()
                buffers.append(joined)
                written = os.write(self.handle, joined)
            else:
                pieces = buffers[:VECTOR_PIECES]
                offered = sum(map(len, pieces))
                written = os.writev(self.handle, pieces)
        except (BlockingIOError, InterruptedError):
            return False
        self._taken(written)
        return written == offered

    def _encrypt(self, tls: TlsTransport) -> None:
        """At once what is alone or fills records by itself, else what is small joined to full records."""
        first = self._buffers[0]
        if len(self._buffers) > 1 and len(first) < RECORD_BYTES:
            first = self._first_piece(SEND_BYTES)
        self._taken(tls.encrypt(first))

    def _hand_over(self) -> None:
        piece = self._first_piece()
        self._taken(len(piece))
        self._transport.write(piece)

    def _first_piece(self, room: int = HAND_OVER_BYTES) -> bytes:
        """A bounded piece of what waits, as bytes that nobody else changes: copied only where they are not that yet."""
        first = self._buffers[0]
        is_alone = len(self._buffers) == 1 or len(first) > JOIN_BYTES
        if type(first) is bytes and is_alone and len(first) <= room:
            return first
        pieces: list[Buffer] = []
        for buffer in self._buffers:
            pieces.append(buffer if len(buffer) <= room else memoryview(buffer)[:room])
            room -= len(pieces[-1])
            if not room:
                break
        return b"".join(pieces)

    def _taken(self, count: int) -> None:
        self.taken_bytes += count
        self.waiting_bytes -= count
        buffers = self._buffers
        if not self.waiting_bytes:
            buffers.clear()
            return
        whole = 0
        while count >= len(buffers[whole]):
            count -= len(buffers[whole])
            whole += 1
        if count:
            buffers[whole] = memoryview(buffers[whole])[count:]
        del buffers[:whole]

    def _release(self, position: int) -> None:
        releases = self._releases
        while releases and releases[0][0] <= position:
            releases.pop(0)[1]()


def _report_all(transport: Transport, *, is_encrypted: bool) -> None:
    # A plain transport pauses above its high mark, an encrypted one at it: at 0 that one would pause with nothing held.
    transport.set_write_buffer_limits(high=1 if is_encrypted else 0, low=0)

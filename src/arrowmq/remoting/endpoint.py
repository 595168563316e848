"""What all connections of one server, or of one client, share.

One receive buffer for all of them: a read fills it and is processed before the next read begins, so a connection holds
memory of its own only for the unfinished end of what it received, and a silent one holds none. One sweep timer for
idle and non-reading peers. One callback at the end of a loop iteration that sends what gathered on any connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from arrowmq.clock import Clock, Timer
from arrowmq.remoting.deadlines import Deadlines
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.large_buffers import LargeBuffers
from arrowmq.remoting.tls.settings import ServerTls
from arrowmq.remoting.tls.transport import SharedBuffers
from arrowmq.wire.frames import Command

if TYPE_CHECKING:
    from arrowmq.remoting.connection import Connection

log = logging.getLogger(__name__)

FastPath = Callable[["Connection", memoryview], tuple[int, bytes | None]]
"""Is shown what came in, and says how many bytes of whole frames it has served, and the answers to them. What it leaves
goes to the handlers. One with an attribute `has_declined` says by that whether it is to be asked for the rest again."""

SWEEPS_PER_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one connection."""

    frame_bytes: int = 16_777_216  # with the length word, as Apache counts
    receive_bytes: int = 256 * 1024  # read at once
    in_flight: int = 16_384  # requests whose answer is still to come; a long-polling client has one a queue
    unsent_bytes: int = 1024 * 1024  # beyond it no further request is read
    unsent_cut_bytes: int = 256 * 1024 * 1024  # beyond it the connection ends
    idle_timeout_s: float = 120.0
    handshakes: int = 1024  # of all connections together, under way: beyond it the oldest one is cut
    unread_timeout_s: float = 60.0  # a peer that takes nothing for so long while answers wait is cut


def _is_nobodys(_answer: Command) -> bool:
    return False


class Endpoint:
    def __init__(
        self,
        handlers: HandlerTable,
        clock: Clock,
        limits: Limits,
        fast_path: FastPath | None = None,
        on_connection: Callable[[Connection], object] | None = None,
        *,
        is_listening: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        self.is_listening = is_listening
        self.tls = tls or ServerTls()
        self.handlers = handlers
        self.clock = clock
        self.limits = limits
        self.fast_path = fast_path
        self.on_connection = on_connection
        self.deadlines = Deadlines(clock)
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.handshakes: dict[Connection, None] = {}  # TLS hand-shakes under way, the oldest first
        self.receive_view = memoryview(bytearray(limits.receive_bytes))
        self.large_buffers = LargeBuffers()
        self._tls_buffers: SharedBuffers | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unflushed: list[Connection] = []
        self._sweep_timer: Timer | None = None
        #: Asked about answers that no request of a connection waits for; True if they were somebody's.
        self.stray_answer: Callable[[Command], bool] = _is_nobodys
        self.is_closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def tls_buffers(self) -> SharedBuffers:
        if self._tls_buffers is None:
            self._tls_buffers = SharedBuffers()
        return self._tls_buffers

    def opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        if self._sweep_timer is None:
            self._schedule_sweep()
        if self.on_connection is not None:
            self.on_connection(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    def handshake_began(self, connection: Connection) -> None:
        """Who does not finish its hand-shake gives way to who comes: a healthy one is done in milliseconds."""
        self.handshakes[connection] = None
        if len(self.handshakes) > self.limits.handshakes:
            oldest = next(iter(self.handshakes))
            del self.handshakes[oldest]
            oldest.abort()

    def handshake_ended(self, connection: Connection) -> None:
        self.handshakes.pop(connection, None)

    def at_turn_end(self, connection: Connection) -> None:
        """Let the connection send what it has, once, before the loop waits again."""
        if not self._unflushed:
            self.loop.call_soon(self._end_turn)
        self._unflushed.append(connection)

    def _end_turn(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            self._guard(connection, connection.turn_ended)

    def _schedule_sweep(self) -> None:
        timeout_s = min(self.limits.idle_timeout_s, self.limits.unread_timeout_s)
        self._sweep_timer = self.clock.call_later(timeout_s / SWEEPS_PER_TIMEOUT, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        if self.is_closed:
            return
        self.large_buffers.forget()
        now = self.clock.monotonic()
        for connection in list(self.connections):
            self._guard(connection, partial(connection.sweep, now))
        if self.connections:
            self._schedule_sweep()

    def _guard(self, connection: Connection, step: Callable[[], object]) -> None:
        """One connection's failure, such as that of a callback it was given, must not stop the others' turn."""
        try:
            step()
        except Exception:
            log.exception("connection aborted peer=%s", connection.peer_text)
            connection.abort()

    def close(self) -> None:
        """End every connection after what it still can send at once."""
        self.is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self.connections):
            connection.close()
        self.deadlines.close()

"""The listening side: accepts connections, watches over them, and lets them drain at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from arrowmq.clock import Clock, Timer
from arrowmq.proxy.http2.connection import Http2Connection, Streams
from arrowmq.proxy.http2.events import Limits
from arrowmq.proxy.http2.tls import ProxyTls
from arrowmq.remoting.server import BACKLOG, ListenFailed, why_not_listening

log = logging.getLogger(__name__)

SWEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may hold and how long it may be silent."""

    connections: int = 50_000
    unsent_bytes: int = 1024 * 1024  # beyond it nothing more is read of the peer
    unsent_cut_bytes: int = 64 * 1024 * 1024  # beyond it the connection ends
    unread_s: float = 60.0
    greeting_s: float = 10.0
    idle_s: float = 120.0  # without an open call, as Apache's grpcClientIdleTimeMills
    ping_after_s: float = 60.0
    ping_answer_s: float = 20.0


class Http2Server:
    """`serve` makes the object that a new connection reports the events of its streams to."""

    def __init__(
        self,
        serve: Callable[[Http2Connection], Streams],
        clock: Clock,
        *,
        tls: ProxyTls,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.serve = serve
        self.clock = clock
        self.tls = tls
        self.limits = limits or Limits()
        self.bounds = bounds or Bounds()
        self.connections: set[Http2Connection] = set()
        self._listener: asyncio.Server | None = None
        self._sweep_timer: Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def why_no_tls(self) -> str:
        return self.tls.why_not

    def tls_context(self) -> ssl.SSLContext | None:
        return self.tls.context

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        try:
            self._listener = await self.loop.create_server(
                lambda: Http2Connection(self),
                host or None,
                port,
                backlog=BACKLOG,
                reuse_address=True,
                family=socket.AF_UNSPEC if ":" in host else socket.AF_INET,
            )
        except OSError as error:
            raise ListenFailed(error.errno, why_not_listening(error, host, port)) from error
        self._schedule_sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    def opened(self, connection: Http2Connection) -> bool:
        """False if there is no place for one more."""
        if self._is_closing or len(self.connections) >= self.bounds.connections:
            return False
        self.connections.add(connection)
        return True

    def lost(self, connection: Http2Connection) -> None:
        self.connections.discard(connection)

    def _schedule_sweep(self) -> None:
        self._sweep_timer = self.clock.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = self.clock.monotonic()
        self.tls.reload()
        for connection in list(self.connections):
            try:
                connection.sweep(now)
            except Exception:
                log.exception("connection aborted peer=%s", connection.peer_text)
                connection.abort()
        self._schedule_sweep()

    def stop_listening(self) -> None:
        self._is_closing = True
        if self._listener is not None:
            self._listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self.connections):
            connection.drain()

    async def close(self, grace_s: float) -> None:
        """See all connections end; those still there after the grace are cut."""
        ended = asyncio.Event()

        def one_ended(_: Http2Connection) -> None:
            if not self.connections:
                ended.set()

        for connection in list(self.connections):
            connection.on_close(one_ended)
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await ended.wait()
        for connection in list(self.connections):
            connection.abort()

"""The listening side: accepts connections and lets the handlers answer what comes in on them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import replace

from arrowmq.clock import Clock, SystemClock
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.endpoint import Endpoint, FastPath, Limits
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.tls.settings import ServerTls

log = logging.getLogger(__name__)

BACKLOG = 1024  # as Apache's
CLOSE_GRACE_S = 2.0


class ListenFailed(OSError):
    """The port cannot be had; the text says which and what may help."""


class RemotingServer:
    """Serves one table of handlers on one port (or several: call `start` for each).

    `on_connection` is told each new connection; `Connection.on_close` tells its end.
    """

    def __init__(
        self,
        handlers: HandlerTable,
        *,
        fast_path: FastPath | None = None,
        idle_timeout_s: float | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        on_connection: Callable[[Connection], object] | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        limits = limits or Limits()
        if idle_timeout_s is not None:
            limits = replace(limits, idle_timeout_s=idle_timeout_s)
        self.handlers = handlers
        self._endpoint = Endpoint(
            handlers, clock or SystemClock(), limits, fast_path, on_connection, is_listening=True, tls=tls
        )
        self._listeners: list[asyncio.Server] = []

    @property
    def connections(self) -> Collection[Connection]:
        return self._endpoint.connections

    @property
    def port(self) -> int:
        """The port of the first listener: of use after `start(host, 0)`."""
        return int(self._listeners[0].sockets[0].getsockname()[1])

    @property
    def fast_path(self) -> FastPath | None:
        return self._endpoint.fast_path

    @fast_path.setter
    def fast_path(self, fast_path: FastPath | None) -> None:
        self._endpoint.fast_path = fast_path

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        loop = self._endpoint.loop
        listener: asyncio.Server | None = None
        try:
            listener = await loop.create_server(
                lambda: Connection(self._endpoint),
                host or None,
                port,
                backlog=BACKLOG,
                reuse_address=True,
                family=socket.AF_UNSPEC if ":" in host else socket.AF_INET,
                start_serving=False,
            )
            self._listeners.append(listener)  # before the first request, which may ask for the port
            await listener.start_serving()
        except OSError as error:
            if listener is not None:
                self._listeners.remove(listener)
                listener.close()
            raise ListenFailed(error.errno, why_not_listening(error, host, port)) from error
        return int(listener.sockets[0].getsockname()[1])

    def hang_up(self) -> None:
        """Stop listening and reading at once: no request is served after this. Answers that wait are still sent."""
        for listener in self._listeners:
            listener.close()
        self._endpoint.close()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Hang up and see all connections end; those still there after the grace are cut."""
        self.hang_up()
        ended = asyncio.Event()

        def one_ended(_: Connection) -> None:
            if not self._endpoint.connections:
                ended.set()

        for connection in list(self._endpoint.connections):
            connection.on_close(one_ended)
        if self._endpoint.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await ended.wait()
            for connection in list(self._endpoint.connections):
                connection.abort()


def why_not_listening(error: OSError, host: str, port: int) -> str:
    place = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {place}: another program uses this port; stop it or choose another port"
    if error.errno == errno.EACCES:
        return f"cannot listen on {place}: not permitted; ports below 1024 need privileges, choose a higher one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {place}: no interface here has this address; set bindAddress to 0.0.0.0"
    return f"cannot listen on {place}: {error.strerror or error}"

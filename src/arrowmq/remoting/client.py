"""The asking side: one connection an address, made when it is needed, shared by all who ask.

A connection that is lost fails what waits on it at once; the next request makes a new one. Whether to ask again, or to
ask somebody else, is for the caller to decide: only it knows whether its request may be done twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace

from arrowmq.clock import Clock, SystemClock
from arrowmq.remoting.address import parse_address
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.endpoint import Endpoint, FastPath, Limits
from arrowmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from arrowmq.remoting.handlers import Call, HandlerTable, Outcome
from arrowmq.remoting.tls.settings import OutgoingTls, context_of
from arrowmq.wire.frames import Command

CONNECT_TIMEOUT_S = 3.0


class RemotingClient:
    def __init__(
        self,
        clock: Clock | None = None,
        tls: OutgoingTls | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        limits: Limits | None = None,
        idle_timeout_s: float | None = None,
        sign: Callable[[Command], object] | None = None,
    ) -> None:
        limits = limits or Limits()
        if idle_timeout_s is not None:
            limits = replace(limits, idle_timeout_s=idle_timeout_s)
        self._tls = tls
        self._sign = sign  # puts the fields of a signature into a request
        self._connect_timeout_s = connect_timeout_s
        self._callbacks = HandlerTable()
        self._endpoint = Endpoint(self._callbacks, clock or SystemClock(), limits)
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}

    def on_request(self, code: int, callback: Callable[[Call], Outcome]) -> None:
        """Answer requests of this code that a server sends on our own connection."""
        self._callbacks.add_callback(code, callback)

    def watch_answers(
        self,
        fast_path: FastPath,
        stray_answer: Callable[[Command], bool],
        lost: Callable[[Connection], object],
    ) -> None:
        """For who writes requests by itself and keeps its own book of them, with opaques above `MAX_OPAQUE`.

        `fast_path` sees received bytes first, `stray_answer` the answers that nobody else waits for, and `lost` each
        connection that has ended.
        """
        self._endpoint.fast_path = fast_path
        self._endpoint.stray_answer = stray_answer
        self._endpoint.on_connection = lambda connection: connection.on_close(lost)

    def use_tls(self, tls: OutgoingTls | None) -> None:
        """Encrypt connections that are made from now on, or stop doing so."""
        self._tls = tls

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Ask and wait. Raises ConnectFailed, RequestTimeout or ConnectionLost; any answer code is an answer."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            started = self._endpoint.clock.monotonic()
            connection = await self.connect(address, timeout_s)
            timeout_s -= self._endpoint.clock.monotonic() - started
            if timeout_s <= 0:
                raise RequestTimeout(address, f"{address} accepted the connection too late to ask it in time")
        if self._sign is not None:
            self._sign(command)
        return await connection.request(command, timeout_s)

    async def invoke_oneway(self, address: str, command: Command, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Send without an answer; returns when the frame is on its way, not when it has arrived.

        Waits only where much is on its way that the peer has not taken yet.
        """
        connection = await self.connect(address, timeout_s)
        if self._sign is not None:
            self._sign(command)
        connection.send_oneway(command)
        await connection.drain()

    async def connect(self, address: str, timeout_s: float | None = None) -> Connection:
        """The connection to this address, made if there is none."""
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._endpoint.is_closed:
            raise ConnectFailed(address, f"{address} was not asked: this client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(self._dial(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._dialled(address, done))
        if timeout_s is None or timeout_s >= self._connect_timeout_s:
            return await asyncio.shield(task)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise ConnectFailed(address, f"{address} did not accept a connection within {timeout_s:g} s") from None

    def connection(self, address: str) -> Connection | None:
        """The open connection to this address, if there is one."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    def disconnect(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """End all connections; what still waits on them fails with ConnectionLost."""
        for task in list(self._connecting.values()):
            task.cancel()
        self._endpoint.close()
        for connection in list(self._endpoint.connections):
            connection.abort()
        self._connections.clear()
        await asyncio.sleep(0)  # lets the transports report their end

    async def _dial(self, address: str) -> Connection:
        connection = await self.dial(address)
        self._connections[address] = connection
        connection.on_close(lambda closed: self._lost(address, closed))
        return connection

    async def dial(self, address: str) -> Connection:
        """A connection of its own, that nobody else is given: for who speaks in another's name."""
        host, port = parse_address(address)
        context = context_of(self._tls)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await self._endpoint.loop.create_connection(
                    lambda: Connection(self._endpoint),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context is not None else None,
                )
        except TimeoutError:
            message = f"{address} did not accept a connection within {self._connect_timeout_s:g} s"
            raise ConnectFailed(address, message) from None
        except OSError as error:
            reason = _reason(error, by_tls=self._tls is not None)
            raise ConnectFailed(address, f"cannot connect to {address}: {reason}") from error
        if connection.closed:
            raise ConnectionLost(address, f"{address} closed the connection at once")
        connection.name = address
        return connection

    def _dialled(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # whoever still waits has it; nobody waiting is no reason for a warning

    def _lost(self, address: str, closed: Connection) -> None:
        if self._connections.get(address) is closed:
            del self._connections[address]


def _reason(error: OSError, *, by_tls: bool) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if by_tls and isinstance(error, ConnectionError):
        return "the TLS handshake was cut off: does it speak TLS?"
    return error.strerror or str(error) or type(error).__name__

"""A gRPC server on this event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from arrowmq.clock import Clock
from arrowmq.proxy.grpc.framing import MAX_MESSAGE_BYTES
from arrowmq.proxy.grpc.methods import Method, MethodTable
from arrowmq.proxy.grpc.standard import Health, Reflection
from arrowmq.proxy.grpc.streams import GrpcStreams
from arrowmq.proxy.http2.connection import Http2Connection
from arrowmq.proxy.http2.events import Limits
from arrowmq.proxy.http2.server import Bounds, Http2Server
from arrowmq.proxy.http2.tls import ProxyTls

DRAIN_S = 5.0


class GrpcServer:
    def __init__(
        self,
        clock: Clock,
        *,
        tls: ProxyTls | None = None,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._max_message_bytes = max_message_bytes
        self.methods = MethodTable()
        self.health = Health(self.methods)
        self.methods.add(*self.health.methods(), *Reflection(self.methods).methods())
        self._tasks: set[asyncio.Task[Any]] = set()
        self._http2 = Http2Server(
            self._streams, clock, tls=tls or ProxyTls(mode="disabled"), limits=limits, bounds=bounds
        )
        self.port = 0

    def add(self, *methods: Method) -> None:
        self.methods.add(*methods)

    @property
    def connections(self) -> set[Http2Connection]:
        return self._http2.connections

    def _streams(self, connection: Http2Connection) -> GrpcStreams:
        return GrpcStreams(connection, self.methods, self._tasks, self._max_message_bytes)

    async def start(self, host: str, port: int) -> int:
        self.port = await self._http2.start(host, port)
        return self.port

    def drain(self) -> None:
        """Take no new connections and calls; those that are there are still answered."""
        self.health.drain()
        self._http2.stop_listening()

    async def stop(self, grace_s: float = DRAIN_S) -> None:
        self.drain()
        await self._http2.close(grace_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

"""A proxy: the gRPC server, the service, and the back behind it, as one component of a node."""

from __future__ import annotations

import logging

from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.grpc.server import GrpcServer
from arrowmq.proxy.http2.server import Bounds
from arrowmq.proxy.http2.tls import ProxyTls
from arrowmq.proxy.service.messaging import SERVICE, UNSERVED, MessagingService
from arrowmq.remoting.address import advertised_host, format_address
from arrowmq.remoting.server import ListenFailed

log = logging.getLogger(__name__)


class Proxy:
    name = "proxy"

    def __init__(self, config: ProxyConfig, back: Back, clock: Clock, *, is_optional: bool = False) -> None:
        self.config = config
        self.back = back
        self._is_optional = is_optional
        self.service = MessagingService(config, back, clock)
        self.tls = ProxyTls(
            mode=config.tls_server_mode.strip().lower(),
            certificate=config.tls_cert_path,
            key=config.tls_key_path,
            password=config.tls_key_password,
            is_test=config.tls_test_mode_enable,
        )
        bounds = Bounds(idle_s=config.grpc_client_idle_time_mills / 1000)
        self.server = GrpcServer(
            clock, tls=self.tls, bounds=bounds, max_message_bytes=config.grpc_max_inbound_message_size
        )
        self.server.add(*self.service.methods())
        self.server.methods.unserved |= {f"/{SERVICE}/{name}".encode() for name in UNSERVED}

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        """Where clients reach it."""
        if self.config.grpc_advertised_address:
            return self.config.grpc_advertised_address
        return format_address(advertised_host("", self.config.bind_address), self.port)

    async def start(self) -> None:
        await self.service.start()
        try:
            self.service.routing.port = await self.server.start(self.config.bind_address, self.config.grpc_server_port)
        except ListenFailed as taken:
            await self.service.stop()
            if not self._is_optional:
                raise
            log.warning("no gRPC clients are served: %s (--proxy-port N chooses another, --no-proxy none)", taken)
        except BaseException:
            await self.service.stop()
            raise

    async def stop(self) -> None:
        """Take nothing new, let what runs end, then go."""
        if not self.port:
            return
        self.server.drain()
        await self.service.drain()
        await self.server.stop(min(self.config.grpc_shutdown_time_seconds, 5))
        await self.service.stop()

"""Where a broker listens: on its port and, for clients of the 4.x line, on the "VIP" port two below it.

A broker is handed its ports as it is handed its clock and its disk. One that is given none listens nowhere: its
services are called from inside the process, or somebody else listens and serves its `handlers`.
"""

from __future__ import annotations

import asyncio
import logging

from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.remoting.endpoint import FastPath
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import ListenFailed, RemotingServer
from arrowmq.remoting.tls.settings import ServerTls
from arrowmq.wire.codes import RequestCode

log = logging.getLogger(__name__)

VIP_OFFSET = 2
# Apache's VIP port does not know these; a client that asks for them there gets the same refusal from us.
MAIN_PORT_ONLY = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)
MAIN_PORT = "at this port: ask at the main one, two above it"


class BrokerPorts:
    def __init__(self, clock: Clock, tls: ServerTls | None = None) -> None:
        self._clock = clock
        self._tls = tls
        self.main: RemotingServer | None = None
        self.vip: RemotingServer | None = None

    async def open(self, config: BrokerConfig, handlers: HandlerTable) -> int:
        """Listen; returns the port. A broker does without its VIP port if that is taken."""
        self.main = self._server(config, handlers)
        port = await self.main.start(config.bind_address, config.listen_port)
        self.vip = self._server(config, handlers.without(MAIN_PORT_ONLY, MAIN_PORT))
        if config.listen_port > VIP_OFFSET:
            try:
                await self.vip.start(config.bind_address, port - VIP_OFFSET)
            except ListenFailed as error:
                log.warning("no VIP port, clients before 4.9 need vipChannelEnabled=false reason=%s", error.strerror)
        return port

    def _server(self, config: BrokerConfig, handlers: HandlerTable) -> RemotingServer:
        idle_s = config.server_channel_max_idle_time_seconds
        return RemotingServer(handlers, idle_timeout_s=idle_s, clock=self._clock, tls=self._tls)

    def use(self, fast_path: FastPath | None, vip_fast_path: FastPath | None) -> None:
        """What is asked before the handlers, at each port."""
        if self.main is not None and self.vip is not None:
            self.main.fast_path, self.vip.fast_path = fast_path, vip_fast_path

    async def close(self) -> None:
        """No request is served from the moment of this call on."""
        servers = [server for server in (self.main, self.vip) if server is not None]
        for server in servers:
            server.hang_up()
        await asyncio.gather(*(server.close() for server in servers))

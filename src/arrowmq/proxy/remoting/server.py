"""The listening side for remoting clients, as a component of a proxy before a cluster.

remotingListenPort      8080, as Apache's; 0 takes a free one, -1 none
remotingProxyProtocol   false; true: brokers are told each client's own address by a PROXY line, which Apache's
                        understand since 5.1
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from arrowmq.clock import Clock
from arrowmq.config import ConfigError
from arrowmq.proxy.backs.cluster import ClusterBack
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.http2.tls import ProxyTls
from arrowmq.proxy.remoting.directory import Directory
from arrowmq.proxy.remoting.link import LINK, ClientLink
from arrowmq.proxy.remoting.message_types import MessageTypes
from arrowmq.proxy.remoting.relay import relay_requests
from arrowmq.proxy.remoting.requests import ClientRequests
from arrowmq.proxy.remoting.told_address import ToldAddress
from arrowmq.proxy.remoting.users import RemotingUsers
from arrowmq.remoting.address import advertised_host, format_address
from arrowmq.remoting.answer_times import AnswerTimes
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.endpoint import Limits
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import ListenFailed, RemotingServer
from arrowmq.remoting.tls.settings import ServerTls

log = logging.getLogger(__name__)

# Answers are copies here, not references to a store's files: a client that does not read is cut earlier.
CLIENT_LIMITS = Limits(in_flight=4096, unsent_cut_bytes=64 * 1024 * 1024)
NOT_HERE = (
    "a proxy passes on what producers and consumers ask; administrators connect to the NameServer and the brokers"
)


class RemotingProxy:
    name = "remoting proxy"

    def __init__(
        self,
        config: ProxyConfig,
        back: ClusterBack,
        clock: Clock,
        tls: ProxyTls,
        *,
        is_optional: bool = False,
        on_ready: Callable[[str], object] = lambda line: None,
    ) -> None:
        self.config = config
        self.port = 0
        self._is_optional, self._on_ready, self._clock = is_optional, on_ready, clock
        refresh_s = float(config.topic_route_service_cache_refresh_seconds)
        self.directory = Directory(back.session, clock, refresh_s)
        self.directory.on_move.append(self._moved)
        outgoing = back.session.options.tls
        if outgoing is not None and config.remoting_proxy_protocol:
            raise ConfigError(
                "remotingProxyProtocol=true: brokers take a PROXY line on plain connections, without tls.enable"
            )
        self.remoting = RemotingClient(clock, tls=outgoing)
        relay_requests(self.remoting)
        self._ports = config.broker_ports
        types_s = float(config.topic_config_cache_refresh_seconds)
        types = MessageTypes(back, clock, types_s) if config.enable_topic_message_type_check else None
        self.told = ToldAddress(config, self._ports)
        self.requests = ClientRequests(self.directory, self.told, types)
        self.answer_times = AnswerTimes()
        self.handlers = HandlerTable(self.requests, times=self.answer_times, server="this proxy", otherwise=NOT_HERE)
        if back.access.settings.is_on:
            self.handlers.hooks.add(RemotingUsers(back.access, back.users, self.handlers).check)
        self.server = RemotingServer(
            self.handlers,
            limits=CLIENT_LIMITS,
            clock=clock,
            on_connection=self._connected,
            tls=cast(ServerTls, tls),  # the mode and the context of the gRPC port, renewed with it
        )
        self._port_brokers: dict[int, str] = {}

    @property
    def address(self) -> str:
        """Where clients reach it."""
        if self.config.remoting_advertised_address:
            return self.config.remoting_advertised_address
        host = advertised_host(self.config.remoting_access_addr, self.config.bind_address)
        return format_address(host, self.port)

    @property
    def links(self) -> list[ClientLink]:
        return [connection.attributes[LINK] for connection in list(self.server.connections)]

    async def start(self) -> None:
        await self.directory.start()
        host = self.config.bind_address
        try:
            self._port_brokers = {port: broker for broker, port in self._ports.items()}
            self.port = self.requests.port = await self.server.start(host, self.config.remoting_listen_port)
            for port in self._port_brokers:
                await self.server.start(host, port)
        except ListenFailed as taken:
            if not self._is_optional or self.port:
                await self.stop()
                raise
            log.warning("no remoting clients are served: %s (--remoting-port N chooses another)", taken)
            return
        self._on_ready(f"remoting proxy at {self.address}")

    async def stop(self) -> None:
        """Let what runs end, then hang up; clients go to another proxy, or come back."""
        await self.server.close()
        await self.remoting.close()

    def _connected(self, client: Connection) -> None:
        ClientLink(
            client,
            self.remoting,
            self.directory,
            self._clock,
            port_broker=self._port_brokers.get(client.local[1], ""),
            elsewhere=self._ports,
            sends_proxy_line=self.config.remoting_proxy_protocol,
        )

    def _moved(self, broker: str, address: str) -> None:
        for link in self.links:
            link.moved(broker, address)

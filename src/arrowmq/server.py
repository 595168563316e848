"""A node: a NameServer, a broker, or both, put together on one event loop.

    node = build_node(directory, {"brokerName": "broker-a"}, namesrv_port=9876, broker_port=10911)
    await node.start()          # clients can connect, and the broker is in the route
    await node.stop()           # out of the routes, everybody answered, everything persisted

The directory is the broker's store (what Apache calls storePathRootDir); the NameServer's own file lies in `namesrv/`
under it. A broker listens on its port and, for clients of the 4.x line, on the "VIP" port two below it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arrowmq.clock import Clock, SystemClock
from arrowmq.config import ConfigError
from arrowmq.remoting.address import format_address
from arrowmq.remoting.endpoint import Limits
from arrowmq.remoting.server import ListenFailed, RemotingServer
from arrowmq.remoting.tls import ServerTls, client_tls, server_tls
from arrowmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from arrowmq.broker import Broker, BrokerConfig
    from arrowmq.metrics.page import MetricsPage
    from arrowmq.namesrv.config import NamesrvConfig
    from arrowmq.namesrv.node import NameServer
    from arrowmq.store.disk import Disk

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
REGISTER_RETRY_S = 1.0


class Node:
    def __init__(
        self,
        *,
        namesrv: NamesrvConfig | None = None,
        broker: BrokerConfig | None = None,
        store_root: Path | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        tls: ServerTls | None = None,
        outgoing_tls: ssl.SSLContext | None = None,
    ) -> None:
        if namesrv is None and broker is None:
            raise ConfigError("a node is a NameServer, a broker or both: neither was asked for")
        if broker is not None and store_root is None:
            raise ConfigError("a broker needs a directory for its store")
        self._clock = clock or SystemClock()
        self._namesrv_config = namesrv
        self._broker_config = broker
        self._store_root = store_root
        self._disk = disk
        self._tls = tls
        self._outgoing_tls = outgoing_tls
        self.namesrv: NameServer | None = None
        self.broker: Broker | None = None
        self.metrics: MetricsPage | None = None
        self._servers: list[RemotingServer] = []

    @property
    def namesrv_address(self) -> str:
        """Where this node's NameServer is reached from this machine; of a lone broker, the NameServers it was given."""
        if self.namesrv is None:
            return "" if self._broker_config is None else self._broker_config.namesrv_addr
        host = self.namesrv.config.bind_address
        return format_address("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, self.namesrv.port)

    @property
    def broker_address(self) -> str:
        """What the broker advertises in routes."""
        return "" if self.broker is None else self.broker.address.text

    async def start(self) -> None:
        """Returns when clients can connect and the broker is in the route of at least one NameServer."""
        try:
            if self._namesrv_config is not None:
                await self._start_namesrv(self._namesrv_config)
            if self._broker_config is not None:
                await self._start_broker(self._broker_config)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """The reverse of `start`; also of one that got only half-way."""
        metrics, self.metrics = self.metrics, None
        if metrics is not None:
            await metrics.stop()
        broker, self.broker = self.broker, None
        if broker is not None:
            # The store closes in the last step of the broker's stop, and the connections end in the same turn of the
            # loop: no request can come between.
            await broker.stop()
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.close() for server in servers))
        namesrv, self.namesrv = self.namesrv, None
        if namesrv is not None:
            await namesrv.stop()

    async def _start_namesrv(self, config: NamesrvConfig) -> None:
        from arrowmq.namesrv.node import NameServer

        namesrv = NameServer(config, self._clock, tls=self._tls, outgoing_tls=self._outgoing_tls)
        await namesrv.start()
        self.namesrv = namesrv

    async def _start_broker(self, config: BrokerConfig) -> None:
        from arrowmq.broker import Broker

        if self.namesrv is not None and not config.namesrv_addr:
            config.namesrv_addr = self.namesrv_address
        if not config.namesrv_addr:
            raise ConfigError("the broker knows no NameServer: give it one with -n HOST:PORT or namesrvAddr")
        assert self._store_root is not None
        broker = Broker(config, self._store_root, self._clock, self._disk)
        broker.remoting.use_tls(self._outgoing_tls)
        broker.open()
        self.broker = broker
        limits = replace(Limits(), idle_timeout_s=config.server_channel_max_idle_time_seconds)
        main, vip = self._servers = [
            RemotingServer(handlers, limits=limits, clock=self._clock, tls=self._tls)
            for handlers in (broker.handlers, broker.handlers.without(MAIN_PORT_ONLY, MAIN_PORT))
        ]
        port = await main.start(config.bind_address, config.listen_port)
        if config.listen_port > VIP_OFFSET:
            try:
                await vip.start(config.bind_address, port - VIP_OFFSET)
            except ListenFailed as error:
                log.warning("no VIP port, clients before 4.9 need vipChannelEnabled=false reason=%s", error.strerror)
        config.listen_port = port
        await broker.start(port)
        main.fast_path, vip.fast_path = broker.fast_path, broker.vip_fast_path
        if config.metrics_exporter_type.upper() == "PROM":
            await self._start_metrics(broker, config)
        await self._wait_for_registration(broker)

    async def _start_metrics(self, broker: Broker, config: BrokerConfig) -> None:
        from arrowmq.metrics.page import MetricsPage

        self.metrics = MetricsPage(broker)
        await self.metrics.start(config.metrics_prom_exporter_host, config.metrics_prom_exporter_port)

    async def _wait_for_registration(self, broker: Broker) -> None:
        is_told = False
        while not any(name_server.is_registered for name_server in broker.registration.name_servers):
            if not is_told:
                is_told = True
                log.warning(
                    "waiting for a NameServer addresses=%s: none of them has accepted this broker yet",
                    broker.config.namesrv_addr,
                )
            await self._clock.sleep(REGISTER_RETRY_S)
            await broker.registration.register_all()


def build_node(
    directory: Path | str,
    properties: Mapping[str, str] | None = None,
    *,
    namesrv_port: int | None = None,
    broker_port: int | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> Node:
    """A node from properties as Apache names them; a port of None leaves that part out, 0 takes a free one."""
    properties = dict(properties or {})
    directory = Path(directory)
    known: set[str] = set()
    namesrv = broker = None
    if namesrv_port is not None:
        from arrowmq.namesrv.config import NamesrvConfig

        own = {
            "kvConfigPath": str(directory / "namesrv" / "kvConfig.json"),
            "configStorePath": str(directory / "namesrv" / "namesrv.properties"),
            **properties,
            "listenPort": str(namesrv_port),
        }
        namesrv, unknown = NamesrvConfig.from_properties(own)
        known |= own.keys() - set(unknown)
    if broker_port is not None:
        from arrowmq.broker import BrokerConfig
        from arrowmq.store.config import StoreConfig, apache_key

        broker = BrokerConfig.from_properties(
            {**properties, "listenPort": str(broker_port), "storePathRootDir": str(directory)}
        )
        known |= set(properties) - set(broker.ignored(apache_key(field.name) for field in fields(StoreConfig)))
    without_effect = sorted(key for key in properties.keys() - known if not key.startswith("tls."))
    if without_effect:
        log.info("settings without effect here: %s", ", ".join(without_effect))
    return Node(
        namesrv=namesrv,
        broker=broker,
        store_root=directory,
        clock=clock,
        disk=disk,
        tls=server_tls(properties),
        outgoing_tls=client_tls(properties),
    )

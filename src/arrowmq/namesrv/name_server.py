"""A running NameServer: the tables, the port they are asked on, and the scan for brokers that have gone silent."""

from __future__ import annotations

import logging
from pathlib import Path

from arrowmq import refusals
from arrowmq.auth.admin import UserAdmin
from arrowmq.auth.guard import Guard
from arrowmq.clock import Clock, SystemClock, Timer
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.kvconfig import KvConfig
from arrowmq.namesrv.retry_routes import RetryRoutes
from arrowmq.namesrv.service import BrokerRequests, RouteRequests, ToolRequests
from arrowmq.namesrv.tables import RouteTables
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import RemotingServer
from arrowmq.remoting.tls.settings import OutgoingTls, ServerTls

log = logging.getLogger(__name__)


class NameServer:
    name = "NameServer"

    def __init__(
        self,
        config: NamesrvConfig,
        clock: Clock | None = None,
        *,
        tls: ServerTls | None = None,
        outgoing_tls: OutgoingTls | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self.tables = RouteTables(config, self._clock)
        self.kv_config = KvConfig(Path(config.kv_config_path))
        self.guard = guard
        self._remoting = RemotingClient(self._clock, outgoing_tls, sign=None if guard is None else guard.sign)
        self.retry_routes = RetryRoutes()
        self._broker_requests = BrokerRequests(config, self.tables, self.kv_config, self.retry_routes, self._remoting)
        self.handlers = HandlerTable(
            self._broker_requests,
            RouteRequests(config, self.tables, self.kv_config, self.retry_routes, self._clock),
            ToolRequests(config, self.tables, self.kv_config),
            *(() if guard is None else (UserAdmin(guard),)),
            server="this NameServer",
            otherwise=refusals.OF_NO_NAME_SERVER,
        )
        if guard is not None:
            guard.watch(self.handlers.hooks)
        self._server = RemotingServer(
            self.handlers,
            idle_timeout_s=config.server_channel_max_idle_time_seconds,
            clock=self._clock,
            on_connection=self._connected,
            tls=tls,
        )
        self._scan_timer: Timer | None = None

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> int:
        """Load the key-value configuration, listen, scan. Returns the port."""
        self.kv_config.load()
        if self.guard is not None:
            self.guard.load()
        port = await self._server.start(self.config.bind_address, self.config.listen_port)
        self._schedule_scan()
        return port

    async def stop(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        await self._server.close()
        await self._remoting.close()

    def _connected(self, connection: Channel) -> None:
        connection.on_close(self._disconnected)

    def _disconnected(self, connection: Channel) -> None:
        for key, live in self.tables.live.items():
            if live.connection is connection:
                log.warning("broker left name=%s address=%s reason=its connection ended", live.broker_name, key.address)
        self._broker_requests.notify(self.tables.unregister_connection(connection))

    def _schedule_scan(self) -> None:
        self._scan_timer = self._clock.call_later(self.config.scan_not_active_broker_interval / 1000, self._scan)

    def _scan(self) -> None:
        self.scan()
        self._schedule_scan()

    def scan(self) -> None:
        """Take out brokers that were not heard for longer than they promised."""
        for key, live in self.tables.expired():
            silent_s = live.heartbeat_timeout_ms // 1000
            log.warning(
                "broker left name=%s address=%s reason=not heard for %d s", live.broker_name, key.address, silent_s
            )
            why = f"was not heard for {silent_s} s and was taken out"
            self._broker_requests.notify(self.tables.unregister([key], why))
            if live.connection is not None:
                live.connection.close()

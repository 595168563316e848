"""Registration: every NameServer is told which topics this broker serves, in full every 30 s and at once on a change.

One registration at a time goes to each NameServer; what changes meanwhile goes out with the next. A NameServer that
cannot be reached costs the others nothing and is told everything when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.settings.config import READ, WRITE, BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from arrowmq.wire.checksum import crc32
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import RegisterBrokerResult, decode_header

log = logging.getLogger(__name__)

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
UNREGISTER_TIMEOUT_S = 3.0
SETTLE_S = 1.0
RETRY_S = 1.0


class NameServer:
    """What one NameServer has been told, and what it still has to be told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_registered = False
        self.needs_all = True
        self.changed: set[str] = set()
        self.turn: asyncio.Task[None] | None = None
        self.complained = False


class Registration:
    def __init__(
        self, config: BrokerConfig, address: BrokerAddress, topics: Topics, remoting: RemotingClient, clock: Clock
    ) -> None:
        self.config = config
        self.address = address
        self.topics = topics
        self.remoting = remoting
        self.clock = clock
        self.name_servers: list[NameServer] = []
        self._timer: Timer | None = None
        self._is_running = False
        self._is_held = False
        self._whole_table: tuple[DataVersion, int, bytes] | None = None
        self.on_answer: list[Callable[[RegisterBrokerResult], object]] = []
        topics.on_change.append(self.topics_changed)

    @property
    def is_running(self) -> bool:
        """Whether NameServers have heard of this broker, or were tried."""
        return self._is_running

    @property
    def is_registered(self) -> bool:
        """Whether this broker is in the routes of every NameServer it has been given."""
        return all(name_server.is_registered for name_server in self.name_servers)

    @property
    def period_s(self) -> float:
        return min(max(self.config.register_name_server_period, SHORTEST_PERIOD_MS), LONGEST_PERIOD_MS) / 1000

    def hold(self) -> None:
        """Nobody hears of this broker before `release`: what it is, is not decided yet."""
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self.register_soon()

    async def start(self) -> None:
        """Registers with all NameServers; returns when each has answered or has failed to."""
        self._is_running = True
        self.name_servers = [NameServer(address) for address in self.config.namesrv_addresses]
        await self.register_all()
        self._timer = self.clock.call_later(SHORTEST_PERIOD_MS / 1000, self._periodic)

    def _periodic(self) -> None:
        for name_server in self.name_servers:
            name_server.needs_all = True
            self._notify(name_server)
        self._timer = self.clock.call_later(self.period_s, self._periodic)

    async def register_all(self) -> None:
        """A full registration now."""
        turns = []
        for name_server in self.name_servers:
            name_server.needs_all = True
            turns.append(self._notify(name_server))
        await asyncio.gather(*turns, return_exceptions=True)

    def register_soon(self) -> None:
        """A full registration without waiting for it: this broker is not what it was."""
        if self._is_running:
            for name_server in self.name_servers:
                name_server.needs_all = True
                self._notify(name_server)

    async def accepted(self) -> None:
        """Returns when this broker is in the route of at least one NameServer."""
        is_said = False
        while not any(name_server.is_registered for name_server in self.name_servers):
            if not is_said:
                is_said = True
                log.warning(
                    "waiting for a NameServer addresses=%s: none of them has accepted this broker yet",
                    self.config.namesrv_addr,
                )
            await self.clock.sleep(RETRY_S)
            await self.register_all()

    async def settled(self) -> None:
        """Returns when every NameServer knows of all changes up to now, or has not answered for a moment."""
        turns = [each.turn for each in self.name_servers if each.turn is not None and not each.turn.done()]
        if turns:
            await asyncio.wait(turns, timeout=SETTLE_S)

    def topics_changed(self, changed: list[TopicConfig]) -> None:
        """New or altered topics go out alone; without names (a topic was deleted) everything does."""
        if not self._is_running:
            return
        for name_server in self.name_servers:
            if changed:
                name_server.changed.update(topic.topic_name for topic in changed)
            else:
                name_server.needs_all = True
            self._notify(name_server)

    def _notify(self, name_server: NameServer) -> asyncio.Task[None]:
        if name_server.turn is None or name_server.turn.done():
            name_server.turn = asyncio.ensure_future(self._register(name_server))
        return name_server.turn

    async def _register(self, name_server: NameServer) -> None:
        """Registers with one NameServer until there is nothing new left."""
        while self._is_running and not self._is_held and (name_server.needs_all or name_server.changed):
            # A NameServer that does not know this broker refuses to learn of it by a single topic.
            whole = name_server.needs_all or not name_server.is_registered
            names, name_server.changed = name_server.changed, set()
            name_server.needs_all = False
            try:
                await self._send(name_server, None if whole else names)
            except (RemotingError, WireError, OSError) as failure:
                name_server.is_registered = False
                name_server.needs_all = True
                if not name_server.complained:
                    log.warning(
                        "NameServer %s: registration failed, will be repeated: %s", name_server.address, failure
                    )
                name_server.complained = True
                return

    async def _send(self, name_server: NameServer, names: set[str] | None) -> None:
        body = self._body(names)
        header = {
            "brokerName": self.config.broker_name,
            "brokerAddr": self.address.text,
            "clusterName": self.config.broker_cluster_name,
            "haServerAddr": f"{self.config.broker_ip2 or self.address.host}:{self.config.ha_port}",
            "brokerId": str(self.config.broker_id),
            "enableActingMaster": "true" if self.config.enable_slave_acting_master else "false",
            **self._heartbeat_timeout(),
            "compressed": "false",
            "bodyCrc32": str(crc32(body)),
        }
        command = Command.request(RequestCode.REGISTER_BROKER, header, body)
        answer = await self.remoting.invoke(
            name_server.address, command, self.config.register_broker_timeout_mills / 1000
        )
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(name_server.address, f"it refuses with code {answer.code}: {answer.remark}")
        if not name_server.is_registered:
            log.info(
                "registered with NameServer %s as %s at %s",
                name_server.address,
                self.config.broker_name,
                self.address.text,
            )
        name_server.is_registered = True
        name_server.complained = False
        result = decode_header(RegisterBrokerResult, answer.ext)
        for listener in self.on_answer:
            listener(result)
        if answer.body:
            self._take_order_topics(answer.body)

    def _heartbeat_timeout(self) -> dict[str, str]:
        """Who sends heartbeats is missed soon; who does not, when it has not registered for two minutes."""
        if not self.config.enable_slave_acting_master:
            return {}
        return {"heartbeatTimeoutMillis": str(self.config.broker_not_active_timeout_millis)}

    def _body(self, names: set[str] | None) -> bytes:
        """The registration's body. The whole table is encoded once a version, not once a period and NameServer."""
        permission = self.config.broker_permission
        if names is None:
            known = self._whole_table
            if known is not None and known[0] == self.topics.version and known[1] == permission:
                return known[2]
            table = dict(self.topics.table)
        else:
            table = {name: self.topics.table[name] for name in names if name in self.topics.table}
        if permission != READ | WRITE:
            table = {name: _restricted(topic, permission) for name, topic in table.items()}
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table=table,
            data_version=self.topics.version,
            mapping_data_version=DataVersion(timestamp=self.clock.now_ms()),
            topic_queue_mapping_detail_map={},
            topic_queue_mapping_info_map={},
        )
        body = msgspec.json.encode(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
        if names is None:
            self._whole_table = (self.topics.version, permission, body)
        return body

    def _take_order_topics(self, body: bytes) -> None:
        """NameServers keep a list of ordered topics; those of it get the flag in the topic table."""
        order_topics = fastjson.loads(body, type=KVTable).table
        if order_topics is not None:
            self.topics.set_order(set(order_topics))

    async def stop(self) -> None:
        """Leaves every NameServer's routes."""
        if not self._is_running:
            return
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        turns = [name_server.turn for name_server in self.name_servers if name_server.turn is not None]
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await asyncio.gather(*(self._unregister(name_server) for name_server in self.name_servers))

    async def _unregister(self, name_server: NameServer) -> None:
        header = {
            "brokerName": self.config.broker_name,
            "brokerAddr": self.address.text,
            "clusterName": self.config.broker_cluster_name,
            "brokerId": str(self.config.broker_id),
        }
        command = Command.request(RequestCode.UNREGISTER_BROKER, header)
        try:
            await self.remoting.invoke(name_server.address, command, UNREGISTER_TIMEOUT_S)
        except (RemotingError, OSError) as failure:
            log.info("NameServer %s did not hear that this broker stops: %s", name_server.address, failure)


def _restricted(topic: TopicConfig, permission: int) -> TopicConfig:
    return TopicConfig(
        topic_name=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & permission,
        topic_filter_type=topic.topic_filter_type,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=topic.attributes,
    )

"""A node: a NameServer, a broker, a controller, or several of them, put together on one event loop.

    node = build_node(directory, {"brokerName": "broker-a"}, namesrv_port=9876, broker_port=10911)
    await node.start()          # clients can connect, and the broker is in the route
    await node.stop()           # out of the routes, everybody answered, everything persisted

The directory is the broker's store (what Apache calls storePathRootDir); the NameServer's own file lies in `namesrv/`
under it.

A node is a list of parts. Each part makes one component when its turn to start has come, and so can look at those
before it: the broker's part asks for the port that the NameServer got. A new component is one more part in
`build_node`, behind those that it needs.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from arrowmq.auth.settings import (
    CONTROLLER_KEYS,
    NAMESRV_KEYS,
    AuthSettings,
    read_controller_settings,
    read_namesrv_settings,
    read_settings,
)
from arrowmq.auth.settings import KEYS as AUTH_KEYS
from arrowmq.clock import Clock, SystemClock
from arrowmq.config import ConfigError
from arrowmq.remoting.address import format_address, is_loopback
from arrowmq.remoting.tls.reload import TlsReload
from arrowmq.remoting.tls.settings import KEYS as TLS_KEYS
from arrowmq.remoting.tls.settings import ClientTls, ServerTls, client_tls, server_tls

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from arrowmq.auth.guard import Guard
    from arrowmq.broker import Broker, BrokerConfig
    from arrowmq.broker.broker import Extension
    from arrowmq.controller.config import ControllerConfig
    from arrowmq.controller.controller import Controller
    from arrowmq.metrics.page import ControllerPage, MetricsPage, ProxyPage
    from arrowmq.namesrv.config import NamesrvConfig
    from arrowmq.namesrv.name_server import NameServer
    from arrowmq.proxy.config import ProxyConfig
    from arrowmq.proxy.proxy import Proxy
    from arrowmq.proxy.remoting.server import RemotingProxy
    from arrowmq.replica.analytic import AnalyticReplica
    from arrowmq.replica.encrypted import HaTls
    from arrowmq.store.disk import Disk

log = logging.getLogger(__name__)

PROXY_TLS_KEYS = {key for key in TLS_KEYS if key == "tls.enable" or key.startswith("tls.client.")}


class Component(Protocol):
    """Something that runs in a node. A start that fails leaves nothing running; only what has started is stopped."""

    @property
    def name(self) -> str: ...

    async def start(self) -> object: ...

    async def stop(self) -> object: ...


Part = Callable[["Node"], Component | None]
"""Makes a component for a node, from its settings and from what has started before; None if it is not wanted."""


class Node:
    def __init__(self, parts: Sequence[Part]) -> None:
        if not parts:
            raise ConfigError("a node is a NameServer, a broker, a controller or several of them: none was asked for")
        self._parts = parts
        self._started: list[Component] = []
        self.namesrv: NameServer | None = None
        self.broker: Broker | None = None
        self.replica: AnalyticReplica | None = None
        self.controller: Controller | None = None
        self.metrics: MetricsPage | ProxyPage | None = None
        self.controller_metrics: ControllerPage | None = None
        #: What components that are not named here say of themselves when the node is ready
        self.also_ready: list[str] = []
        self.proxy: Proxy | None = None
        self.remoting_proxy: RemotingProxy | None = None

    @property
    def namesrv_address(self) -> str:
        """Where this node's NameServer is reached from this machine; of a lone broker, the NameServers it was given."""
        if self.namesrv is None:
            return "" if self.broker is None else self.broker.config.namesrv_addr
        host = self.namesrv.config.bind_address
        return format_address("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, self.namesrv.port)

    @property
    def broker_address(self) -> str:
        """What the broker advertises in routes."""
        return "" if self.broker is None else self.broker.address.text

    async def start(self) -> None:
        """Returns when clients can connect and the broker is in the route of at least one NameServer."""
        try:
            for part in self._parts:
                component = part(self)
                if component is not None:
                    await component.start()
                    self._started.append(component)
        except BaseException:
            with suppress(Exception):  # it is in the log; what kept the node from starting is the news
                await self.stop()
            raise

    async def stop(self) -> None:
        """The reverse of `start`; also of one that got only half-way. One that fails to stop does not keep the others
        from it."""
        failures: list[Exception] = []
        while self._started:
            component = self._started.pop()
            try:
                await component.stop()
            except Exception as failure:
                log.exception("the %s did not stop in good order", component.name)
                failures.append(failure)
        self.proxy = self.remoting_proxy = self.metrics = self.controller_metrics = None
        self.broker = self.controller = self.namesrv = None
        if failures:
            raise failures[0]


# --- parts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is handed to every component that needs it."""

    clock: Clock
    disk: Disk | None = None
    tls: ServerTls | None = None
    outgoing_tls: ClientTls | None = None
    ha_tls: HaTls | None = None


def namesrv_part(config: NamesrvConfig, of: Surroundings, guard: Guard | None = None) -> Part:
    def part(node: Node) -> Component:
        from arrowmq.namesrv.name_server import NameServer

        node.namesrv = NameServer(config, of.clock, tls=of.tls, outgoing_tls=of.outgoing_tls, guard=guard)
        return node.namesrv

    return part


def controller_part(config: ControllerConfig, directory: Path, of: Surroundings, guard: Guard | None = None) -> Part:
    def part(node: Node) -> Component:
        from arrowmq.controller.controller import Controller

        node.controller = Controller(config, directory, of.clock, tls=of.tls, outgoing_tls=of.outgoing_tls, guard=guard)
        return node.controller

    return part


def namesrv_guard(properties: Mapping[str, str], config: NamesrvConfig, of: Surroundings) -> Guard | None:
    """None where the NameServer answers everybody, as Apache's does. Its users lie beside its own file."""
    settings = read_namesrv_settings(properties)
    if settings is None:
        return None
    from arrowmq.auth.guard import Guard

    cluster = properties.get("brokerClusterName", "DefaultCluster")
    return Guard(settings, "NameServer", cluster, Path(config.kv_config_path).parent, of.clock, of.disk)


def controller_guard(properties: Mapping[str, str], directory: Path, of: Surroundings) -> Guard:
    """It checks requests where that is asked for, and signs the controller's own where it has credentials."""
    from arrowmq.auth.guard import Guard

    cluster = properties.get("brokerClusterName", "DefaultCluster")
    return Guard(read_controller_settings(properties), "controller", cluster, directory, of.clock, of.disk)


def broker_part(config: BrokerConfig, store_root: Path, of: Surroundings) -> Part:
    def part(node: Node) -> Component:
        from arrowmq.broker import Broker
        from arrowmq.broker.ports import BrokerPorts

        replication = _replication_of(config)
        config.namesrv_addr = config.namesrv_addr or node.namesrv_address
        if not config.namesrv_addr:
            raise ConfigError("the broker knows no NameServer: give it one with -n HOST:PORT or namesrvAddr")
        node.broker = Broker(
            config, store_root, of.clock, of.disk, ports=BrokerPorts(of.clock, of.tls), extensions=[replication]
        )
        node.broker.remoting.use_tls(of.outgoing_tls)
        if of.ha_tls is not None:
            _encrypt_replication(node.broker, of.ha_tls)
        warn_if_open("broker", config.bind_address, config.listen_port, node.broker.guard.is_on)
        return node.broker

    return part


def tls_part(properties: Mapping[str, str], of: Surroundings) -> Part:
    """Takes renewed certificates over; not there where there are none."""
    client = of.outgoing_tls if of.ha_tls is None else of.ha_tls.client  # the same, where there are both
    reload = TlsReload(properties, of.tls, client, of.clock)
    return lambda node: reload if reload.is_needed else None


def metrics_part(node: Node) -> Component | None:
    """Behind the broker: its settings from last time may have a say in whether there is a page."""
    if node.broker is None or node.broker.config.metrics_exporter_type.upper() != "PROM":
        return None
    from arrowmq.metrics.page import MetricsPage

    node.metrics = MetricsPage(node.broker)
    return node.metrics


def controller_metrics_part(node: Node) -> Component | None:
    if node.controller is None or node.controller.config.metrics_exporter_type.upper() != "PROM":
        return None
    from arrowmq.metrics.page import ControllerPage

    node.controller_metrics = ControllerPage(node.controller)
    return node.controller_metrics


def cluster_proxy_part(config: ProxyConfig, auth: AuthSettings, of: Surroundings) -> Part:
    """A proxy before the brokers that a NameServer knows."""

    def part(node: Node) -> Component:
        from arrowmq.proxy.backs.cluster import ClusterBack
        from arrowmq.proxy.proxy import Proxy

        config.namesrv_addr = config.namesrv_addr or node.namesrv_address
        node.proxy = Proxy(config, ClusterBack(config, of.clock, auth, of.outgoing_tls), of.clock)
        return node.proxy

    return part


def remoting_proxy_part(config: ProxyConfig, of: Surroundings, *, is_optional: bool) -> Part:
    """Behind the proxy before a cluster, whose back and certificate it shares."""

    def part(node: Node) -> Component | None:
        from arrowmq.proxy.backs.cluster import ClusterBack
        from arrowmq.proxy.config import NO_REMOTING_PORT
        from arrowmq.proxy.remoting.server import RemotingProxy

        proxy = node.proxy
        if config.remoting_listen_port == NO_REMOTING_PORT or proxy is None:
            return None
        assert isinstance(proxy.back, ClusterBack)
        node.remoting_proxy = RemotingProxy(
            config, proxy.back, of.clock, proxy.tls, is_optional=is_optional, on_ready=node.also_ready.append
        )
        return node.remoting_proxy

    return part


def proxy_metrics_part(config: ProxyConfig, clock: Clock) -> Part:
    def part(node: Node) -> Component | None:
        if node.proxy is None or config.metrics_exporter_type.upper() != "PROM":
            return None
        from arrowmq.metrics.page import ProxyPage

        node.metrics = ProxyPage(node.proxy, clock)
        if node.remoting_proxy is not None:
            node.metrics.more.append(partial(_remoting_proxy_families, node.remoting_proxy))
        return node.metrics

    return part


def local_proxy_part(config: ProxyConfig, of: Surroundings, *, is_optional: bool) -> Part:
    """A proxy in the broker's own process."""

    def part(node: Node) -> Component | None:
        if node.broker is None:
            return None
        from arrowmq.proxy.backs.cluster import ClusterBack
        from arrowmq.proxy.backs.local import LocalBack
        from arrowmq.proxy.proxy import Proxy

        config.namesrv_addr = config.namesrv_addr or node.broker.config.namesrv_addr
        back = LocalBack(node.broker, ClusterBack(config, of.clock, tls=of.outgoing_tls))
        node.proxy = Proxy(config, back, of.clock, is_optional=is_optional)
        if node.metrics is not None:
            node.metrics.more.append(partial(_proxy_families, node.proxy))
        return node.proxy

    return part


def _replication_of(config: BrokerConfig) -> Callable[[Broker], Extension]:
    """What is not wanted is not imported: it would cost every start."""
    if config.enable_controller_mode:
        from arrowmq.replica.controlled.replication import ControlledReplication

        return ControlledReplication
    from arrowmq.replica.replication import Replication

    return Replication


def _ha_tls_of(properties: Mapping[str, str], tls: ServerTls, outgoing: ClientTls | None) -> HaTls | None:
    from arrowmq.replica.encrypted import ha_tls

    return ha_tls(properties, tls, outgoing)


def _encrypt_replication(broker: Broker, tls: HaTls) -> None:
    from arrowmq.replica.replication import Replication

    for extension in broker.extensions:
        if isinstance(extension, Replication):
            extension.encrypt(tls)


def _proxy_families(proxy: Proxy) -> Collector:
    from arrowmq.metrics.proxy import ProxyFamilies

    return ProxyFamilies(proxy)


def _remoting_proxy_families(front: RemotingProxy) -> Collector:
    from arrowmq.metrics.proxy import RemotingProxyFamilies

    return RemotingProxyFamilies(front)


def replica_part(namesrv: str, broker_name: str, directory: Path, settings: Mapping[str, str]) -> Part:
    """An analytic replica: a copy of a broker's log, for tools."""

    def part(node: Node) -> Component:
        from arrowmq.replica.analytic import AnalyticReplica

        node.replica = AnalyticReplica(namesrv, broker_name, directory, settings)
        return node.replica

    return part


class InRoute:
    """Not a thing that runs, but a state to wait for, behind what should not have to wait for it."""

    name = "route"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def start(self) -> None:
        await self._broker.registration.accepted()

    async def stop(self) -> None:
        """The broker itself leaves the routes, first of all when it stops."""


def route_part(node: Node) -> Component | None:
    return None if node.broker is None else InRoute(node.broker)


def warn_if_open(server: str, bind_address: str, port: int, is_guarded: bool) -> None:
    """An operator should not learn from others that everybody may use the server."""
    if is_guarded or is_loopback(bind_address):
        return
    log.warning(
        "everybody who reaches port %d may use this %s: set authenticationEnabled and authorizationEnabled, "
        "or serve this machine only with --bind 127.0.0.1",
        port,
        server,
    )


# --- from settings ---------------------------------------------------------------------------------------------------


def build_node(
    directory: Path | str,
    properties: Mapping[str, str] | None = None,
    *,
    namesrv_port: int | None = None,
    broker_port: int | None = None,
    controller_port: int | None = None,
    proxy_port: int | None = None,
    is_proxy_optional: bool = False,
    clock: Clock | None = None,
    disk: Disk | None = None,
    more: Sequence[Part] = (),
) -> Node:
    """A node from properties as Apache names them; a port of None leaves that part out, 0 takes a free one. An optional
    proxy is left out, with a warning, if its port is taken."""
    properties = dict(properties or {})
    directory = Path(directory)
    known: set[str] = set()
    namesrv = broker = controller = None
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
        if namesrv.enable_controller_in_namesrv and controller_port is None:
            controller_port = controller_port_of(properties)
    if controller_port is not None:
        from arrowmq.controller.config import ControllerConfig

        root = Path(properties.get("controllerStorePath") or directory / "controller")
        own = {
            "configStorePath": str(root / "controller.properties"),
            **properties,
            "controllerStorePath": str(root),
            "listenPort": str(controller_port),
        }
        controller, unknown = ControllerConfig.from_properties(own)
        known |= own.keys() - set(unknown)
    if broker_port is not None:
        from arrowmq.broker import BrokerConfig
        from arrowmq.store.config import StoreConfig, apache_key

        broker = BrokerConfig.from_properties(
            {**properties, "listenPort": str(broker_port), "storePathRootDir": str(directory)}
        )
        known |= set(properties) - set(broker.ignored(apache_key(field.name) for field in fields(StoreConfig)))
    proxy = None
    if proxy_port is not None and broker_port is not None:
        from arrowmq.proxy.config import KEYS, ProxyConfig

        proxy, _ = ProxyConfig.from_properties({**properties, "grpcServerPort": str(proxy_port), "proxyMode": "LOCAL"})
        known |= KEYS & properties.keys()
    known |= {*AUTH_KEYS, *NAMESRV_KEYS} if namesrv is not None else set()
    known |= {*AUTH_KEYS, *CONTROLLER_KEYS} if controller is not None else set()
    without_effect = sorted(key for key in properties.keys() - known if not key.startswith("tls."))
    if without_effect:
        log.info("settings without effect here: %s", ", ".join(without_effect))
    accepted, outgoing = server_tls(properties), client_tls(properties)
    encrypted = None if broker is None else _ha_tls_of(properties, accepted, outgoing)
    surroundings = Surroundings(clock or SystemClock(), disk, accepted, outgoing, encrypted)
    parts: list[Part] = []
    if broker is not None or namesrv is not None or controller is not None:
        parts.append(tls_part(properties, surroundings))
    if namesrv is not None:
        guard = namesrv_guard(properties, namesrv, surroundings)
        parts.append(namesrv_part(namesrv, surroundings, guard))
    if controller is not None:
        root = Path(controller.controller_store_path)
        parts.append(controller_part(controller, root, surroundings, controller_guard(properties, root, surroundings)))
        parts.append(controller_metrics_part)
    if broker is not None:
        parts += [broker_part(broker, directory, surroundings), metrics_part]
        if proxy is not None:
            parts.append(local_proxy_part(proxy, surroundings, is_optional=is_proxy_optional))
        parts.append(route_part)
    return Node([*parts, *more])


def controller_port_of(properties: Mapping[str, str]) -> int:
    """Where the controller in a NameServer listens: where `controllerDLegerPeers` says, else at its usual port."""
    from arrowmq.controller.config import DEFAULT_PORT, ControllerConfig

    place = ControllerConfig.from_properties(properties)[0].own_peer()
    return DEFAULT_PORT if place is None else place[1]


def grpc_is_installed() -> bool:
    """Whether what `arrowmq[grpc]` brings is there; looks for it without importing it."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("h2", "google.protobuf"))
    except ModuleNotFoundError:
        return False


def build_proxy_node(properties: Mapping[str, str], clock: Clock | None = None) -> Node:
    """A lone proxy before a cluster, from properties as Apache's rmq-proxy.json names them."""
    from arrowmq.proxy.config import ProxyConfig

    config, unknown = ProxyConfig.from_properties(properties)
    if not config.namesrv_addr:
        raise ConfigError("the proxy knows no NameServer: give it one with -n HOST:PORT or namesrvAddr")
    if config.proxy_mode.upper() == "LOCAL":
        raise ConfigError("proxyMode=LOCAL: a proxy in a broker's process is `arrowmq broker --proxy-port N`")
    # Its own tls.server.mode is that of the gRPC port, and says nothing of the connections that it makes.
    of_client = {key: text for key, text in properties.items() if key in PROXY_TLS_KEYS}
    outgoing = client_tls(of_client)
    without_effect = sorted(set(unknown) - AUTH_KEYS - PROXY_TLS_KEYS)
    if without_effect:
        log.info("settings without effect here: %s", ", ".join(without_effect))
    auth = read_settings(properties)
    if auth.is_on and config.credentials is None:
        raise ConfigError(
            "authenticationEnabled=true: a proxy asks the brokers for their users, which needs "
            "innerClientAuthenticationCredentials of a super user there"
        )
    surroundings = Surroundings(clock or SystemClock(), outgoing_tls=outgoing)
    return Node(
        [
            tls_part(of_client, surroundings),
            cluster_proxy_part(config, auth, surroundings),
            remoting_proxy_part(config, surroundings, is_optional="remotingListenPort" not in properties),
            proxy_metrics_part(config, surroundings.clock),
        ]
    )

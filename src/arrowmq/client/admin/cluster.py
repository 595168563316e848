"""Administration of brokers and NameServers; and the calls that all administration is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from arrowmq.client.errors import ArrowMQError
from arrowmq.client.names import Namespace
from arrowmq.client.routes import Route
from arrowmq.client.session import Session
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ClusterInfo, KVTable, TopicRouteData
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

_T = TypeVar("_T")


class ClusterAdmin:
    session: Session
    namespace: Namespace

    # -- calls

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        accept: tuple[int, ...] = (),
        timeout_s: float | None = None,
    ) -> Command:
        """Any request to any server, for what has no method here."""
        self.session.check_usable()
        what = code.name.lower().replace("_", " ")
        request = Command.request(code, dict(ext or {}), body)
        return await self.session.ask(address, request, what, timeout_s, accept=accept)

    async def call_body(
        self, address: str, code: RequestCode, ext: Mapping[str, str] | None, body_type: type[_T], body: bytes = b""
    ) -> _T:
        return fastjson.loads((await self.call(address, code, ext, body)).body, body_type)

    # -- clusters, brokers, NameServers

    async def cluster_info(self) -> ClusterInfo:
        """All clusters with their brokers and these with their addresses."""
        self.session.check_usable()
        answer = await self.session.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.loads(answer.body, ClusterInfo)

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Broker name → address of its master; of one cluster, or of all."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ArrowMQError(f"there is no cluster {cluster}; the NameServer knows: {known}")
        chosen = None if cluster is None else set(info.cluster_addr_table[cluster])
        found = {
            name: broker.broker_addrs[0]
            for name, broker in info.broker_addr_table.items()
            if 0 in broker.broker_addrs and (chosen is None or name in chosen)
        }
        if not found:
            raise ArrowMQError("no broker is registered at the NameServer: is one running, and with this namesrvAddr?")
        return found

    async def targets(self, cluster: str | None, broker: str | None) -> dict[str, str]:
        """The masters that a change goes to: of one broker (name or address), one cluster, or all."""
        if broker is not None and ":" in broker:
            return {broker: broker}
        masters = await self.masters(cluster)
        if broker is None:
            return masters
        if broker not in masters:
            raise ArrowMQError(f"there is no broker {broker}; the NameServer knows: {', '.join(sorted(masters))}")
        return {broker: masters[broker]}

    async def route_data(self, topic: str) -> TopicRouteData:
        """The NameServer's own answer for a topic."""
        self.session.check_usable()
        answer = await self.session.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": self.namespace.wrap(topic), "acceptStandardJsonOnly": "true"}
        )
        return fastjson.loads(answer.body, TopicRouteData)

    async def route(self, topic: str) -> Route:
        return Route.from_data(self.namespace.wrap(topic), await self.route_data(topic))

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """What a broker tells of its running: rates, disk use, versions."""
        return (await self.call_body(address, RequestCode.GET_BROKER_RUNTIME_INFO, None, KVTable)).table

    async def broker_config(self, address: str) -> dict[str, str]:
        answer = await self.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties_text(bytes(answer.body).decode())

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> None:
        await self.call(address, RequestCode.UPDATE_BROKER_CONFIG, None, properties_text(changes))

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Every NameServer's settings by its address."""
        found = {}
        for address in self.session.options.namesrv:
            answer = await self.call(address, RequestCode.GET_NAMESRV_CONFIG)
            found[address] = parse_properties_text(bytes(answer.body).decode())
        return found

    async def set_write_permission(self, broker_name: str, *, is_writable: bool) -> int:
        """Take a broker out of, or back into, the routes of producers; gives the number of topics changed."""
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER if is_writable else RequestCode.WIPE_WRITE_PERM_OF_BROKER
        changed = 0
        for address in self.session.options.namesrv:
            answer = await self.call(address, code, {"brokerName": broker_name})
            changed = int(answer.ext.get("addTopicCount") or answer.ext.get("wipeTopicCount") or 0)
        return changed

    async def kv_put(self, namespace: str, key: str, value: str) -> None:
        for address in self.session.options.namesrv:
            await self.call(address, RequestCode.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})

    async def kv_list(self, namespace: str) -> dict[str, str]:
        answer = await self.session.ask_namesrv(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        return fastjson.loads(answer.body, KVTable).table

    async def kv_delete(self, namespace: str, key: str) -> None:
        for address in self.session.options.namesrv:
            await self.call(address, RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})


def parse_properties_text(text: str) -> dict[str, str]:
    """Java's properties: `key=value` lines."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def properties_text(values: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def text(**fields: Any) -> dict[str, str]:
    """Header fields from Python values; None is left out."""
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


def joined(items: Iterable[str]) -> str:
    return ",".join(items)

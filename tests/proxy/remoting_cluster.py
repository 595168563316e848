"""Two brokers in this process and proxies before them, for clients of the remoting protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from proxy_client import SETTINGS

from arrowmq.broker.broker import Broker
from arrowmq.client.admin import Admin
from arrowmq.proxy.remoting.server import RemotingProxy
from arrowmq.remoting.client import RemotingClient
from arrowmq.server import Node, build_node, build_proxy_node
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

PROXY = {
    **SETTINGS,
    "grpcServerPort": "0",
    "remotingListenPort": "0",
    "topicRouteServiceCacheRefreshSeconds": "1",
    "topicConfigCacheRefreshSeconds": "0",
}


class Cluster:
    """`broker-a` with the NameServer in its process, and as many others as wanted."""

    def __init__(self, folder: Path, brokers: int = 2, **settings: str) -> None:
        self.folder, self.brokers = folder, brokers
        self.settings = {**SETTINGS, **settings}
        self.nodes: dict[str, Node] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Cluster:
        names = [f"broker-{letter}" for letter in "abc"[: self.brokers]]
        try:
            for name in names:
                await self.start_broker(name)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start_broker(self, name: str) -> Node:
        is_first = not self.nodes
        settings = {**self.settings, "brokerName": name}
        if not is_first:
            settings["namesrvAddr"] = self.namesrv
        node = build_node(self.folder / name, settings, namesrv_port=0 if is_first else None, broker_port=0)
        await node.start()
        self.nodes[name] = node
        self._stack.push_async_callback(node.stop)
        return node

    @property
    def namesrv(self) -> str:
        return self.nodes["broker-a"].namesrv_address

    def broker(self, name: str) -> Broker:
        broker = self.nodes[name].broker
        assert broker is not None
        return broker

    def admin(self, **options: tuple[str, str]) -> Admin:
        return Admin(self.namesrv, **options)  # type: ignore[arg-type]

    async def proxy(self, settings: Mapping[str, str] | None = None) -> RemotingProxy:
        node = build_proxy_node({**PROXY, "namesrvAddr": self.namesrv, **(settings or {})})
        await node.start()
        self._stack.push_async_callback(node.stop)
        assert node.remoting_proxy is not None
        return node.remoting_proxy


async def route_at(address: str, topic: str) -> TopicRouteData:
    remoting = RemotingClient()
    try:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        answer = await remoting.invoke(address, request, 5.0)
    finally:
        await remoting.close()
    assert 0 == answer.code, answer.remark
    return fastjson.loads(answer.body, TopicRouteData)


def addresses_in(route: TopicRouteData) -> dict[str, str]:
    return {broker.broker_name: broker.broker_addrs[0] for broker in route.broker_datas}

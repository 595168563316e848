"""A NameServer, a controller and brokers of one name under it, in this process, on free ports and small files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pairs import SMALL, log_bytes

import arrowmq
from arrowmq.broker import Broker
from arrowmq.broker.role import Role
from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.replica.controlled.replication import ControlledReplication
from arrowmq.server import Node, build_node
from arrowmq.store.disk import Disk
from arrowmq.testing.broker import RoomyDisk
from waiting import until

CONTROLLED = {
    **SMALL,
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "brokerHeartbeatInterval": "200",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "500",
    "haSendHeartbeatInterval": "500",
}


def replication_of(node: Node) -> ControlledReplication:
    assert node.broker is not None
    found = node.broker.extensions[0]
    assert isinstance(found, ControlledReplication)
    return found


def broker_of(node: Node) -> Broker:
    assert node.broker is not None
    return node.broker


class Trio:
    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, above: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.settings = {**CONTROLLED, **(settings or {})}
        wanted = {"bindAddress": "127.0.0.1", **(above or {})}
        self.above = build_node(folder / "above", wanted, namesrv_port=0, controller_port=0)
        self.nodes: dict[int, Node] = {}

    async def __aenter__(self) -> Self:
        await self.above.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self.nodes):
            await self.stop(number)
        await self.above.stop()

    @property
    def controller_address(self) -> str:
        assert self.above.controller is not None
        return self.above.controller.address

    async def start(self, number: int, settings: Mapping[str, str] | None = None, *, disk: Disk | None = None) -> Node:
        wanted = {
            **self.settings,
            "namesrvAddr": self.above.namesrv_address,
            "controllerAddr": self.controller_address,
            **(settings or {}),
        }
        node = build_node(self.folder / f"broker-{number}", wanted, broker_port=0, disk=disk or RoomyDisk())
        await node.start()
        self.nodes[number] = node
        return node

    async def start_all(self, count: int = 3) -> None:
        for number in range(1, count + 1):
            await self.start(number)
        await self.in_sync(*range(1, count + 1))

    async def stop(self, number: int) -> None:
        await self.nodes.pop(number).stop()

    # What is

    @property
    def decided(self) -> BrokerSet:
        assert self.above.controller is not None
        return self.above.controller.decider.all()[self.settings["brokerName"]]

    async def in_sync(self, *members: int) -> None:
        await until(lambda: set(self.decided.sync_state_set) == set(members), 20)

    async def master(self) -> Node:
        """The broker that is master, by its own word and the controller's."""

        def found() -> Node | None:
            node = self.nodes.get(self.decided.master_id or 0)
            return node if node is not None and broker_of(node).role.current is Role.SYNC_MASTER else None

        await until(lambda: found() is not None, 20)
        node = found()
        assert node is not None
        return node

    async def level(self) -> None:
        """Until every broker has what its master has."""
        master = await self.master()
        end = broker_of(master).store.appended
        await until(lambda: all(broker_of(node).store.appended == end for node in self.nodes.values()), 20)

    def log(self, number: int) -> bytes:
        store = broker_of(self.nodes[number]).store
        return log_bytes(self.folder / f"broker-{number}", store.min_physical_offset, int(store.appended))

    def producer(self) -> arrowmq.Producer:
        return arrowmq.Producer(self.above.namesrv_address)

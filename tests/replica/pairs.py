"""A NameServer, a master and slaves, in this process, on free ports and small files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from arrowmq.clock import Clock
from arrowmq.replica.follower import Follower
from arrowmq.replica.replication import Replication
from arrowmq.server import Node, build_node
from arrowmq.store import MessageStore
from arrowmq.store.disk import Disk
from arrowmq.testing.broker import SETTINGS, RoomyDisk
from waiting import until

FILE_BYTES = 1 << 18
SMALL = {**SETTINGS, "mappedFileSizeCommitLog": str(FILE_BYTES), "registerNameServerPeriod": "10000"}


def replication_of(node: Node) -> Replication:
    assert node.broker is not None
    found = node.broker.extensions[0]
    assert isinstance(found, Replication)
    return found


def store_of(node: Node) -> MessageStore:
    assert node.broker is not None
    return node.broker.store


def follower_of(node: Node) -> Follower:
    return replication_of(node).follower


def log_bytes(folder: Path, begin: int, end: int) -> bytes:
    """The log of a store on disk, from one offset to another."""
    data = bytearray()
    for path in sorted((folder / "commitlog").iterdir()):
        start = int(path.name)
        if start < end and start + FILE_BYTES > begin:
            content = path.read_bytes()
            data += content[max(0, begin - start) : end - start]
    return bytes(data)


class Cluster:
    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, clock: Clock | None = None) -> None:
        self.folder = folder
        self.settings = {**SMALL, **(settings or {})}
        self.clock = clock
        self._stack = AsyncExitStack()
        self.namesrv = build_node(
            folder / "namesrv",
            {**self.settings, "supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"},
            namesrv_port=0,
            clock=clock,
        )
        self.running: list[Node] = []

    async def __aenter__(self) -> Self:
        await self.namesrv.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in reversed(list(self.running)):
            await self.stop(node)
        await self.namesrv.stop()

    async def start(
        self, name: str, settings: Mapping[str, str] | None = None, *, port: int = 0, disk: Disk | None = None
    ) -> Node:
        wanted = {**self.settings, "namesrvAddr": self.namesrv.namesrv_address, **(settings or {})}
        node = build_node(self.folder / name, wanted, broker_port=port, clock=self.clock, disk=disk or RoomyDisk())
        await node.start()
        self.running.append(node)
        return node

    async def master(self, settings: Mapping[str, str] | None = None, **more: object) -> Node:
        return await self.start("master", {"brokerRole": "ASYNC_MASTER", **(settings or {})}, **more)  # type: ignore[arg-type]

    async def slave(self, settings: Mapping[str, str] | None = None, *, number: int = 1, **more: object) -> Node:
        role = {"brokerRole": "SLAVE", "brokerId": str(number), **(settings or {})}
        return await self.start(f"slave{number}", role, **more)  # type: ignore[arg-type]

    async def stop(self, node: Node) -> None:
        if node in self.running:
            self.running.remove(node)
            await node.stop()


async def caught_up(master: Node, slave: Node) -> None:
    """Until a slave has dispatched all that its master has."""

    def has_all() -> bool:
        copy = follower_of(slave).copy
        return copy is not None and copy.dispatched == store_of(master).appended

    await until(has_all, 20)

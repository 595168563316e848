"""A broker on a real store and real sockets, with time that moves only when a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from crashing import copy_as_killed

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import VirtualClock
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.server import RemotingServer
from arrowmq.store.disk import Disk
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record, decode_records
from waiting import until

SMALL_FILES = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
}
TIMEOUT_S = 20.0
START_MS = 1_794_769_200_000  # about when the recordings under tests/golden/wire were made


class Client:
    """One connection to the broker under test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remoting = RemotingClient()
        self.notices: list[Command] = []
        self.remoting.on_request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda call: self.notices.append(call.command)
        )

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes | dict[str, Any] = b"") -> Command:
        """One request and its answer; values become text, a dict of a body JSON."""
        texts = {name: _text(value) for name, value in (ext or {}).items()}
        data = body if isinstance(body, bytes) else fastjson.dumps(body)
        return await self.remoting.invoke(self.address, Command.request(code, texts, data), TIMEOUT_S)

    def asking(self, code: int, ext: dict[str, Any], body: bytes = b"") -> asyncio.Task[Command]:
        """A request whose answer may take its time."""
        return asyncio.ensure_future(self.ask(code, ext, body))

    async def send(
        self, topic: str, body: bytes = b"body", *, queue_id: int = 0, properties: str = "", **more: Any
    ) -> Command:
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": properties, **more,
        }  # fmt: skip
        return await self.ask(RequestCode.SEND_MESSAGE, header, body)

    def pull_header(
        self, topic: str, offset: int = 0, *, queue_id: int = 0, group: str = "G", **more: Any
    ) -> dict[str, Any]:
        """A pull that carries its own subscription, as a pull consumer's does."""
        return {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0, "subscription": "*",
            **more,
        }  # fmt: skip

    async def pull(self, topic: str, offset: int = 0, **more: Any) -> Command:
        return await self.ask(RequestCode.PULL_MESSAGE, self.pull_header(topic, offset, **more))

    async def heartbeat(
        self,
        client_id: str,
        *,
        group: str = "G",
        topics: dict[str, str] | None = None,
        producer: str | None = None,
        version: int = 1,
        **more: Any,
    ) -> Command:
        """Says that this client consumes `topics` (name -> tag expression) in a group, or produces. A subscription
        replaces an earlier one if its `version` is higher."""
        consumers = [
            {
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": more.pop("model", "CLUSTERING"),
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": expression, "expressionType": "TAG", "subVersion": version}
                    for topic, expression in topics.items()
                ],
            }
        ] if topics is not None else []  # fmt: skip
        body = {
            "clientID": client_id,
            "consumerDataSet": consumers,
            "producerDataSet": [{"groupName": producer}] if producer else [],
            **more,
        }
        return await self.ask(RequestCode.HEART_BEAT, {}, body)

    @staticmethod
    def records(answer: Command) -> list[Record]:
        return decode_records(answer.body)

    @staticmethod
    def bodies(answer: Command) -> list[bytes]:
        return [record.body for record in decode_records(answer.body)]

    async def close(self) -> None:
        await self.remoting.close()


class Node:
    """The broker under test, listening; `restart` stops it in good order and opens its directory again."""

    def __init__(self, root: Path, settings: dict[str, str], *, short: bool = False, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk
        self.settings = settings
        self.short = short  # whether requests may take the fast path, as they do at a server's port
        self.clock = VirtualClock(START_MS)
        self.clients: list[Client] = []

    async def start(self) -> None:
        self.broker = Broker(
            BrokerConfig.from_properties({**SMALL_FILES, **self.settings}), self.root, self.clock, self.disk
        )
        self.broker.open()
        self.server = RemotingServer(self.broker.handlers)
        port = await self.server.start("127.0.0.1", 0)
        await self.broker.start(port)
        if self.short:
            self.server.fast_path = self.broker.fast_path
        self.address = f"127.0.0.1:{port}"
        self.client = self.connect()

    def connect(self) -> Client:
        client = Client(self.address)
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()
        self.clients = []
        await self.broker.stop()
        await self.server.close()

    eventually = staticmethod(until)

    async def crash(self) -> None:
        """The broker ends as by kill -9, its files as they are now, the abort file among them; then it starts again."""
        left = self.root.with_name(self.root.name + "-left")
        copy_as_killed(self.root, left)
        await self.stop()
        self.root = left
        await self.start()

    async def restart(self, **settings: str) -> None:
        await self.stop()
        self.settings = {**self.settings, **settings}
        await self.start()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


NodeMaker = Callable[..., Awaitable[Node]]


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[NodeMaker]:
    """Starts brokers with the given settings, each in a directory of its own."""
    nodes: list[Node] = []

    async def make(*, short: bool = False, disk: Disk | None = None, **settings: str) -> Node:
        node = Node(tmp_path / f"broker-{len(nodes)}", settings, short=short, disk=disk)
        await node.start()
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        await node.stop()


@pytest.fixture
async def node(make_node: NodeMaker) -> Node:
    return await make_node()

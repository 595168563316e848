"""Questions to a broker in the protocol itself, where no client would show what is wanted."""

from __future__ import annotations

from typing import Any

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record, decode_records


class Asking:
    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient()

    async def ask(self, code: int, header: dict[str, Any], body: bytes = b"") -> Command:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in header.items()}
        return await self.client.invoke(self.address, Command.request(code, texts, body), 60)

    async def pull(
        self, topic: str, queue_id: int, offset: int, subscription: str = "*", kind: str = "TAG", most: int = 32
    ) -> Command:
        header = {
            "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": most, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
            "subscription": subscription, "expressionType": kind,
        }  # fmt: skip
        return await self.ask(RequestCode.PULL_MESSAGE, header)

    async def contents(self, topic: str, queue_id: int) -> list[Record]:
        """Every record of a queue."""
        found: list[Record] = []
        while (answer := await self.pull(topic, queue_id, len(found))).code == ResponseCode.SUCCESS:
            found += decode_records(answer.body)
        return found

    async def maximum(self, topic: str, queue_id: int) -> int:
        return int((await self.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})).ext["offset"])

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

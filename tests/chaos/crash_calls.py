"""How the lanes of the crash machine talk to a cluster: raw requests, over connections that can be cut."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oracle.ports import HOST, free_port

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record, decode_records

QUEUES = 4
TIMEOUT_S = 5
READ_BYTES = 1 << 16


class Line:
    """A port that forwards to the master of the moment. A cut ends every connection, with what is on its way."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._serving:
            await asyncio.wait(self._serving)

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        host, _, port = self._address().rpartition(":")
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            far, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            near_writer.transport.abort()
            return
        self._writers |= {near_writer, far_writer}
        try:
            await asyncio.gather(_pump(near, far_writer), _pump(far, near_writer))
        finally:
            self._writers -= {near_writer, far_writer}


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(READ_BYTES):
            target.write(data)
            await target.drain()
    target.transport.abort()  # one side is gone: so is the other


class Calls:
    """Requests whose answer may never come; counts what was refused and what stayed unanswered."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.counts: Counter[str] = Counter()
        self.is_over = False
        self.harm = ""  # what went wrong last, and when; None once somebody was served again
        self.harmed_s: float | None = None
        self.back_s: dict[str, list[float]] = {}

    async def ask(
        self, client: RemotingClient, code: int, header: dict[str, Any], body: bytes = b"", at: str | None = None
    ) -> Command | None:
        texts = {name: str(value) for name, value in header.items()}
        try:
            return await client.invoke(at or self.line.address, Command.request(code, texts, body), TIMEOUT_S)
        except (RemotingError, OSError):
            self.counts["unanswered"] += 1
            await asyncio.sleep(0.02)
            return None

    async def done(
        self, client: RemotingClient, code: int, header: dict[str, Any], body: bytes = b""
    ) -> Command | None:
        """The answer, if it is a success."""
        answer = await self.ask(client, code, header, body)
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            with suppress(ValueError):
                self.counts[ResponseCode(answer.code).name] += 1
            await asyncio.sleep(0.02)
        return answer if answer is not None and answer.code == ResponseCode.SUCCESS else None

    async def send(self, client: RemotingClient, topic: str, queue_id: int, body: bytes, **more: Any) -> Command | None:
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
            "unitMode": "false", "batch": "false", **more,
        }  # fmt: skip
        began_s = time.monotonic()
        answer = await self.done(client, RequestCode.SEND_MESSAGE, header, body)
        if answer is not None and self.harmed_s is not None and began_s > self.harmed_s:
            self.back_s.setdefault(self.harm, []).append(time.monotonic() - self.harmed_s)
            self.harmed_s = None
        return answer

    def begin_harm(self, harm: str) -> None:
        self.harm, self.harmed_s = harm, time.monotonic()

    async def make_topic(self, client: RemotingClient, topic: str, queues: int = QUEUES) -> bool:
        header = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        return await self.done(client, RequestCode.UPDATE_AND_CREATE_TOPIC, header) is not None

    async def make_group(self, client: RemotingClient, group: str) -> bool:
        config = {
            "groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
            "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
        }  # fmt: skip
        body = fastjson.dumps(config)
        return await self.done(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body) is not None

    async def pull(
        self, client: RemotingClient, topic: str, queue_id: int, offset: int, at: str | None = None
    ) -> list[Record] | None:
        """Records; none at the end of a queue; None without a good answer."""
        header = {
            "consumerGroup": "AUDIT", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
            "expressionType": "TAG",
        }  # fmt: skip
        answer = await self.ask(client, RequestCode.PULL_MESSAGE, header, at=at)
        if answer is None:
            return None
        if answer.code == ResponseCode.SUCCESS:
            return list(decode_records(answer.body))
        return [] if answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED) else None

    async def read(self, topic: str, queue_id: int = 0, at: str | None = None) -> list[Record]:
        """A queue from its beginning, of the master or of the broker at that address."""
        client, records = RemotingClient(), list[Record]()
        tries = 0
        while tries < 20:
            found = await self.pull(client, topic, queue_id, len(records), at)
            if found == []:
                break
            tries = 0 if found else tries + 1
            records += found or []
            if found is None:
                await asyncio.sleep(0.2)
        await client.close()
        return records

"""Where a group's progress is kept: at the brokers, or for broadcasting in a file of this client."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from arrowmq.client.errors import ArrowMQError, NoRoute
from arrowmq.client.session import Session
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import BodyError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.client")


class OffsetStore(Protocol):
    async def load(self) -> None: ...

    async def query(self, queue: MessageQueue, *, zero_if_young: bool) -> int | None:
        """The stored offset, or None if there is none. Raises when the store cannot be asked."""
        ...

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None: ...


class BrokerOffsets:
    """Each queue's offset at its own broker."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def load(self) -> None:
        """Nothing is kept here."""

    async def query(self, queue: MessageQueue, *, zero_if_young: bool) -> int | None:
        ext = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }
        if not zero_if_young:
            ext["setZeroIfNotFound"] = "false"
        answer = await self._session.ask(
            await broker_address(self._session, queue),
            Command.request(RequestCode.QUERY_CONSUMER_OFFSET, ext),
            f"asking for the offset of {self._group} at {queue.topic} queue {queue.queue_id}",
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        return None if answer.code else int(answer.ext["offset"])

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Tell each broker. What cannot be told is told with the next commit; a crash before it repeats messages."""
        for queue, offset in offsets.items():
            ext = {
                "consumerGroup": self._group,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "commitOffset": str(offset),
                "bname": queue.broker_name,
            }
            await self._session.ask(
                await broker_address(self._session, queue),
                Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext),
                f"committing offset {offset} of {self._group} at {queue.topic} queue {queue.queue_id}",
            )


async def broker_address(session: Session, queue: MessageQueue) -> str:
    """The master of a queue, or whoever of that broker is left."""
    route = await session.route(queue.topic)
    found = route.reader(queue.broker_name)
    if found is None:
        route = await session.refresh_route(queue.topic) or route
        found = route.reader(queue.broker_name)
    if found is None:
        raise NoRoute(queue.topic, session.options.namesrv[0], f"Broker {queue.broker_name} is not in its route")
    return found[1]


class LocalOffsets:
    """The Java client's file: `<folder>/<client id>/<group>/offsets.json`, with a `.bak` of the version before."""

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self._path = folder / client_id / group / "offsets.json"
        self._offsets: dict[MessageQueue, int] = {}

    @property
    def path(self) -> Path:
        return self._path

    async def load(self) -> None:
        for path in (self._path, self._backup):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                table = fastjson.loads(text).get("offsetTable", {})
                self._offsets = {_queue(key): int(value) for key, value in table.items()}
                return
            except (BodyError, AttributeError, TypeError, ValueError, KeyError) as broken:
                log.warning("offset file %s cannot be read (%s); trying its backup", path, broken)
        if self._path.exists():
            raise ArrowMQError(
                f"offset file {self._path} and its backup cannot be read: mend or remove them; "
                "without them this consumer would start as a new one"
            )

    @property
    def _backup(self) -> Path:
        return self._path.with_suffix(".json.bak")

    async def query(self, queue: MessageQueue, *, zero_if_young: bool) -> int | None:
        return self._offsets.get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        text = fastjson.dumps({"offsetTable": self._offsets})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".json.tmp")
        with fresh.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            os.replace(self._path, self._backup)
        os.replace(fresh, self._path)


def _queue(key: object) -> MessageQueue:
    if isinstance(key, MessageQueue):
        return key
    fields = fastjson.loads(key) if isinstance(key, str) else key
    if not isinstance(fields, dict):
        raise ValueError(f"{key!r} is no queue")
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))

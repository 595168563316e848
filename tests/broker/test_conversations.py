"""Conversations that real clients had with the Apache broker, held again with ours.

Each request of a recording is sent again, over connections as then and in the same order; every answer is compared with
the recorded one. What may differ, and is therefore not compared:

- `opaque`, `version`, `language` and lengths of frames: they are the speakers' own
- ids and places in the log (`msgId`, times of storing): scenes were recorded one after the other in one broker's life
- the ext fields in `VARIES`
- in remarks, what follows the words of Apache's broker
- the order of JSON members and of sets
- a pull that waited in vain is answered on time here; Apache's broker looks only every five seconds, and by then a
  group that was leaving is gone, which it says instead
- requests that a broker sends by itself (they are looked at in `test_clients`)
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arrowmq.remoting.connection import Connection
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, decode_frame
from arrowmq.wire.records import decode_records

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"
RECORDED_SETTINGS = {
    "maxMessageSize": "131072",
    "defaultTopicQueueNums": "4",
    "enablePropertyFilter": "true",
    "brokerFastFailureEnable": "false",
    "brokerIP1": "127.0.0.2",
}
PATIENCE_S = 0.5
VARIES = {"msgId", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "timestamp", "version", "totalGroupNum"}
# Bodies whose content depends on everything that happened before, or on the machine
BODY_VARIES = {
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.VIEW_BROKER_STATS_DATA,
}
PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
RECORD_BODIES = PULLS | {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}
# Requests that other capabilities answer; their conversations are compared elsewhere
ELSEWHERE = {
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
}

# Scenes that need what an earlier one left behind come after it
LIVES = [
    ["send-sync", "send-async", "send-oneway", "send-batch", "send-auto-create"],
    ["send-sync", "query"],
    ["send-bodies"],
    ["push-clustering"],
    ["push-two-consumers"],
    ["push-broadcasting"],
    ["orderly"],
    ["lite-pull"],
    ["filter-tag"],
    ["filter-sql"],
    [
        "send-sync",
        "admin-updateTopic",
        "admin-deleteTopic",
        "admin-updateSubGroup",
        "admin-getConsumerConfig",
        "admin-deleteSubGroup",
        "admin-brokerStatus",
        "admin-getBrokerConfig",
        "admin-updateBrokerConfig",
        "admin-topicStatus",
        "admin-statsAll",
        "admin-queryCq",
        "admin-queryMsgById",
        "admin-queryMsgByKey",
        "admin-queryMsgByUniqueKey",
        "admin-printMsg",
        "admin-haStatus",
    ],
]


class Frame:
    """One line of a recording."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.connection: int = line["conn"]
        self.is_from_client = line["from"] == "client"
        self.command = decode_frame(bytes.fromhex(line["hex"])[4:])


def frames(scene: str) -> Iterator[Frame]:
    with gzip.open(GOLDEN / f"{scene}.json.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if "hex" in line and line["link"] == "client-broker":
                yield Frame(line)


class Replay:
    """Plays recordings to a broker and gathers every difference."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.connections: dict[int, Any] = {}
        self.asked: dict[tuple[int, int], tuple[Command, asyncio.Future[Command]]] = {}
        self.differences: list[str] = []
        self.compared = 0

    async def play(self, scene: str) -> None:
        for frame in frames(scene):
            if frame.is_from_client and not frame.command.is_response:
                await self._ask(frame)
            elif not frame.is_from_client and frame.command.is_response:
                await self._compare(scene, frame)

    async def _ask(self, frame: Frame) -> None:
        await self.node.clock.advance(0.05)  # requests came one after the other; waiting pulls end in that order
        client = self.connections.get(frame.connection)
        if client is None:
            client = self.connections[frame.connection] = self.node.connect()
        connection: Connection = await client.remoting.connect(self.node.address)
        recorded = frame.command
        command = Command.request(recorded.code, recorded.ext, recorded.body, oneway=recorded.is_oneway)
        if recorded.is_oneway:
            connection.send_oneway(command)
            return
        answer = asyncio.ensure_future(connection.request(command, 20))
        self.asked[frame.connection, recorded.opaque] = (recorded, answer)
        await asyncio.sleep(0)

    async def _compare(self, scene: str, frame: Frame) -> None:
        asked = self.asked.pop((frame.connection, frame.command.opaque), None)
        if asked is None:
            return  # asked before the recording began
        request, answer = asked
        if request.code in ELSEWHERE:
            return
        theirs = frame.command
        is_wait = request.code in PULLS and theirs.code != ResponseCode.SUCCESS
        ours = await self._answer(answer, is_wait=is_wait)
        if (ours.code, theirs.code) == (ResponseCode.PULL_NOT_FOUND, ResponseCode.SUBSCRIPTION_NOT_EXIST) and is_wait:
            return
        name = f"{scene}: {RequestCode(request.code).name} {request.ext}"
        self.compared += 1
        self._note(name, "code", ours.code, theirs.code)
        if (theirs.remark is None) != (ours.remark is None) or not (ours.remark or "").startswith(
            (theirs.remark or "").split("\n")[0]
        ):
            self._note(name, "remark", ours.remark, theirs.remark)
        self._note(name, "ext names", sorted(ours.ext), sorted(theirs.ext))
        for key in set(ours.ext) & set(theirs.ext) - VARIES:
            self._note(name, key, ours.ext[key], theirs.ext[key])
        if theirs.code == ResponseCode.SUCCESS and request.code not in BODY_VARIES:
            self._note(name, "body", _comparable(request, ours), _comparable(request, theirs))

    async def _answer(self, answer: asyncio.Future[Command], *, is_wait: bool) -> Command:
        """An answer to a pull that found nothing may be one that waited: then time has to pass."""
        longpoll = self.node.broker.longpoll
        if is_wait:
            await asyncio.wait([answer], timeout=PATIENCE_S)
        while is_wait and not answer.done():
            waiting = longpoll.count
            await self.node.clock.advance(0.1)
            if longpoll.count < waiting:
                await asyncio.wait([answer], timeout=PATIENCE_S)
        return await answer

    def _note(self, name: str, what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            self.differences.append(f"{name}: {what}\n    ours   {ours!r}\n    theirs {theirs!r}")


def _comparable(request: Command, answer: Command) -> Any:
    """The content of a body without times and places."""
    if request.code in RECORD_BODIES:
        return [
            (record.topic, record.queue_id, record.queue_offset, record.flag, record.body, record.sys_flag,
             record.reconsume_times, record.properties)
            for record in decode_records(answer.body)
        ]  # fmt: skip
    return _without_times(fastjson.loads(answer.body)) if answer.body else b""


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_times(each)
            for key, each in value.items()
            if key not in ("lastUpdateTimestamp", "physicOffset", "dataVersion", "subVersion", "tps", "topicPutTps")
        }
    if isinstance(value, list):
        return sorted((_without_times(each) for each in value), key=repr)
    return value


@pytest.mark.parametrize("scenes", LIVES, ids=lambda scenes: scenes[-1])
async def test_a_recorded_conversation_is_answered_as_apache_answered_it(make_node: Any, scenes: list[str]) -> None:
    node = await make_node(**RECORDED_SETTINGS)
    replay = Replay(node)
    for scene in scenes:
        await replay.play(scene)
    assert replay.compared > 0
    assert not replay.differences, "\n".join(replay.differences)

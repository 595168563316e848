"""Offset reset: on the server, by the clients, with and without force; and what clients say of themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arrowmq.remoting.handlers import Answer
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import GetConsumerStatusBody, ResetOffsetBody
from arrowmq.wire.codes import LanguageCode, RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue


async def ten_messages(node: Any) -> None:
    """Ten in queue 0 of orders, a second apart, all consumed."""
    for number in range(10):
        await node.client.send("orders", b"%d" % number)
        await node.clock.advance(1)
    await node.client.pull("orders")
    for queue_id in range(4):
        node.broker.offsets.commit("G", "orders", queue_id, 10 if queue_id == 0 else 0)


async def reset(node: Any, timestamp: int, language: int | None = None, **more: Any) -> Command:
    header = {"topic": "orders", "group": "G", "timestamp": timestamp, "isForce": True, **more}
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in header.items()}
    command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, texts)
    if language is not None:
        command.language = language
    return await node.client.remoting.invoke(node.address, command, 20)


def offsets(answer: Command) -> dict[int, int]:
    table = fastjson.loads(answer.body, type=ResetOffsetBody).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


async def test_the_next_pull_of_a_reset_group_goes_to_the_new_offset(node: Any) -> None:
    await ten_messages(node)
    answer = await reset(node, node.clock.now_ms() - 5_500)
    assert offsets(answer) == {0: 5, 1: 0, 2: 0, 3: 0}
    moved = await node.client.pull("orders", 10)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
    assert node.client.bodies(await node.client.pull("orders", 5)) == [b"5", b"6", b"7", b"8", b"9"]


async def test_a_pull_that_waits_for_the_next_message_is_told_of_a_reset_at_once(node: Any) -> None:
    await ten_messages(node)
    waiting = node.client.asking(RequestCode.PULL_MESSAGE, node.client.pull_header("orders", 10, sysFlag=6))
    await node.eventually(lambda: node.broker.longpoll.waiting_in("orders", 0) == 1)
    await reset(node, 0)
    answer = await waiting
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


async def test_a_commit_made_before_the_reset_arrived_does_not_undo_it(node: Any) -> None:
    await ten_messages(node)
    await reset(node, 0)
    header = {"consumerGroup": "G", "topic": "orders", "queueId": 0, "commitOffset": 10}
    await node.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert node.broker.offsets.get("G", "orders", 0) == 0


async def test_an_acknowledged_reset_and_a_clone_survive_a_crash(node: Any) -> None:
    await ten_messages(node)
    await reset(node, node.clock.now_ms() - 5_500)
    header = {"srcGroup": "G", "destGroup": "H", "topic": "orders", "offline": True}
    assert (await node.client.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code == ResponseCode.SUCCESS
    await node.crash()
    assert [node.broker.offsets.get(group, "orders", 0) for group in ("G", "H")] == [5, 5]


async def test_a_time_below_zero_means_the_end(node: Any) -> None:
    await ten_messages(node)
    node.broker.offsets.commit("G", "orders", 0, 2)
    assert offsets(await reset(node, -1))[0] == 10


async def test_one_queue_is_reset_to_an_exact_offset_within_its_bounds(node: Any) -> None:
    await ten_messages(node)
    assert offsets(await reset(node, 0, queueId=0, offset=7)) == {0: 7}
    refused = await reset(node, 0, queueId=0, offset=99)
    assert "Target offset 99 not in consume queue range [0-10]" in (refused.remark or "")


async def test_unknown_topics_and_groups_are_refused(node: Any) -> None:
    await ten_messages(node)
    assert (await reset(node, 0, topic="nothing")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await reset(node, 0, group="nobody")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# By the clients


@pytest.fixture
async def old(make_node: Any) -> Any:
    return await make_node(useServerSideResetOffset="false")


async def consumer(node: Any, told: list[Command]) -> None:
    client = node.connect()
    client.remoting.on_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, lambda call: told.append(call.command))
    await client.heartbeat("consumer", topics={"orders": "*"})


async def test_online_clients_are_told_their_new_offsets(old: Any) -> None:
    await ten_messages(old)
    told: list[Command] = []
    await consumer(old, told)
    answer = await reset(old, old.clock.now_ms() - 5_500)
    assert offsets(answer) == {0: 5, 1: 0, 2: 0, 3: 0}
    await old.eventually(lambda: told)
    assert (offsets(told[0]), told[0].is_oneway) == (offsets(answer), True)
    assert (told[0].ext["group"], told[0].ext["topic"]) == ("G", "orders")


async def test_without_force_nobody_is_sent_ahead(old: Any) -> None:
    await ten_messages(old)
    old.broker.offsets.commit("G", "orders", 0, 3)
    await consumer(old, [])
    assert offsets(await reset(old, old.clock.now_ms() - 1_500, isForce=False))[0] == 3
    assert offsets(await reset(old, old.clock.now_ms() - 8_500, isForce=False))[0] == 2
    assert offsets(await reset(old, old.clock.now_ms() - 1_500, isForce=True))[0] == 9


async def test_a_cpp_tool_makes_the_list_form(old: Any) -> None:
    await ten_messages(old)
    told: list[Command] = []
    await consumer(old, told)
    await reset(old, 0, language=LanguageCode.CPP)
    await old.eventually(lambda: told)
    first = json.loads(told[0].body)["offsetTable"][0]
    assert first == {"brokerName": "broker-a", "offset": 0, "queueId": 0, "topic": "orders"}


async def test_a_group_that_is_not_online_is_said_to_be_so(old: Any) -> None:
    await ten_messages(old)
    answer = await reset(old, 0)
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert (await reset(old, 0, group="nobody")).code == ResponseCode.SYSTEM_ERROR


# Status


async def test_every_member_tells_how_far_it_is(node: Any) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    for name, offset in (("one", 5), ("two", 7)):
        client = node.connect()
        body = fastjson.dumps(GetConsumerStatusBody(message_queue_table={queue: offset}))
        client.remoting.on_request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, lambda call, body=body: Answer(body=body)
        )
        await client.heartbeat(name, topics={"orders": "*"})
    header = {"topic": "orders", "group": "G"}
    answer = await node.client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    table = fastjson.loads(answer.body, type=GetConsumerStatusBody).consumer_table
    assert table == {"one": {queue: 5}, "two": {queue: 7}}
    header["clientAddr"] = "two"
    answer = await node.client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert list(fastjson.loads(answer.body, type=GetConsumerStatusBody).consumer_table) == ["two"]


async def test_nobody_online_has_no_status(node: Any) -> None:
    header = {"topic": "orders", "group": "G"}
    answer = await node.client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR

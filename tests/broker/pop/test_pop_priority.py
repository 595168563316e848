"""Goal: a message with a priority lies in the queue of that number, and pop gives out the highest first."""

from __future__ import annotations

from typing import Any

import pytest
from popping import INVISIBLE_MS, Popping

from arrowmq.wire.codes import RequestCode, ResponseCode

PRIORITY = "_SYS_MSG_PRIORITY_"


async def make_topic(node: Any, kind: str = "PRIORITY", queues: int = 4) -> None:
    header = {
        "topic": "jobs", "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": f"+message.type={kind}",
    }  # fmt: skip
    answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert ResponseCode.SUCCESS == answer.code, answer.remark


async def send(node: Any, priority: object, *, properties: str = "", queue_id: int = 1) -> Any:
    text = f"{PRIORITY}\x01{priority}\x02{properties}"
    return await node.client.send("jobs", f"p{priority}".encode(), properties=text, queue_id=queue_id)


@pytest.mark.parametrize(("priority", "queue_id"), [(0, 0), (2, 2), (3, 3), (9, 3), (-1, 1), ("x", 1)])
async def test_the_priority_chooses_the_queue(node: Any, priority: object, queue_id: int) -> None:
    await make_topic(node)
    answer = await send(node, priority)
    assert (ResponseCode.SUCCESS, str(queue_id)) == (answer.code, answer.ext["queueId"])
    assert 1 == node.broker.store.max_offset("jobs", queue_id)


async def test_a_delayed_message_loses_its_priority(node: Any) -> None:
    await make_topic(node)
    await send(node, 3, properties="__SHARDINGKEY\x01a\x02")
    (record,) = Popping.records_of(node, "jobs", 1)
    assert PRIORITY not in record.properties


@pytest.mark.parametrize(
    ("ascending", "expected"), [("true", [b"p3", b"p2", b"p1", b"p0"]), ("false", [b"p0", b"p1", b"p2", b"p3"])]
)
async def test_pop_gives_out_the_highest_first(make_node: Any, ascending: str, expected: list[bytes]) -> None:
    node = await make_node(priorityOrderAsc=ascending)
    await make_topic(node)
    for priority in (1, 3, 0, 2):
        await send(node, priority)
    popping = Popping(node, topic="jobs")
    assert expected == [(await popping.pop(1)).bodies[0] for _ in range(4)]


async def test_retries_of_a_priority_topic_come_last_and_with_queues_of_their_own_by_priority(make_node: Any) -> None:
    node = await make_node(useSeparateRetryQueue="true")
    await make_topic(node)
    for priority in (1, 3):
        await send(node, priority)
    popping = Popping(node, topic="jobs")
    assert [b"p3", b"p1"] == (await popping.pop()).bodies
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    await send(node, 0)
    assert 4 == node.broker.topics.get("%RETRY%G_jobs").write_queue_nums
    assert [b"p0", b"p3", b"p1"] == (await popping.pop()).bodies


async def test_a_group_may_leave_priorities_out(node: Any) -> None:
    await make_topic(node, queues=2)
    group = {"groupName": "G", "attributes": {"+priority.factor": "0"}}
    answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    assert ResponseCode.SUCCESS == answer.code, answer.remark
    await node.restart()
    for number in range(40):
        await send(node, number % 2)
    popping = Popping(node, topic="jobs")
    taken = [(await popping.pop(1)).bodies[0] for _ in range(40)]
    assert b"p0" in taken[:20]
    wrong = {"groupName": "G", "attributes": {"+priority.factor": "101"}}
    answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, wrong)
    assert (ResponseCode.SYSTEM_ERROR, True) == (answer.code, "range(0, 100)" in answer.remark)
    group["attributes"] = {"-priority.factor": ""}
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    assert {} == node.broker.groups.get("G").attributes

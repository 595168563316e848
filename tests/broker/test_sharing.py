"""Sharing queues: locks of orderly consumers, and assignments that the broker decides."""

from __future__ import annotations

from typing import Any

import pytest

from arrowmq.broker.groups.assignment import allocate, allocate_for_pop
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(8)]


async def lock(node: Any, client_id: str, *queue_ids: int, code: RequestCode = RequestCode.LOCK_BATCH_MQ) -> list[int]:
    queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": queue_id} for queue_id in queue_ids]
    answer = await node.client.ask(code, {}, {"consumerGroup": "G", "clientId": client_id, "mqSet": queues})
    assert answer.code == ResponseCode.SUCCESS
    return sorted(queue["queueId"] for queue in fastjson.loads(answer.body)["lockOKMQSet"]) if answer.body else []


async def test_a_queue_is_locked_by_one_client_until_it_lets_go(node: Any) -> None:
    assert await lock(node, "c1", 0, 1) == [0, 1]
    assert await lock(node, "c2", 1, 2) == [2]
    await lock(node, "c1", 1, code=RequestCode.UNLOCK_BATCH_MQ)
    assert await lock(node, "c2", 1) == [1]


async def test_only_the_owner_can_unlock(node: Any) -> None:
    await lock(node, "c1", 0)
    await lock(node, "c2", 0, code=RequestCode.UNLOCK_BATCH_MQ)
    assert await lock(node, "c2", 0) == []


async def test_who_says_no_client_id_unlocks_what_it_holds_and_nothing_else(node: Any) -> None:
    """Found by the fuzzers: a queue that nobody held counted as held by one without an id."""
    await lock(node, "c1", 0)
    await lock(node, "", 0, 1, code=RequestCode.UNLOCK_BATCH_MQ)
    assert await lock(node, "c2", 0, 1) == [1]


async def test_a_lock_lives_for_a_minute_from_its_last_renewal(node: Any) -> None:
    await lock(node, "c1", 0)
    await node.clock.advance(40)
    assert await lock(node, "c1", 0) == [0]
    await node.clock.advance(59)
    assert await lock(node, "c2", 0) == []
    assert node.broker.locks.is_held("G")
    await node.clock.advance(2)
    assert not node.broker.locks.is_held("G")
    assert await lock(node, "c2", 0) == [0]


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
@pytest.mark.parametrize("count", [1, 3, 5, 8, 11])
def test_every_queue_goes_to_exactly_one_client(strategy: str, count: int) -> None:
    clients = [f"c{number:02}" for number in range(count)]
    shares = [allocate(strategy, client, QUEUES, clients) or [] for client in clients]
    assert sorted(queue for share in shares for queue in share) == QUEUES
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_strategies_deal_as_apache_does() -> None:
    clients = ["a", "b", "c"]
    assert [queue.queue_id for queue in allocate("AVG", "b", QUEUES, clients) or []] == [3, 4, 5]
    assert [queue.queue_id for queue in allocate("AVG_BY_CIRCLE", "b", QUEUES, clients) or []] == [1, 4, 7]
    assert allocate("AVG", "stranger", QUEUES, clients) == []
    assert allocate("CONSISTENT_HASH", "a", QUEUES, clients) is None


def test_popping_clients_share_queues() -> None:
    clients = ["a", "b", "c", "d"]
    assert allocate_for_pop("AVG", "a", QUEUES, clients, 0) == [MessageQueue("orders", "broker-a", -1)]
    assert [queue.queue_id for queue in allocate_for_pop("AVG", "d", QUEUES, clients, 1) or []] == [6, 7, 0, 1]
    many = [f"c{number:02}" for number in range(20)]
    assert allocate_for_pop("AVG", "c09", QUEUES, many, 2) == [QUEUES[1]]


async def assignments(node: Any, client_id: str, **more: Any) -> Any:
    body = {
        "topic": "orders", "consumerGroup": "G", "clientId": client_id, "strategyName": "AVG",
        "messageModel": "CLUSTERING",
        **more,
    }  # fmt: skip
    answer = await node.client.ask(RequestCode.QUERY_ASSIGNMENT, {}, body)
    found = fastjson.loads(answer.body).get("messageQueueAssignments")
    return None if found is None else [(each["messageQueue"]["queueId"], each["mode"]) for each in found]


async def test_the_broker_assigns_queues_to_the_members_it_knows(node: Any) -> None:
    await node.client.send("orders")
    assert await assignments(node, "c1") is None
    first, second = node.connect(), node.connect()
    await first.heartbeat("c1", topics={"orders": "*"})
    await second.heartbeat("c2", topics={"orders": "*"})
    assert await assignments(node, "c1") == [(0, "PULL"), (1, "PULL")]
    assert await assignments(node, "c2") == [(2, "PULL"), (3, "PULL")]
    assert len(await assignments(node, "c2", messageModel="BROADCASTING")) == 4
    assert await assignments(node, "c1", strategyName="MINE") is None


async def test_a_group_can_be_told_to_pop_and_that_is_kept(node: Any) -> None:
    await node.client.send("orders")
    await node.client.heartbeat("c1", topics={"orders": "*"})
    wanted = {"topic": "orders", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
    assert (await node.client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, wanted)).code == ResponseCode.SUCCESS
    assert await assignments(node, "c1") == [(-1, "POP")]
    await node.restart()
    answer = await node.client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert fastjson.loads(answer.body)["messageRequestModeMap"]["orders"]["G"]["mode"] == "POP"
    refused = await node.client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, {**wanted, "topic": "%RETRY%G"})
    assert refused.code == ResponseCode.NO_PERMISSION


async def set_mode(node: Any, **more: Any) -> Any:
    body = {"topic": "orders", "consumerGroup": "G", "mode": "PULL", "popShareQueueNum": 0, **more}
    return await node.client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)


async def test_a_mode_for_a_group_that_does_not_exist_yet_makes_the_group(node: Any) -> None:
    await node.client.send("orders")
    assert ResponseCode.SUCCESS == (await set_mode(node, consumerGroup="soon")).code
    await node.restart()
    assert node.broker.groups.get("soon") is not None


async def test_a_mode_makes_no_group_where_groups_are_made_by_hand_or_the_mode_is_unknown(make_node: Any) -> None:
    node = await make_node(autoCreateSubscriptionGroup="false")
    await node.client.send("orders")
    refused = await set_mode(node, consumerGroup="soon")
    assert ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST == refused.code
    assert "autoCreateSubscriptionGroup is false" in (refused.remark or "")
    open_node = await make_node()
    await open_node.client.send("orders")
    assert ResponseCode.INVALID_PARAMETER == (await set_mode(open_node, consumerGroup="soon", mode="PUSH")).code
    assert open_node.broker.groups.get("soon") is None

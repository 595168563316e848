"""Clients: who is registered, what the others are told, and how they leave."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ConsumerConnection, ProducerTableInfo
from arrowmq.wire.codes import RequestCode, ResponseCode


async def members(node: Any, group: str = "G") -> list[str]:
    answer = await node.client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if answer.code != ResponseCode.SUCCESS:
        return []
    return sorted(fastjson.loads(answer.body)["consumerIdList"])


def notices(client: Any) -> list[str]:
    return [notice.ext["consumerGroup"] for notice in client.notices]


async def test_a_heartbeat_registers_consumer_producer_and_retry_topic(node: Any) -> None:
    answer = await node.client.heartbeat("c1", topics={"orders": "*"}, producer="P")
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert await members(node) == ["c1"]
    assert node.broker.topics.get("%RETRY%G").write_queue_nums == 1
    assert node.broker.groups.get("G") is not None
    assert list(node.broker.clients.producers) == ["P"]


async def test_nobody_online_is_said_so(node: Any) -> None:
    answer = await node.client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert (answer.code, answer.remark.startswith("no consumer for this group, G")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_members_are_told_when_one_joins_leaves_and_is_lost(node: Any) -> None:
    first, second, third = node.connect(), node.connect(), node.connect()
    await first.heartbeat("c1", topics={"orders": "*"})
    await node.eventually(lambda: notices(first) == ["G"])
    await second.heartbeat("c2", topics={"orders": "*"})
    await node.eventually(lambda: notices(first) == ["G"] * 2 and notices(second) == ["G"])
    await third.heartbeat("c3", topics={"orders": "*"})
    await node.eventually(lambda: len(notices(first)) == 3)
    await second.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "G"})
    await node.eventually(lambda: len(notices(first)) == 4)
    await third.close()
    await node.eventually(lambda: len(notices(first)) == 5)
    assert await members(node) == ["c1"]


async def test_an_unchanged_heartbeat_tells_nobody(node: Any) -> None:
    client = node.connect()
    await client.heartbeat("c1", topics={"orders": "*"})
    await node.eventually(lambda: notices(client))
    for _ in range(3):
        await client.heartbeat("c1", topics={"orders": "*"})
    assert notices(client) == ["G"]


async def test_broadcasting_groups_and_groups_that_do_not_want_it_are_not_told(node: Any) -> None:
    client = node.connect()
    await client.heartbeat("c1", group="B", topics={"orders": "*"}, model="BROADCASTING")
    node.broker.groups.find("Q").notify_consumer_ids_changed_enable = False
    await client.heartbeat("c1", group="Q", topics={"orders": "*"})
    await client.heartbeat("c1", group="G", topics={"orders": "*"})
    await node.eventually(lambda: notices(client))
    assert notices(client) == ["G"]


async def test_a_silent_client_is_hung_up_on_after_two_minutes_and_the_others_are_told(node: Any) -> None:
    silent, lively = node.connect(), node.connect()
    await silent.heartbeat("c1", topics={"orders": "*"})
    await lively.heartbeat("c2", topics={"orders": "*"})
    await node.clock.advance(100)
    await lively.heartbeat("c2", topics={"orders": "*"})
    assert await members(node) == ["c1", "c2"]
    before = len(notices(lively))
    await node.clock.advance(31)
    assert await members(node) == ["c2"]
    await node.eventually(lambda: len(notices(lively)) > before)


async def test_a_client_without_a_group_that_may_be_made_is_ignored(make_node: Any) -> None:
    node = await make_node(autoCreateSubscriptionGroup="false")
    answer = await node.client.heartbeat("c1", topics={"orders": "*"})
    assert answer.code == ResponseCode.SUCCESS
    assert await members(node) == []


async def test_topics_that_a_heartbeat_no_longer_names_are_unsubscribed(node: Any) -> None:
    await node.client.heartbeat("c1", topics={"orders": "*", "payments": "*"})
    await node.client.heartbeat("c1", topics={"orders": "*"})
    assert list(node.broker.clients.consumers["G"].subscriptions) == ["orders"]


async def test_heartbeats_by_fingerprint_keep_the_subscriptions_they_leave_out(node: Any) -> None:
    full = await node.client.heartbeat("c1", topics={"orders": "a"}, heartbeatFingerprint=7)
    short = await node.client.heartbeat("c1", topics={}, heartbeatFingerprint=7, withoutSub=True)
    assert (full.ext["IS_SUB_CHANGE"], short.ext["IS_SUB_CHANGE"]) == ("false", "false")
    assert node.broker.clients.consumers["G"].subscriptions["orders"].sub_string == "a"
    other = await node.client.heartbeat("c1", topics={}, heartbeatFingerprint=8, withoutSub=True)
    assert other.ext["IS_SUB_CHANGE"] == "true"


async def test_after_a_restart_a_short_heartbeat_is_answered_with_the_wish_for_a_full_one(node: Any) -> None:
    await node.client.heartbeat("c1", topics={"orders": "a"}, heartbeatFingerprint=7)
    await node.restart()
    answer = await node.client.heartbeat("c1", topics={}, heartbeatFingerprint=7, withoutSub=True)
    assert answer.ext["IS_SUB_CHANGE"] == "true"


async def test_members_with_different_subscriptions_are_noticed_once_and_counted(
    node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's broker loses messages in silence here."""
    first, second = node.connect(), node.connect()
    with caplog.at_level(logging.WARNING, logger="arrowmq.broker.clients.table"):
        await first.heartbeat("c1", topics={"orders": "red"})
        await second.heartbeat("c2", topics={"orders": "blue"})
        for _ in range(3):
            await first.heartbeat("c1", topics={"orders": "red"})
            await second.heartbeat("c2", topics={"orders": "blue"})
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "c1 has orders TAG 'red'; c2 has orders TAG 'blue'" in warnings[0]
    assert node.broker.clients.differing_subscriptions == 1
    await second.heartbeat("c2", topics={"orders": "red"})
    await second.heartbeat("c2", topics={"orders": "green"})
    assert node.broker.clients.differing_subscriptions == 2


async def test_go_clients_that_send_tag_codes_as_text_are_understood(node: Any) -> None:
    body = (
        b'{"clientID":"go1","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,"topic":"orders",'
        b'"subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":1757000000000000000,"expressionType":"TAG"}],'
        b'"unitMode":false}],"producerDataSet":[]}'
    )
    assert (await node.client.ask(RequestCode.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS
    assert await members(node) == ["go1"]


async def test_a_heartbeat_that_is_no_json_is_refused_and_the_connection_lives_on(node: Any) -> None:
    assert (await node.client.ask(RequestCode.HEART_BEAT, {}, b"\xff{nonsense")).code == ResponseCode.SYSTEM_ERROR
    assert (await node.client.heartbeat("c1", topics={"orders": "*"})).code == ResponseCode.SUCCESS


async def test_connections_are_shown_to_administrators(node: Any) -> None:
    await node.client.heartbeat("c1", topics={"orders": "red"}, producer="P")
    answer = await node.client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
    shown = fastjson.loads(answer.body, type=ConsumerConnection)
    assert [connection.client_id for connection in shown.connection_set] == ["c1"]
    assert shown.subscription_table["orders"].sub_string == "red"
    producers = fastjson.loads((await node.client.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body, type=ProducerTableInfo)
    assert [producer.client_id for producer in producers.data["P"]] == ["c1"]
    offline = await node.client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "X"})
    assert (offline.code, offline.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[X] not online")


async def test_a_filter_expression_can_be_checked_beforehand(make_node: Any) -> None:
    node = await make_node(enablePropertyFilter="true")

    async def check(expression: str) -> int:
        subscription = {"topic": "orders", "subString": expression, "expressionType": "SQL92"}
        body = {"clientId": "c1", "group": "G", "subscriptionData": subscription}
        return int((await node.client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, body)).code)

    assert await check("price > 1") == ResponseCode.SUCCESS
    assert await check("price >") == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_new_group_is_notified_once_more_when_its_members_have_polled_the_route_of_its_retry_topic(
    node: Any,
) -> None:
    """A Java client polls routes every 30 s, a second before its heartbeat, and rebalances 10 s after that."""
    heard = []
    for seconds in (0, 1, 30, 30, 30):
        await node.clock.advance(seconds)
        await node.client.heartbeat("C", topics={"orders": "*"})
        await node.client.send("orders")  # its answer comes after the notice, if there is one
        heard.append(len(notices(node.client)))
    assert [1, 1, 2, 2, 2] == heard

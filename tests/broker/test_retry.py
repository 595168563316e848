"""Retries and dead letters: copies with their delays, limits, and where everything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from arrowmq.broker.names import SCHEDULE_TOPIC
from arrowmq.broker.retry import group_of_retry_topic
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record

DELAYS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


async def first(node: Any, topic: str, offset: int = 0, queue_id: int = 0) -> Record:
    return node.client.records(await node.client.pull(topic, offset, queue_id=queue_id))[0]


async def send_back(node: Any, record: Record, *, level: int = 0, group: str = "G", **more: Any) -> Command:
    header = {"offset": record.physical_offset, "group": group, "delayLevel": level, "originTopic": "orders", **more}
    return await node.client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def test_a_message_comes_back_sixteen_times_each_time_later_and_then_is_dead(node: Any) -> None:
    answer = await node.client.send("orders", b"hard", properties="TAGS\x01t\x02KEYS\x01k\x02", flag=3)
    record = await first(node, "orders")
    for tries, delay_s in enumerate(DELAYS_S):
        assert (await send_back(node, record)).code == ResponseCode.SUCCESS
        await node.clock.advance(delay_s - 0.2)
        assert node.broker.store.max_offset("%RETRY%G", 0) == tries
        await node.clock.advance(0.3)
        record = await first(node, "%RETRY%G", tries)
        assert (record.reconsume_times, record.body, record.flag, record.tag) == (tries + 1, b"hard", 3, "t")
        assert record.properties["RETRY_TOPIC"] == "orders"
        assert record.properties["ORIGIN_MESSAGE_ID"] == answer.ext["msgId"]
        assert record.properties["UNIQ_KEY"] == answer.ext["transactionId"]
    assert (await send_back(node, record)).code == ResponseCode.SUCCESS
    dead = await first(node, "%DLQ%G")
    assert (dead.reconsume_times, dead.body, dead.properties["DELAY"]) == (17, b"hard", "0")
    assert node.broker.topics.get("%DLQ%G").perm == 6


async def test_the_consumer_chooses_its_own_level_or_gives_up(node: Any) -> None:
    await node.client.send("orders", b"one")
    record = await first(node, "orders")
    await send_back(node, record, level=1)
    await node.clock.advance(1.1)
    assert (await first(node, "%RETRY%G")).body == b"one"
    await send_back(node, record, level=-1)
    assert (await first(node, "%DLQ%G")).reconsume_times == 1


async def test_the_consumers_own_maximum_counts_before_the_groups(node: Any) -> None:
    await node.client.send("orders")
    record = await first(node, "orders")
    await send_back(node, record, maxReconsumeTimes=0)
    assert node.broker.store.max_offset("%DLQ%G", 0) == 1


async def test_a_group_without_retry_queues_drops_what_fails(node: Any) -> None:
    await node.client.send("orders")
    record = await first(node, "orders")
    node.broker.groups.get("G").retry_queue_nums = 0
    assert (await send_back(node, record)).code == ResponseCode.SUCCESS
    assert node.broker.store.max_offset(SCHEDULE_TOPIC, 2) == 0


@pytest.mark.parametrize("offset", [1_000_000, 7, -1])
async def test_an_offset_where_no_message_begins_is_refused(node: Any, offset: int) -> None:
    await node.client.send("orders")
    header = {"offset": offset, "group": "G", "delayLevel": 0}
    answer = await node.client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"look message by offset failed, {offset}" in (answer.remark or "")


async def test_an_unknown_group_and_a_read_only_broker_are_refused(make_node: Any) -> None:
    node = await make_node(autoCreateSubscriptionGroup="false")
    await node.client.send("orders")
    answer = await node.client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "G", "delayLevel": 0})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    node.broker.config.broker_permission = 4
    header = {"offset": 0, "group": "TOOLS_CONSUMER", "delayLevel": 0}
    answer = await node.client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_retry_that_the_consumer_sends_itself_is_delayed_and_limited(node: Any) -> None:
    await node.client.pull("orders")  # makes the group
    retry = {"properties": "DELAY\x011\x02RETRY_TOPIC\x01orders\x02"}
    answer = await node.client.send("%RETRY%G", b"again", reconsumeTimes=16, **retry)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await node.clock.advance(1.1)
    assert (await first(node, "%RETRY%G")).reconsume_times == 16
    await node.client.send("%RETRY%G", b"too often", reconsumeTimes=17, **retry)
    await node.client.send("%RETRY%G", b"as it wants", reconsumeTimes=3, maxReconsumeTimes=2, **retry)
    dead = node.client.bodies(await node.client.pull("%DLQ%G"))
    assert dead == [b"too often", b"as it wants"]


async def test_a_group_that_consumes_in_order_sends_straight_to_the_dead_letters(node: Any) -> None:
    await node.client.send("orders")
    await node.client.pull("orders")
    body = {
        "consumerGroup": "G",
        "clientId": "c",
        "mqSet": [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}],
    }
    await node.client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
    await node.client.send("%RETRY%G", b"blocks its queue", properties="DELAY\x011\x02", reconsumeTimes=1)
    assert node.client.bodies(await node.client.pull("%DLQ%G")) == [b"blocks its queue"]
    await node.clock.advance(61)
    await node.client.send("%RETRY%G", b"locks are gone", properties="DELAY\x011\x02", reconsumeTimes=1)
    assert node.broker.store.max_offset("%DLQ%G", 0) == 1


async def test_a_retry_survives_a_restart(node: Any) -> None:
    await node.client.send("orders", b"kept")
    await send_back(node, await first(node, "orders"))
    await node.restart()
    await node.clock.advance(10.2)
    assert (await first(node, "%RETRY%G")).body == b"kept"


async def test_a_committed_message_that_fails_is_no_new_transaction(node: Any) -> None:
    """Send-back keeps TRAN_MSG; a client before 4.6.1 that resends such a message itself must not open one either."""
    await node.client.pull("orders")
    await node.client.send("%RETRY%G", b"old", properties="TRAN_MSG\x01true\x02DELAY\x011\x02", reconsumeTimes=1)
    await node.clock.advance(1.1)
    assert (await first(node, "%RETRY%G")).body == b"old"


@pytest.mark.parametrize(("topic", "group"), [("%RETRY%G", "G"), ("%RETRY%G+orders", "G"), ("%RETRY%a_b", "a_b")])
def test_the_group_is_read_from_its_retry_topic(topic: str, group: str) -> None:
    assert group_of_retry_topic(topic) == group

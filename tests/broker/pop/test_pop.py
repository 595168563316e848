"""Goal: what is popped is invisible for its time, is gone once acknowledged, and comes back if it is not."""

from __future__ import annotations

from typing import Any

import pytest
from popping import INVISIBLE_MS, Popping

from arrowmq.broker.pop import revive_log
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers.pop import parse_offset_info

SECOND = 1.0


async def send(node: Any, *bodies: bytes, topic: str = "orders", queue_id: int = 0, **more: Any) -> None:
    for body in bodies:
        answer = await node.client.send(topic, body, queue_id=queue_id, **more)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.fixture(params=["stored", "merged"])
async def broker(request: Any, make_node: Any) -> Any:
    """With check points stored at once, and with acks merged into them in memory."""
    return await make_node(enablePopBufferMerge=str(request.param == "merged").lower())


async def test_a_popped_message_is_invisible_to_the_group_and_not_to_another(broker: Any) -> None:
    await send(broker, b"a", b"b")
    popping = Popping(broker)
    assert [b"a", b"b"] == (await popping.pop()).bodies
    again = await popping.pop()
    assert (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE") == (again.code, again.answer.remark)
    assert [b"a", b"b"] == (await Popping(broker, group="other").pop()).bodies


async def test_an_unacknowledged_message_comes_back_within_a_second_of_its_time_and_counts(broker: Any) -> None:
    await send(broker, b"a", properties="TAGS\x01blue\x02KEYS\x01k1\x02")
    popping = Popping(broker)
    first = (await popping.pop()).messages[0]
    await broker.clock.advance(INVISIBLE_MS / 1000 - 0.1)
    assert [] == (await popping.pop()).messages
    await broker.clock.advance(0.2)
    again = (await popping.pop()).messages[0]
    assert (b"a", 1, "orders", "blue") == (
        again.body,
        again.record.reconsume_times,
        again.record.topic,
        again.record.tag,
    )
    properties = again.record.properties
    assert str(first.receipt.pop_time) == properties["1ST_POP_TIME"]
    assert ("G", "k1") == (properties["ORIGIN_GROUP"], properties["KEYS"])
    assert "1" == again.receipt.retry_flag
    assert broker.broker.topics.get("%RETRY%G_orders").write_queue_nums == 1


async def test_an_acknowledged_message_does_not_come_back(broker: Any) -> None:
    await send(broker, b"a", b"b", b"c")
    popping = Popping(broker)
    messages = (await popping.pop()).messages
    assert ResponseCode.SUCCESS == (await popping.ack(messages[1])).code
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [b"a", b"c"] == (await popping.pop()).bodies


async def test_a_batch_of_acks_over_several_receipts(broker: Any) -> None:
    await send(broker, b"a", b"b", b"c", queue_id=0)
    await send(broker, b"d", b"e", queue_id=1)
    popping = Popping(broker)
    messages = (await popping.pop()).messages
    assert 5 == len(messages)
    kept = next(message for message in messages if message.body == b"d")
    assert ResponseCode.SUCCESS == (await popping.ack_all([each for each in messages if each is not kept])).code
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [b"d"] == (await popping.pop()).bodies


async def test_acks_twice_late_and_by_strangers_are_answered_and_change_nothing(broker: Any) -> None:
    await send(broker, b"a", b"b")
    popping = Popping(broker)
    first, second = (await popping.pop()).messages
    for _ in range(2):
        assert ResponseCode.SUCCESS == (await popping.ack(first)).code
    stranger = await popping.ack(second, consumerGroup="stranger")
    assert ResponseCode.SUCCESS == stranger.code
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert ResponseCode.SUCCESS == (await popping.ack(second)).code  # too late: it has come back
    assert [b"b"] == (await popping.pop()).bodies
    assert [] == (await popping.pop()).messages


async def test_a_changed_invisible_time_counts_from_now(broker: Any) -> None:
    await send(broker, b"a", b"b")
    popping = Popping(broker)
    first, second = (await popping.pop()).messages
    assert ResponseCode.SUCCESS == (await popping.change(first, 60_000)).code
    assert ResponseCode.SUCCESS == (await popping.change(second, 1000)).code
    await broker.clock.advance(1.1)
    assert [b"b"] == (await popping.pop()).bodies
    await broker.clock.advance(50)
    bodies = (await popping.pop()).bodies
    assert b"a" not in bodies
    await broker.clock.advance(10)
    assert b"a" in bodies + (await popping.pop()).bodies


async def test_an_invisible_time_changed_in_the_millisecond_of_the_pop_keeps_the_message(broker: Any) -> None:
    """Apache's key of a check point is offset and time: the ack of the old one would take the new one with it."""
    await send(broker, b"a")
    popping = Popping(broker)
    message = (await popping.pop(1)).messages[0]
    for _ in range(3):
        assert ResponseCode.SUCCESS == (await popping.change(message, 5000)).code
    await broker.clock.advance(5.2)
    assert [b"a"] == (await popping.pop()).bodies
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [b"a"] == (await popping.pop()).bodies


async def test_of_changes_in_one_millisecond_every_receipt_means_the_message(broker: Any) -> None:
    """The second change by the first receipt got the time of the first, and so looked older than the one between."""
    await send(broker, b"a")
    popping = Popping(broker)
    message = (await popping.pop()).messages[0]
    popped = message.receipt
    await broker.clock.advance(1)
    await popping.change(message, 5000)
    await popping.change(message, 5000)
    between = message.receipt
    message.receipt = popped
    await popping.change(message, 60_000)
    assert message.receipt.pop_time > between.pop_time
    message.receipt = between
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code
    await broker.clock.advance(100)
    assert [] == (await popping.pop()).messages


async def test_a_receipt_from_before_a_reset_does_not_mean_what_was_given_out_after_it(broker: Any) -> None:
    await send(broker, b"a")
    popping = Popping(broker)
    before = (await popping.pop()).messages[0]
    await popping.ack(before)
    header = {"topic": "orders", "group": "G", "timestamp": 0, "isForce": True}
    await broker.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    await broker.clock.advance(1)
    message = (await popping.pop()).messages[0]
    await popping.change(message, 20_000)
    assert ResponseCode.NO_MESSAGE == (await popping.change(before, 60_000)).code
    assert ResponseCode.SUCCESS == (await popping.ack(before)).code
    await broker.restart()
    popping = Popping(broker)
    assert ResponseCode.SUCCESS == (await popping.ack(before)).code
    await broker.clock.advance(21)
    assert [b"a"] == (await popping.pop()).bodies


async def test_every_older_receipt_means_the_message_also_after_a_start(broker: Any) -> None:
    """Of two changes the first lies before the place from which a start reads."""
    await send(broker, b"a")
    popping = Popping(broker)
    message = (await popping.pop()).messages[0]
    popped = message.receipt
    for _ in range(2):
        await broker.clock.advance(1)
        await popping.change(message, 20_000)
    await broker.restart()
    popping = Popping(broker)
    message.receipt = popped
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code
    await broker.clock.advance(21)
    assert [] == (await popping.pop()).messages


async def test_an_older_receipt_of_a_message_means_the_message(broker: Any) -> None:
    """A consumer that extended its time and acknowledges with the receipt it had first has acknowledged."""
    await send(broker, b"a")
    popping = Popping(broker)
    message = (await popping.pop()).messages[0]
    old = message.receipt
    await popping.change(message, 60_000)
    message.receipt = old
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code
    await broker.clock.advance(61)
    assert [] == (await popping.pop()).messages


async def test_an_older_receipt_of_a_message_means_the_message_after_a_restart(broker: Any) -> None:
    """It was taken for one of a check point in the timer, where Apache's broker leaves them, and that alone settled."""
    await send(broker, b"a")
    message = (await Popping(broker).pop()).messages[0]
    old = message.receipt
    await Popping(broker).change(message, 60_000)
    await broker.clock.advance(1)
    await broker.restart()
    message.receipt = old
    assert ResponseCode.SUCCESS == (await Popping(broker).ack(message)).code
    await broker.clock.advance(61)
    assert [] == (await Popping(broker).pop()).messages


async def test_a_stale_receipt_cannot_make_a_message_invisible(broker: Any) -> None:
    await send(broker, b"a", b"b")
    popping = Popping(broker)
    first, second = (await popping.pop()).messages
    await popping.ack(first)
    answer = await popping.change(first, 60_000)
    assert ResponseCode.NO_MESSAGE == answer.code
    assert "is stale" in answer.remark
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert ResponseCode.NO_MESSAGE == (await popping.change(second, 60_000)).code
    assert [b"b"] == (await popping.pop()).bodies


async def test_what_is_in_flight_survives_a_stop_and_a_crash(broker: Any) -> None:
    await send(broker, b"a", b"b", b"c", b"d")
    popping = Popping(broker)
    messages = (await popping.pop(3)).messages
    await popping.ack(messages[0])
    for again in (broker.restart, broker.crash):
        await again()
        popping = Popping(broker)
        later = await popping.pop(10, queueId=0)
        if "merged" not in str(broker.settings) and broker.settings.get("enablePopBufferMerge") != "true":
            assert [b"d"] == later.bodies or [] == later.bodies
    await popping.ack(messages[1])
    await broker.clock.advance(INVISIBLE_MS / 1000 + 3)
    assert b"c" in (await popping.pop()).bodies


async def test_a_crash_gives_nothing_out_twice_that_was_acknowledged(node: Any) -> None:
    """Offsets are written every five seconds; the check points since say how far the group had come."""
    await send(node, b"a", b"b", b"c")
    popping = Popping(node)
    messages = (await popping.pop(2)).messages
    await popping.ack(messages[0])
    await node.crash()
    popping = Popping(node)
    assert [b"c"] == (await popping.pop()).bodies
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"b", b"c"} == set((await popping.pop()).bodies)


async def test_a_crash_does_not_bring_back_twice_what_came_back(node: Any) -> None:
    await send(node, b"a")
    popping = Popping(node)
    await popping.pop()
    await node.clock.advance(INVISIBLE_MS / 1000 + 0.2)
    await node.crash()
    popping = Popping(node)
    assert [b"a"] == (await popping.pop()).bodies
    await node.clock.advance(1)
    assert [] == (await popping.pop()).messages


async def test_a_message_of_a_retry_topic_comes_back_to_the_same_topic(broker: Any) -> None:
    await send(broker, b"a")
    popping = Popping(broker)
    await popping.pop()
    for count in (1, 2, 3):
        await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
        message = (await popping.pop()).messages[0]
        assert (b"a", count) == (message.body, message.record.reconsume_times)
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code
    await broker.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [] == (await popping.pop()).messages


async def test_a_message_that_is_long_invisible_keeps_no_start_reading(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check point is written again, near the end of its revive queue, and it comes back once, at its time."""
    monkeypatch.setattr(revive_log, "CARRY_ABOVE", 20)
    await send(node, b"long")
    popping = Popping(node)
    assert [b"long"] == (await popping.pop(invisibleTime=3_600_000)).bodies
    for number in range(200):
        await send(node, b"%d" % number)
        for message in (await popping.pop()).messages:
            await popping.ack(message)
    await node.clock.advance(11.0)  # the places are noted with the offsets, every five seconds
    log = node.broker.services.pop_revive.log
    assert all(queue.read_offset - queue.noted <= 25 for queue in log.queues)
    await node.crash()
    popping = Popping(node)
    assert [] == (await popping.pop()).messages
    await node.clock.advance(3_600.0)
    again = (await popping.pop()).messages
    assert [b"long"] == [message.body for message in again]
    assert ResponseCode.SUCCESS == (await popping.ack(again[0])).code
    await node.clock.advance(3_600.0)
    assert [] == (await popping.pop()).messages


async def test_retry_topics_of_the_second_version_and_those_of_the_first_beside_them(make_node: Any) -> None:
    node = await make_node()
    await send(node, b"a")
    popping = Popping(node)
    await popping.pop()
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    await node.restart(enableRetryTopicV2="true")
    await send(node, b"b")
    popping = Popping(node)
    assert {b"a", b"b"} == set((await popping.pop()).bodies)
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    back = (await popping.pop()).messages
    assert {(b"a", "1"), (b"b", "2")} == {(message.body, message.receipt.retry_flag) for message in back}
    assert ResponseCode.SUCCESS == (await popping.ack_all(back)).code
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [] == (await popping.pop()).messages
    await node.crash()
    assert node.broker.topics.get("%RETRY%G+orders") is not None


async def test_retries_under_their_own_topic_if_so_configured(make_node: Any) -> None:
    node = await make_node(popResponseReturnActualRetryTopic="true")
    await send(node, b"a")
    popping = Popping(node)
    await popping.pop()
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    message = (await popping.pop()).messages[0]
    assert "%RETRY%G_orders" == message.record.topic
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code


async def test_a_new_group_begins_as_init_mode_says(make_node: Any) -> None:
    node = await make_node(initPopOffsetByCheckMsgInMem="false")
    await send(node, b"a", b"b", b"c")
    assert [b"c"] == (await Popping(node, group="late").pop(initMode=1)).bodies
    assert [b"a", b"b", b"c"] == (await Popping(node, group="early").pop(initMode=0)).bodies
    young = await make_node()
    await send(young, b"a", b"b")
    assert [b"a", b"b"] == (await Popping(young).pop(initMode=1)).bodies


async def test_the_answer_counts_what_it_left_behind(node: Any) -> None:
    await send(node, *(b"%d" % number for number in range(10)))
    popping = Popping(node)
    first = await popping.pop(3)
    assert (3, 7) == (len(first.messages), first.rest)
    assert 0 == (await popping.pop(32)).rest


async def test_filters_by_tag_and_by_properties(node: Any) -> None:
    for number, tag in enumerate(["red", "blue", "red", "green"]):
        await send(node, b"%d" % number, properties=f"TAGS\x01{tag}\x02n\x01{number}\x02")
    tags = Popping(node, group="tags")
    got = await tags.pop(expType="TAG", exp="blue || green")
    assert [b"1", b"3"] == got.bodies
    assert {("0", "0"): [1, 3]} == parse_offset_info(got.answer.ext["msgOffsetInfo"])
    assert ResponseCode.SUCCESS == (await tags.ack(got.messages[1])).code
    sql = Popping(node, group="sql")
    assert [b"2", b"3"] == (await sql.pop(expType="SQL92", exp="n > 1")).bodies
    wrong = await sql.pop(expType="SQL92", exp="n >")
    assert ResponseCode.SUBSCRIPTION_PARSE_FAILED == wrong.code
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert [b"1"] == (await tags.pop(expType="TAG", exp="blue || green")).bodies


async def test_messages_that_nobody_wants_are_passed_by_for_good(node: Any) -> None:
    for _ in range(50):
        await send(node, b"x", properties="TAGS\x01other\x02")
    popping = Popping(node)
    assert [] == (await popping.pop(exp="mine", expType="TAG")).messages
    assert 50 == node.broker.offsets.get("G", "orders", 0)
    waiting = popping.popping(exp="mine", expType="TAG")
    await node.eventually(lambda: node.broker.services.pop.polling.count == 1)
    await send(node, b"y", properties="TAGS\x01mine\x02")
    assert b"y" in (await waiting).body


async def test_the_offset_of_a_group_is_moved_by_an_administrator(broker: Any) -> None:
    await send(broker, b"a", b"b", b"c")
    popping = Popping(broker)
    assert 3 == len((await popping.pop()).messages)
    header = {"topic": "orders", "group": "G", "timestamp": 0, "isForce": True}
    assert ResponseCode.SUCCESS == (await broker.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code
    again = (await popping.pop()).messages
    assert [b"a", b"b", b"c"] == [message.body for message in again]
    assert ResponseCode.SUCCESS == (await popping.ack_all(again)).code


async def test_a_waiting_pop_hears_of_a_reset(broker: Any) -> None:
    await send(broker, b"a")
    popping = Popping(broker)
    await popping.ack_all((await popping.pop()).messages)
    waiting = popping.popping()
    await broker.eventually(lambda: broker.broker.services.pop.polling.count == 1)
    header = {"topic": "orders", "group": "G", "timestamp": 0, "isForce": True}
    await broker.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert ResponseCode.SUCCESS == (await waiting).code


async def test_more_in_flight_than_the_threshold_stops_a_queue_until_acks_come(make_node: Any) -> None:
    node = await make_node(enablePopMessageThreshold="true", popInflightMessageThreshold="4")
    await send(node, *(b"%d" % number for number in range(8)))
    popping = Popping(node)
    messages = (await popping.pop(5)).messages
    blocked = await popping.pop(5)
    assert ([], 3) == (blocked.messages, blocked.rest)
    waiting = popping.popping(5)
    await node.eventually(lambda: node.broker.services.pop.polling.count == 1)
    await popping.ack(messages[0])
    assert ResponseCode.SUCCESS == (await waiting).code


async def test_peek_shows_and_takes_nothing(node: Any) -> None:
    await send(node, b"a", b"b")
    header = {"consumerGroup": "G", "topic": "orders", "queueId": -1, "maxMsgNums": 10}
    for _ in range(2):
        answer = await node.client.ask(RequestCode.PEEK_MESSAGE, header)
        assert ([b"a", b"b"], "2") == (node.client.bodies(answer), answer.ext["restNum"])
    await Popping(node).pop()
    answer = await node.client.ask(RequestCode.PEEK_MESSAGE, header)
    assert (ResponseCode.PULL_NOT_FOUND, "0") == (answer.code, answer.ext["restNum"])


async def test_the_revive_topic_has_apaches_json(node: Any) -> None:
    await send(node, b"a", b"b", b"c")
    popping = Popping(node)
    messages = (await popping.pop()).messages
    receipt = messages[0].receipt
    await popping.ack(messages[0])
    await popping.ack_all(messages[1:])
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    entries = node.broker.store.entries(topic, receipt.revive_queue_id, 0, 10)
    records = [node.broker.store.record_at(entry.physical_offset) for entry in entries]
    at = receipt.pop_time
    assert [
        ("ck", b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2],"it":10000,"n":3,"pt":%d,"q":0,"reviveTime":%d,"ro":0,'
               b'"so":0,"sp":false,"t":"orders"}' % (at, at + 10_000)),
        ("ack", b'{"ao":0,"bn":"broker-a","c":"G","pt":%d,"q":0,"so":0,"t":"orders"}' % at),
        ("bAck", b'{"ao":-1,"aol":[1,2],"bn":"broker-a","c":"G","pt":%d,"q":0,"so":0,"t":"orders"}' % at),
    ] == [(record.tag, record.body) for record in records]  # fmt: skip
    ends = (f"0@G@{at}@broker-a@ck", f"0@G@{at}@broker-a@ack", f"-1@G@{at}@broker-a@ack")
    assert [f"orders@0@{end}" for end in ends] == [record.properties["UNIQ_KEY"] for record in records]


async def test_the_group_of_a_pop_mode_is_told_to_pop(node: Any) -> None:
    await send(node, b"a")
    body = {"topic": "orders", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
    assert ResponseCode.SUCCESS == (await node.client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)).code
    await node.client.heartbeat("C", topics={"orders": "*"})
    asked = {
        "topic": "orders",
        "consumerGroup": "G",
        "clientId": "C",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
    answer = await node.client.ask(RequestCode.QUERY_ASSIGNMENT, {}, asked)
    assignment = fastjson.loads(answer.body)["messageQueueAssignments"][0]
    assert ("POP", -1) == (assignment["mode"], assignment["messageQueue"]["queueId"])

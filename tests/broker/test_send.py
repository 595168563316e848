"""Sends: what is stored, what is answered, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.properties import decode_properties, encode_properties


async def test_a_message_is_stored_and_comes_back_as_it_was(node: Any) -> None:
    answer = await node.client.send("orders", b"one", queue_id=2, properties="TAGS\x01new\x02KEYS\x01k1 k2\x02", flag=7)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (record,) = node.client.records(await node.client.pull("orders", queue_id=2))
    assert (record.body, record.tag, record.keys, record.flag) == (b"one", "new", ["k1", "k2"], 7)
    assert record.properties["CLUSTER"] == "DefaultCluster"
    assert record.properties["MSG_REGION"] == "DefaultRegion"
    assert record.properties["TRACE_ON"] == "true"


async def test_the_answer_names_the_place_of_the_message_and_makes_a_unique_id(node: Any) -> None:
    await node.client.send("orders")
    answer = await node.client.send("orders")
    place = parse_offset_message_id(answer.ext["msgId"])
    (first, second) = node.client.records(await node.client.pull("orders"))
    assert place == (bytes([127, 0, 0, 1]), node.broker.address.port, second.physical_offset)
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "1")
    assert answer.ext["transactionId"] == second.properties["UNIQ_KEY"] != first.properties["UNIQ_KEY"]


async def test_a_unique_id_that_the_client_made_is_kept(node: Any) -> None:
    answer = await node.client.send("orders", properties="UNIQ_KEY\x01C0A8000100002A9F1234567800010000\x02")
    assert answer.ext["transactionId"] == "C0A8000100002A9F1234567800010000"


async def test_the_short_header_names_mean_the_same(node: Any) -> None:
    short = {"a": "P", "b": "orders", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 5, "h": 0, "i": "TAGS\x01t\x02"}
    answer = await node.client.ask(RequestCode.SEND_MESSAGE_V2, short, b"short")
    assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "1")
    assert node.client.bodies(await node.client.pull("orders", queue_id=1)) == [b"short"]


async def test_a_batch_gets_consecutive_offsets_and_one_id_for_each_message(node: Any) -> None:
    items = [(0, b"a", b""), (1, b"", encode_properties({"TAGS": "t"})), (2, b"c", b"")]
    header = {"a": "P", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0, "m": True}
    answer = await node.client.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    stored = node.client.records(await node.client.pull("orders"))
    assert [(record.queue_offset, record.body, record.flag) for record in stored] == [
        (0, b"a", 0),
        (1, b"", 1),
        (2, b"c", 2),
    ]
    assert [parse_offset_message_id(each).physical_offset for each in answer.ext["msgId"].split(",")] == [
        record.physical_offset for record in stored
    ]
    assert answer.ext["queueOffset"] == "0"


async def test_a_broken_batch_is_refused_and_nothing_of_it_is_stored(node: Any) -> None:
    await node.client.send("orders")
    header = {"a": "P", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0, "m": True}
    data = encode_batch([(0, b"a", b""), (0, b"b", b"")])
    answer = await node.client.ask(RequestCode.SEND_BATCH_MESSAGE, header, data[:-3])
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "batch cannot be read" in (answer.remark or "")
    assert node.broker.store.max_offset("orders", 0) == 1


async def test_a_negative_queue_id_lets_the_broker_choose(node: Any) -> None:
    chosen = {(await node.client.send("orders", queue_id=-1)).ext["queueId"] for _ in range(40)}
    assert chosen <= {"0", "1", "2", "3"}
    assert len(chosen) > 1


async def test_a_oneway_send_is_stored_and_not_answered(node: Any) -> None:
    from arrowmq.wire.frames import Command

    header = {"producerGroup": "P", "topic": "orders", "queueId": "0", "bornTimestamp": "1"}
    await node.client.remoting.invoke_oneway(
        node.address, Command.request(RequestCode.SEND_MESSAGE, header, b"quiet", oneway=True)
    )
    await node.eventually(lambda: node.broker.store.max_offset("orders", 0) == 1)
    (record,) = node.client.records(await node.client.pull("orders"))
    assert record.body == b"quiet"


async def test_the_receipt_of_a_pop_does_not_come_in_with_a_message(node: Any) -> None:
    await node.client.send("orders", properties="POP_CK\x01forged\x02TAGS\x01t\x02")
    (record,) = node.client.records(await node.client.pull("orders"))
    assert "POP_CK" not in decode_properties(record.properties_raw)


# What is refused


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ("bad topic!", ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ("x" * 128, ResponseCode.INVALID_PARAMETER, "is longer than topic max length: 127"),
        ("", ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION, "is forbidden"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden"),
    ],
)
async def test_a_topic_that_cannot_be_sent_to(node: Any, topic: str, code: ResponseCode, words: str) -> None:
    answer = await node.client.send(topic)
    assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_an_unknown_topic_without_auto_creation_says_so_and_how_to_create_it(make_node: Any) -> None:
    node = await make_node(autoCreateTopicEnable="false")
    answer = await node.client.send("orders")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark.startswith("topic[orders] not exist, apply first please!")
    assert "autoCreateTopicEnable is false" in answer.remark
    assert "arrowmq topic create orders" in answer.remark
    assert node.broker.topics.get("orders") is None


async def test_an_unknown_template_topic_is_named(node: Any) -> None:
    answer = await node.client.send("orders", defaultTopic="mould")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "template topic[mould]" in answer.remark


async def test_a_queue_id_beyond_the_topic_is_refused_with_its_size(node: Any) -> None:
    await node.client.send("orders")
    answer = await node.client.send("orders", queue_id=4)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark.startswith("request queueId[4] is illegal")
    assert "4 write queues" in answer.remark


async def test_an_empty_body_is_refused_in_a_sentence(node: Any) -> None:
    answer = await node.client.send("orders", b"")
    assert (answer.code, "no body" in answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert node.broker.topics.get("orders") is None


async def test_a_body_over_the_limit_is_refused_before_its_topic_is_made(make_node: Any) -> None:
    node = await make_node(maxMessageSize="1000")
    answer = await node.client.send("orders", b"x" * 1001)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark.startswith(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit 1000B"
    )
    assert node.broker.topics.get("orders") is None


async def test_properties_over_the_limit_are_refused(node: Any) -> None:
    answer = await node.client.send("orders", properties="k\x01" + "v" * 32_760 + "\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "properties" in answer.remark


async def test_before_its_time_the_broker_takes_nothing(make_node: Any) -> None:
    node = await make_node(startAcceptSendRequestTimeStamp="1794769205000")
    assert (await node.client.send("orders")).code == ResponseCode.SYSTEM_ERROR
    await node.clock.advance(5)
    assert (await node.client.send("orders")).code == ResponseCode.SUCCESS


async def test_a_missing_or_malformed_field_is_named(node: Any) -> None:
    missing = await node.client.ask(
        RequestCode.SEND_MESSAGE, {"producerGroup": "P", "queueId": 0, "bornTimestamp": 1}, b"x"
    )
    assert (missing.code, "topic" in missing.remark) == (ResponseCode.SYSTEM_ERROR, True)
    malformed = await node.client.send("orders", queue_id="zero")
    assert (malformed.code, "queueId" in malformed.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert node.broker.topics.get("orders") is None


async def test_an_order_topic_is_closed_with_the_brokers_write_permission_and_others_are_not(make_node: Any) -> None:
    node = await make_node(brokerPermission="4")
    await node.client.send("plain")
    await node.client.send("ordered")
    node.broker.topics.get("ordered").order = True
    assert (await node.client.send("plain")).code == ResponseCode.SUCCESS
    refused = await node.client.send("ordered")
    assert (refused.code, "brokerPermission" in refused.remark) == (ResponseCode.NO_PERMISSION, True)


async def test_under_sync_flush_the_answer_comes_when_the_disk_has_the_message(make_node: Any) -> None:
    node = await make_node(flushDiskType="SYNC_FLUSH")
    answer = await node.client.send("orders", b"safe")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    place = parse_offset_message_id(answer.ext["msgId"]).physical_offset
    assert node.broker.store.flushed_position > place
    assert node.client.bodies(await node.client.pull("orders")) == [b"safe"]

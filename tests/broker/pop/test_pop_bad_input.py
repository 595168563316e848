"""Goal: forged, stale and senseless requests get a clear answer, and nothing is lost by them."""

from __future__ import annotations

from typing import Any

import pytest
from popping import INVISIBLE_MS, Popping

from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode


@pytest.fixture
async def popping(node: Any) -> Popping:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    return Popping(node)


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"bornTime": 1}, ResponseCode.POLLING_TIMEOUT, "pop message is timeout too much"),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER, "num is greater than 32"),
        ({"maxMsgNums": 0}, ResponseCode.INVALID_PARAMETER, "num is less than 1"),
        ({"maxMsgNums": -1}, ResponseCode.INVALID_PARAMETER, "num is less than 1"),
        ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER, "invisibleTime=-1 is not between 0 and 259200000 ms"),
        ({"invisibleTime": 1 << 62}, ResponseCode.INVALID_PARAMETER, "is not between 0 and"),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, "topic[unknown] not exist, apply first please!"),
        ({"queueId": 99}, ResponseCode.INVALID_PARAMETER, "queueId[99] is illegal, topic:[orders]"),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "contains illegal characters"),
        (
            {"exp": "((", "expType": "SQL92"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription",
        ),
        ({"exp": "x", "expType": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "XPATH is unknown"),
        ({"invisibleTime": "soon"}, ResponseCode.SYSTEM_ERROR, "invisibleTime='soon'"),
    ],
)
async def test_a_pop_that_cannot_be(popping: Popping, fields: dict[str, Any], code: int, said: str) -> None:
    refused = await popping.pop(**fields)
    assert code == refused.code
    assert said in refused.answer.remark
    assert [b"a", b"b", b"c"] == (await popping.pop()).bodies


async def test_a_broker_topic_or_group_that_may_not_be_read(make_node: Any) -> None:
    node = await make_node(brokerPermission="2")
    await node.client.send("orders", b"a")
    refused = await Popping(node).pop()
    assert (ResponseCode.NO_PERMISSION, True) == (refused.code, "pop message is forbidden" in refused.answer.remark)


async def test_without_a_timer_nothing_is_popped(make_node: Any) -> None:
    node = await make_node(timerWheelEnable="false")
    await node.client.send("orders", b"a")
    refused = await Popping(node).pop()
    assert ResponseCode.SYSTEM_ERROR == refused.code
    assert "timerWheelEnable is false" in refused.answer.remark


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, "topic[unknown] not exist"),
        ({"queueId": -1}, ResponseCode.MESSAGE_ILLEGAL, "queueId[-1] is illegal"),
        ({"queueId": 4}, ResponseCode.MESSAGE_ILLEGAL, "queueId[4] is illegal"),
        ({"offset": -1}, ResponseCode.NO_MESSAGE, "offset is illegal, key:orders@0, commit:-1, store:0~3"),
        ({"offset": 4}, ResponseCode.NO_MESSAGE, "offset is illegal"),
        ({"offset": 1 << 62}, ResponseCode.NO_MESSAGE, "offset is illegal"),
        ({"offset": 2}, ResponseCode.MESSAGE_ILLEGAL, "2 is not among the messages of this receipt"),
        ({"extraInfo": "1 2 3"}, ResponseCode.SYSTEM_ERROR, "has 3 parts instead of 8"),
        ({"extraInfo": "a b c d e f g h"}, ResponseCode.SYSTEM_ERROR, "is damaged"),
        ({"extraInfo": ""}, ResponseCode.SYSTEM_ERROR, "receipt"),
    ],
)
async def test_an_ack_that_cannot_be(popping: Popping, fields: dict[str, Any], code: int, said: str) -> None:
    message = (await popping.pop(2)).messages[0]
    answer = await popping.ack(message, **fields)
    assert code == answer.code
    assert said in answer.remark
    await popping.node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"a", b"b", b"c"} == set((await popping.pop()).bodies)


@pytest.mark.parametrize(
    "receipt", ["0 {at} 10000 7777 0 broker-a 0 0", "5 1 10000 0 0 broker-a 0 0", "0 {later} 1 0 0 x 0 0"]
)
async def test_a_forged_receipt_is_answered_and_acknowledges_nothing(popping: Popping, receipt: str) -> None:
    message = (await popping.pop()).messages[0]
    at = message.receipt.pop_time
    forged = receipt.format(at=at + 1, later=at + 10**12)
    written = popping.node.broker.store.appended
    assert ResponseCode.SUCCESS == (await popping.ack(message, extraInfo=forged)).code
    assert written == popping.node.broker.store.appended
    assert ResponseCode.NO_MESSAGE == (await popping.change(message, 1000, extraInfo=forged)).code
    await popping.node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"a", b"b", b"c"} == set((await popping.pop()).bodies)


@pytest.mark.parametrize("invisible_ms", [-1, 1 << 60])
async def test_a_senseless_invisible_time_changes_nothing(popping: Popping, invisible_ms: int) -> None:
    message = (await popping.pop()).messages[0]
    assert ResponseCode.INVALID_PARAMETER == (await popping.change(message, invisible_ms)).code
    assert ResponseCode.SUCCESS == (await popping.ack(message)).code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"acks":[]}',
        b"nonsense",
        b'{"acks":[{"b":"!!","t":"orders","c":"G","so":0}]}',
        b'{"acks":7}',
        b"[1]",
    ],
)
async def test_a_batch_that_cannot_be(popping: Popping, body: bytes) -> None:
    await popping.pop()
    answer = await popping.client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert answer.code in (ResponseCode.NO_MESSAGE, ResponseCode.SYSTEM_ERROR)
    assert answer.remark
    await popping.node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"a", b"b", b"c"} == set((await popping.pop()).bodies)


async def test_a_poisoned_message_of_the_revive_topic_blocks_nothing(popping: Popping) -> None:
    node = popping.node
    store, log = node.broker.store, node.broker.services.pop_revive.log
    await popping.pop(1)
    bodies = [b"", b"{", b"[]", b'{"n":200,"so":1}', b'{"t":"orders","c":"G","q":"x","so":0,"n":1,"pt":1,"it":1}']
    sound = {"t": "orders", "c": "G", "q": 0, "so": 0, "n": 1, "pt": 1, "it": 1, "d": [0]}
    beyond = {"q": 1 << 40, "so": 1 << 70, "n": 1 << 70, "pt": -(1 << 70), "it": 1 << 63, "d": [1 << 70], "rp": 1 << 40}
    bodies += [fastjson.dumps({**sound, name: number}) for name, number in beyond.items()]
    for body in bodies:
        for queue in log.queues:
            record = store.record_at(store.entries("orders", 0, 0, 1)[0].physical_offset)
            store.put(
                record.replace(topic=log.topic, queue_id=queue.queue_id, body=body, properties_raw=b"TAGS\x01ck\x02")
            )
    await node.clock.advance(0)
    assert len(bodies) * len(log.queues) == sum(queue.unreadable for queue in log.queues)
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"a", b"b", b"c"} == set((await popping.pop()).bodies)
    await node.crash()
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert {b"a", b"b", b"c"} == set((await Popping(node).pop()).bodies)

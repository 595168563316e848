"""Bad input: every request the broker knows, asked wrongly in many ways, is answered, and nobody else notices."""

from __future__ import annotations

import random
from typing import Any

import pytest

from arrowmq.wire.codes import RequestCode, ResponseCode

# Handed on to clients or held back on purpose: their answers depend on somebody else
PATIENT = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
NAMES = [
    "topic", "queueId", "consumerGroup", "group", "groupName", "offset", "timestamp", "commitOffset", "sysFlag", "perm",
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "m", "key", "maxNum", "beginTimestamp", "endTimestamp", "clientID",
    "readQueueNums", "writeQueueNums", "topicFilterType", "order", "producerGroup", "bornTimestamp", "flag",
    "properties",
    "maxMsgNums", "queueOffset", "suspendTimeoutMillis", "subVersion", "subscription", "index", "count", "statsName",
    "statsKey", "attributes", "dataVersion", "topicSeq", "maxTopicNum", "groupSeq", "delayLevel", "msgId",
    "transactionId", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "batch", "clientId", "isForce",
]  # fmt: skip
VALUES = [
    "", "-1", "0", "9223372036854775807", "99999999999999999999", "-9223372036854775808", "2147483648", "1e3", "true",
    "no such thing", "\x00\x01\x02", "%RETRY%", "%s%n", "😀", "x" * 70_000, "{", "T",
]  # fmt: skip
BODIES = [
    b"", b"{", b"{}", b"[]", b"null", b'"text"', b"\xff\xfe\x00", b'{"mqSet":7}', b'{"clientID":[]}', b"[" * 5_000,
    b'{"topicConfigList":[{"topicName":"x y"}]}', b"\x00\x00\x00\x01" * 40,
    b"k=v\n\\u12", b'{"consumerDataSet":[null]}',
]  # fmt: skip


def codes(node: Any) -> list[int]:
    return sorted(set(node.broker.handlers) - {int(code) for code in PATIENT})


async def assert_all_is_well(node: Any) -> None:
    sent = await node.client.send("healthy", b"still here")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    found = await node.client.pull("healthy", int(sent.ext["queueOffset"]))
    assert node.client.bodies(found) == [b"still here"]


async def test_requests_without_fields_and_body_are_answered(node: Any) -> None:
    for code in codes(node):
        answer = await node.client.ask(code)
        assert answer.is_response
        assert answer.code == ResponseCode.SUCCESS or answer.remark, RequestCode(code).name
    await assert_all_is_well(node)


@pytest.mark.parametrize("seed", range(4))
async def test_requests_with_senseless_fields_and_bodies_are_answered(node: Any, seed: int) -> None:
    chance = random.Random(seed)
    await node.client.send("T")
    for code in codes(node):
        for _ in range(6):
            ext = {name: chance.choice(VALUES) for name in NAMES if chance.random() < 0.7}
            answer = await node.client.ask(code, ext, chance.choice(BODIES))
            assert answer.is_response
    await assert_all_is_well(node)


@pytest.mark.parametrize("seed", range(2))
async def test_pulls_with_senseless_fields_are_answered_at_once(node: Any, seed: int) -> None:
    chance = random.Random(seed)
    await node.client.send("T")
    for _ in range(100):
        header = node.client.pull_header("T", sysFlag=4)
        for name in chance.sample(sorted(header), 3):
            header[name] = chance.choice(VALUES)
        if header["sysFlag"] not in (4, "-1"):
            header["sysFlag"] = "4"
        if header["sysFlag"] == "-1":
            continue  # asks to wait, and so it does
        answer = await node.client.ask(RequestCode.PULL_MESSAGE, header)
        assert answer.is_response
    await assert_all_is_well(node)

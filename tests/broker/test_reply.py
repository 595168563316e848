"""Request and reply: the answer reaches the client that asked, and the replying side learns whether it did."""

from __future__ import annotations

from typing import Any

from arrowmq.remoting.handlers import Answer
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import ReplyMessage, decode_header
from arrowmq.wire.properties import parse_properties

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def header(client_id: str | None) -> dict[str, Any]:
    properties = "CORRELATION_ID\x01c-1\x02MSG_TYPE\x01reply\x02"
    if client_id is not None:
        properties += f"REPLY_TO_CLIENT\x01{client_id}\x02"
    return {"a": "P", "b": REPLY_TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 9, "i": properties, "j": 0}


async def test_a_reply_is_pushed_to_the_client_that_asked_and_stored(node: Any) -> None:
    asking, pushed = node.connect(), []
    asking.remoting.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, lambda call: pushed.append(call.command))
    await asking.heartbeat("asker", producer="askers")
    answer = await node.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header("asker"), b"42")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (command,) = pushed
    said = decode_header(ReplyMessage, command.ext)
    assert (command.body, said.topic, said.flag, said.born_timestamp) == (b"42", REPLY_TOPIC, 9, 5)
    assert said.store_host == node.address
    properties = parse_properties(said.properties or "")
    assert properties["CORRELATION_ID"] == "c-1"
    assert properties["PUSH_REPLY_TIME"] == str(said.store_timestamp)
    assert node.client.bodies(await node.client.pull(REPLY_TOPIC)) == [b"42"]
    assert answer.ext["queueOffset"] == "0"


async def test_a_reply_to_somebody_who_is_gone_says_so(node: Any) -> None:
    answer = await node.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header("nobody"), b"42")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <nobody> not found."


async def test_a_reply_without_an_address_is_refused(node: Any) -> None:
    answer = await node.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header(None), b"42")
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_a_client_that_does_not_take_its_reply_is_told_of(node: Any) -> None:
    asking = node.connect()
    refusal = Answer(ResponseCode.SYSTEM_ERROR, remark="nobody waits for this")
    asking.remoting.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, lambda call: refusal)
    await asking.heartbeat("asker", producer="askers")
    answer = await node.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header("asker"), b"42")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "nobody waits for this" in (answer.remark or "")


async def test_replies_need_not_be_stored(make_node: Any) -> None:
    node = await make_node(storeReplyMessageEnable="false")
    await node.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header("nobody"), b"42")
    assert node.broker.store.max_offset(REPLY_TOPIC, 0) == 0

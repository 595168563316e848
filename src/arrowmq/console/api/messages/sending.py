"""Send a message, send one again, let a member consume one on the spot."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import msgspec

from arrowmq.client.errors import ArrowMQError
from arrowmq.client.produce.outgoing import Message
from arrowmq.console.api.declare import Call, Name, Struct, endpoint
from arrowmq.console.api.messages.finding import MessageQuery, find
from arrowmq.console.errors import bad_request
from arrowmq.wire import properties as prop
from arrowmq.wire.message_queue import MessageQueue


class NewMessage(Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Name
    body: Annotated[str, msgspec.Meta(max_length=6 << 20)] = ""
    encoding: Literal["text", "base64", "hex"] = "text"
    tag: str | None = None
    keys: Annotated[list[str], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    order_key: str | None = None
    delay_seconds: Annotated[int, msgspec.Meta(ge=0, le=366 * 86400)] | None = None
    broker: str | None = None
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None


class SentAnswer(Struct, kw_only=True):
    msg_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    status: str


@endpoint("POST", "/api/messages", tag="messages")
async def send_message(call: Call, body: NewMessage) -> SentAnswer:
    """Send a message. Waits until a broker has stored it."""
    wanted = Message(
        body.topic,
        decoded_body(body.body, body.encoding),
        body.tag or None,
        body.keys,
        body.properties or None,
        delay=body.delay_seconds or None,
        order_key=body.order_key or None,
    )
    queue = None
    if body.broker and body.queue_id is not None:
        queue = MessageQueue(body.topic, body.broker, body.queue_id)
    return await send(call, wanted, queue)


async def send(call: Call, wanted: Message, queue: MessageQueue | None = None) -> SentAnswer:
    producer = await call.console.producer(call.visitor)
    try:
        receipt = await producer.send(wanted, queue=queue)
    except TimeoutError as late:
        raise ArrowMQError(f"sending to {wanted.topic} took too long: {late}") from late
    return SentAnswer(
        msg_id=receipt.msg_id,
        topic=wanted.topic,
        broker=receipt.broker_name,
        queue_id=receipt.queue_id,
        queue_offset=receipt.queue_offset,
        status=receipt.status.name,
    )


def decoded_body(text: str, encoding: str) -> bytes:
    try:
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
        if encoding == "hex":
            return bytes.fromhex(text)
        return text.encode()
    except (ValueError, binascii.Error) as wrong:
        raise bad_request(f"the body is no {encoding}: {wrong}") from wrong


class Resend(Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    target: Annotated[str, msgspec.Meta(max_length=255)] = ""


@endpoint("POST", "/api/messages/{id}/resend", tag="messages")
async def resend_message(call: Call, query: MessageQuery, body: Resend) -> SentAnswer:
    """Send a stored message again, as a new one with an id of its own; the old one stays where it is."""
    found = await find(call, MessageQuery(id=query.id, topic=body.topic or query.topic))
    own = {name: value for name, value in found.properties.items() if name not in prop.RESERVED}
    copy = Message(
        body.target or found.topic,
        found.body,
        found.tag,
        found.keys,
        own or None,
        order_key=found.properties.get(prop.SHARDING_KEY),
        flag=found.flag,
    )
    return await send(call, copy)


class Consume(Struct, kw_only=True, forbid_unknown_fields=True):
    group: Name
    client_id: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Consumed(Struct, kw_only=True):
    client_id: str
    result: str
    remark: str | None
    spent_ms: int


@endpoint("POST", "/api/messages/{id}/consume", tag="messages")
async def consume_message(call: Call, query: MessageQuery, body: Consume) -> Consumed:
    """Let a member of a group consume one message on the spot; offsets stay as they are."""
    found = await find(call, query)
    admin = await call.admin()
    client_id = body.client_id
    if not client_id:
        members = (await admin.consumers(body.group)).connection_set
        if not members:
            raise bad_request(f"nobody of group {body.group} is online")
        client_id = members[0].client_id
    result = await admin.consume_directly(body.group, client_id, found.offset_msg_id)
    return Consumed(
        client_id=client_id,
        result=str(result.consume_result),
        remark=result.remark,
        spent_ms=result.spent_time_mills,
    )

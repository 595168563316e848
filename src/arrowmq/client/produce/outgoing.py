"""A message on its way out: what the user says about it, and the properties, flags and bytes that follow from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

import msgspec

from arrowmq.client.errors import InvalidMessage
from arrowmq.wire import properties as prop
from arrowmq.wire.compression import CompressionType, compress

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
COMPRESS_FROM_BYTES = 4096


class Message(msgspec.Struct, frozen=True):
    """What a program sends. At most one of `delay_level`, `delay` and `deliver_at` may be set.

    `order_key` sends messages of equal keys to the same queue, where they stay in order.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] | str = ()
    properties: Mapping[str, str] | None = None
    delay_level: int | None = None
    #: Seconds, or a timedelta
    delay: float | timedelta | None = None
    #: A datetime, or seconds since 1970
    deliver_at: float | datetime | None = None
    order_key: str | None = None
    flag: int = 0
    #: False: the broker answers without waiting for flush and replicas, whatever its own setting.
    wait_store: bool = True


class MessageDetails(TypedDict, total=False):
    """The fields of a message beside topic and body, as keyword arguments."""

    tag: str | None
    keys: Sequence[str] | str
    properties: Mapping[str, str] | None
    delay_level: int | None
    delay: float | timedelta | None
    deliver_at: float | datetime | None
    order_key: str | None
    flag: int
    wait_store: bool


class Packing(msgspec.Struct, frozen=True):
    """How a producer packs: limits and compression."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    compress_from_bytes: int = COMPRESS_FROM_BYTES
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = 5


class Packed:
    """A message ready for the wire, with the id that it keeps over all attempts."""

    __slots__ = ("body", "flag", "message", "msg_id", "properties", "sys_flag", "topic")

    def __init__(
        self, message: Message, topic: str, body: bytes, properties: dict[str, str], sys_flag: int, msg_id: str
    ) -> None:
        self.message = message
        self.topic = topic
        self.body = body
        self.properties = properties
        self.sys_flag = sys_flag
        self.flag = message.flag
        self.msg_id = msg_id

    @property
    def is_delayed(self) -> bool:
        return not _DELAYS.isdisjoint(self.properties)


_DELAYS = prop.TIMERS | {prop.DELAY}


def pack(message: Message, topic: str, msg_id: str, packing: Packing, *, may_compress: bool = True) -> Packed:
    """Check the message and compute what goes on the wire. `topic` is the name with its namespace."""
    body = message.body
    if type(body) is not bytes:
        body = _body_bytes(body)
    if not body:
        raise InvalidMessage(f"the body of a message to {message.topic} is empty; RocketMQ needs at least one byte")
    if len(body) > packing.max_message_bytes:
        raise InvalidMessage(
            f"the body of a message to {message.topic} has {len(body)} bytes, over the limit of "
            f"{packing.max_message_bytes}: raise max_message_bytes here and maxMessageSize at the broker, or split it"
        )
    properties = message_properties(message, msg_id)
    sys_flag = 0
    if may_compress and len(body) >= packing.compress_from_bytes:
        compressed = compress(packing.compression, body, packing.compression_level)
        # Java sends the compressed form even if it grew; the plain form is as correct and smaller.
        if len(compressed) < len(body):
            body, sys_flag = compressed, packing.compression.sys_flag
    return Packed(message, topic, body, properties, sys_flag, msg_id)


def _body_bytes(body: object) -> bytes:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    hint = "encode it first: text.encode()" if isinstance(body, str) else "serialize it first, for example with json"
    raise InvalidMessage(f"a body is bytes, not {type(body).__name__}; {hint}")


def message_properties(message: Message, msg_id: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    if message.properties:
        for name, value in message.properties.items():
            _check_property(name, value)
            properties[name] = value
    if message.tag is not None:
        properties[prop.TAGS] = _tag(message.tag)
    if message.keys:
        properties[prop.KEYS] = _keys(message.keys)
    properties[prop.WAIT] = "true" if message.wait_store else "false"
    if message.order_key is not None:
        properties[prop.SHARDING_KEY] = message.order_key
    _add_delay(message, properties)
    properties[prop.UNIQ_KEY] = msg_id
    return properties


def details_bytes(tag: str | None, keys: Sequence[str] | str, properties: Mapping[str, str] | None) -> bytes:
    """The first of a message's properties, encoded: its own, tag and keys."""
    found: dict[str, str] = {}
    if properties:
        for name, value in properties.items():
            _check_property(name, value)
            found[name] = value
    if tag is not None:
        found[prop.TAGS] = _tag(tag)
    if keys:
        found[prop.KEYS] = _keys(keys)
    return prop.encode_properties(found)


def _check_property(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessage(f"properties are text, {name!r}: {value!r} is not; write str(value)")
    if name in prop.RESERVED:
        raise InvalidMessage(f"property {name} belongs to RocketMQ; use send's own arguments, or another name")
    if not name.strip() or not value.strip():
        raise InvalidMessage(
            f"property {name!r} has the blank value {value!r}, which RocketMQ would drop; leave it out"
        )
    if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
        raise InvalidMessage(f"property {name!r} has the characters 0x01 or 0x02, which RocketMQ separates by")


def _tag(tag: str) -> str:
    if not isinstance(tag, str) or not tag.strip():
        raise InvalidMessage(f"a tag is a word, not {tag!r}; leave it out for a message without a tag")
    if "|" in tag or "\x01" in tag or "\x02" in tag:
        raise InvalidMessage(f"tag {tag!r} has a character that no subscription could name (| or a control character)")
    return tag


def _keys(keys: Sequence[str] | str) -> str:
    if isinstance(keys, str):
        keys = (keys,)
    for key in keys:
        if not isinstance(key, str) or not key or " " in key or "\x01" in key or "\x02" in key:
            raise InvalidMessage(f"key {key!r} cannot be found again: keys are non-empty words without spaces")
    return " ".join(keys)


def _add_delay(message: Message, properties: dict[str, str]) -> None:
    if message.delay_level is None and message.delay is None and message.deliver_at is None:
        return
    given = [value for value in (message.delay_level, message.delay, message.deliver_at) if value is not None]
    if len(given) > 1:
        raise InvalidMessage("give one of delay_level, delay and deliver_at, not several")
    if message.delay_level is not None:
        if message.delay_level < 0:
            raise InvalidMessage(f"delay_level {message.delay_level} is negative; levels start at 1")
        if message.delay_level:
            properties[prop.DELAY] = str(message.delay_level)
    elif message.delay is not None:
        seconds = message.delay.total_seconds() if isinstance(message.delay, timedelta) else float(message.delay)
        if seconds < 0:
            raise InvalidMessage(f"a delay of {seconds} s lies in the past")
        if seconds:
            properties[prop.TIMER_DELAY_MS] = str(round(seconds * 1000))
    elif message.deliver_at is not None:
        moment = message.deliver_at
        seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
        properties[prop.TIMER_DELIVER_MS] = str(round(seconds * 1000))

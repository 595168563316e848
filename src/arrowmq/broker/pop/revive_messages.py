"""Check points and acks as messages of the revive topic, in Apache's JSON and with Apache's tags.

  tag    body
  ck     {"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":60000,"n":2,"pt":17…,"q":0,"reviveTime":17…,"ro":0,"so":7,"sp":false,"t":"T"}
  ack    {"ao":8,"bn":"broker-a","c":"G","pt":17…,"q":0,"so":7,"t":"T"}
  bAck   {"ao":-1,"aol":[7,8],"bn":"broker-a","c":"G","pt":17…,"q":0,"so":7,"t":"T"}

  so start offset, d the offsets relative to it, n their number, pt pop time, it invisible time, q queue, t topic (a
  retry topic if it was popped from there), c group, bn broker, bm acks (0 when written), ro revive offset (of no use in
  the log), rp how often reviving failed, sp whether the consumption is not counted; ao, aol the acknowledged offsets.
  Of our own, which Apache's broker passes over: arrowmqSince, of a message whose invisible time was changed, the time of
  the pop that gave it out

An ack belongs to the check point with the same t, c, q, so, pt and bn.

Apache's broker sends them through the timer, to arrive when they are due. Here they are stored in the revive topic at
once, and TIMER_DELIVER_MS is the time of writing: for Apache's broker the newest such time is how far time has come.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.errors import WireError
from arrowmq.wire.records import Record

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
NO_OFFSET = -1
LARGEST = 1 << 62  # of any number in a message that this broker takes for sound
LARGEST_SHORT = (1 << 31) - 1


class Unreadable(ValueError):
    """A message of the revive topic that is none of the three: it is passed over, and said in the log."""


class _CheckPoint(msgspec.Struct):
    bm: int
    bn: str
    c: str
    d: Sequence[int]
    it: int
    n: int
    pt: int
    q: int
    reviveTime: int
    ro: int
    rp: str | UnsetType
    so: int
    sp: bool
    t: str
    arrowmqSince: int | UnsetType


class _Ack(msgspec.Struct):
    ao: int
    aol: Sequence[int] | UnsetType
    bn: str
    c: str
    pt: int
    q: int
    so: int
    t: str


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class CheckPointMessage:
    topic: str
    group: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]
    pop_time: int
    invisible_ms: int
    broker_name: str
    is_suspend: bool = False
    tries: int = 0
    since_ms: int = 0

    def encode(self) -> bytes:
        return _encode(
            _CheckPoint(
                0,
                self.broker_name,
                self.group,
                [offset - self.start_offset for offset in self.offsets],
                self.invisible_ms,
                len(self.offsets),
                self.pop_time,
                self.queue_id,
                self.pop_time + self.invisible_ms,
                0,
                str(self.tries) if self.tries else UNSET,
                self.start_offset,
                self.is_suspend,
                self.topic,
                self.since_ms or UNSET,
            )
        )

    @property
    def unique_key(self) -> str:
        place = f"{self.topic}@{self.queue_id}@{self.start_offset}"
        return f"{place}@{self.group}@{self.pop_time}@{self.broker_name}@{CHECK_POINT_TAG}"


@dataclass(frozen=True, slots=True)
class AckMessage:
    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str
    offsets: Sequence[int]
    is_batch: bool = False

    def encode(self) -> bytes:
        return _encode(
            _Ack(
                self._ack_offset,
                self.offsets if self.is_batch else UNSET,
                self.broker_name,
                self.group,
                self.pop_time,
                self.queue_id,
                self.start_offset,
                self.topic,
            )
        )

    @property
    def _ack_offset(self) -> int:
        return NO_OFFSET if self.is_batch else self.offsets[0]

    @property
    def tag(self) -> str:
        return BATCH_ACK_TAG if self.is_batch else ACK_TAG

    @property
    def unique_key(self) -> str:
        # Apache's batches of acks have the form of a single one, too
        place = f"{self.topic}@{self.queue_id}@{self._ack_offset}"
        return f"{place}@{self.group}@{self.pop_time}@{self.broker_name}@{ACK_TAG}"


def record_of(
    message: CheckPointMessage | AckMessage,
    revive_topic: str,
    revive_queue: int,
    host: tuple[bytes, int],
    now_ms: int,
    deliver_ms: int,
) -> Record:
    tag = message.tag if isinstance(message, AckMessage) else CHECK_POINT_TAG
    deliver = f"{keys.TIMER_DELIVER_MS}\x01{deliver_ms}\x02"
    properties = f"{deliver}{keys.UNIQ_KEY}\x01{message.unique_key}\x02{keys.TAGS}\x01{tag}\x02"
    return Record(
        topic=revive_topic,
        queue_id=revive_queue,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        body=message.encode(),
        properties_raw=properties.encode(),
    )


def read(record: Record, own_broker: str) -> CheckPointMessage | AckMessage:
    """What a message of the revive topic says. Raises `Unreadable`."""
    try:
        body = fastjson.loads(record.body)
        if not isinstance(body, dict):
            raise Unreadable(f"it is no object: {record.body[:60]!r}")
        if record.tag == CHECK_POINT_TAG:
            return _check_point(body, own_broker)
        if record.tag == ACK_TAG:
            return _ack(body, own_broker, [_number(body, "ao", "ackOffset")], is_batch=False)
        if record.tag == BATCH_ACK_TAG:
            offsets = [_bounded("aol", int(offset)) for offset in _value(body, "aol", "ackOffsetList")]
            return _ack(body, own_broker, offsets, is_batch=True)
    except (WireError, TypeError, ValueError, KeyError) as damage:
        if isinstance(damage, Unreadable):
            raise
        raise Unreadable(f"{type(damage).__name__}: {damage}") from damage
    raise Unreadable(f"its tag is {record.tag}")


def _check_point(body: Mapping[str, Any], own_broker: str) -> CheckPointMessage:
    start, count = _number(body, "so", "startOffset"), _number(body, "n", "num")
    # Written by an old broker, it has no list: its messages follow each other
    diffs = body.get("d")
    if not 0 <= count <= 127:
        raise Unreadable(f"it counts {count} messages")
    offsets = [_bounded("d", start + int(diff)) for diff in diffs] if diffs else list(range(start, start + count))
    if len(offsets) < count:
        raise Unreadable(f"it counts {count} messages and names {len(offsets)}")
    return CheckPointMessage(
        topic=_text(body, "t", "topic"),
        group=_text(body, "c", "cId", "cid"),
        queue_id=_bounded("q", _number(body, "q", "queueId"), LARGEST_SHORT),
        start_offset=start,
        offsets=offsets[:count],
        pop_time=_number(body, "pt", "popTime"),
        invisible_ms=_number(body, "it", "invisibleTime"),
        broker_name=body.get("bn") or body.get("brokerName") or own_broker,
        is_suspend=bool(body.get("sp")),
        tries=_bounded("rp", int(body.get("rp") or 0), LARGEST_SHORT),
        since_ms=_bounded("arrowmqSince", int(body.get("arrowmqSince") or 0)),
    )


def _ack(body: Mapping[str, Any], own_broker: str, offsets: list[int], *, is_batch: bool) -> AckMessage:
    return AckMessage(
        topic=_text(body, "t", "topic"),
        group=_text(body, "c", "consumerGroup"),
        queue_id=_number(body, "q", "queueId"),
        start_offset=_number(body, "so", "startOffset"),
        pop_time=_number(body, "pt", "popTime"),
        broker_name=body.get("bn") or body.get("brokerName") or own_broker,
        offsets=offsets,
        is_batch=is_batch,
    )


def _value(body: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if body.get(name) is not None:
            return body[name]
    raise Unreadable(f"it has no {names[0]}")


def _number(body: Mapping[str, Any], *names: str) -> int:
    return _bounded(names[0], int(_value(body, *names)))


def _bounded(name: str, number: int, largest: int = LARGEST) -> int:
    if not -largest <= number <= largest:
        raise Unreadable(f"its {name} is {number}")
    return number


def _text(body: Mapping[str, Any], *names: str) -> str:
    found = _value(body, *names)
    if not isinstance(found, str) or not found:
        raise Unreadable(f"its {names[0]} is {found!r}")
    return found

"""Every property that RocketMQ reserves and every field of the headers, with values of each kind, on both paths.

The cases come from the lists in `wire`: whoever adds a name there has it tested here.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from talking import has_fast_path
from two_paths import PROPERTY_NAMES, START_MS, VALUES, run, same_on_both

from arrowmq.broker.send.service import REPLACED_PROPERTIES
from arrowmq.wire import properties
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.in_place.fields import END, PULL, SEND, NativeFields

HEADER_VALUES = (
    "",
    "0",
    "1",
    "-1",
    "4",
    "99",
    "true",
    "TRUE",
    "x",
    "+1",
    " 1",
    "99999999999",
    "9" * 25,
    "grüß",
    "Orders",
)


def send_header(number: int, **more: str) -> dict[str, str]:
    return {
        "a": "producers", "b": "Orders", "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0",
        "g": str(START_MS + number), "h": "0", "i": f"UNIQ_KEY\x01{number:032X}\x02", "j": "0", "k": "false", "l": "16",
        "m": "false", "n": "broker-a", **more,
    }  # fmt: skip


def pull_header(**more: str) -> dict[str, str]:
    return {
        "consumerGroup": "readers", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "4",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG", **more,
    }  # fmt: skip


def end_header(**more: str) -> dict[str, str]:
    return {
        "producerGroup": "producers", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
        "fromTransactionCheck": "false", "msgId": "m", "transactionId": "t", "bname": "broker-a", **more,
    }  # fmt: skip


class Stream:
    """Frames numbered from 1, each in one of the two header forms."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.frames: list[bytes] = []

    @property
    def next(self) -> int:
        return len(self.frames) + 1

    def add(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        command = Command.request(code, ext, body, opaque=self.next)
        command.serialize_type = self.dice.randrange(2)
        self.frames.append(encode_frame(command))

    def add_ordinary(self, count: int = 8) -> None:
        for _ in range(count):
            self.add(RequestCode.SEND_MESSAGE_V2, send_header(self.next), b"ordinary")

    def last(self) -> bytes:
        ext = {"topic": "Orders", "queueId": "0"}
        return encode_frame(Command.request(RequestCode.GET_MAX_OFFSET, ext, opaque=self.next))


#: Which of them a step of the general path touches, or the broker writes: no other may keep a message off the fast path
TOUCHED = {properties.DELAY, properties.TRAN_MSG, properties.PRIORITY, *properties.TIMERS, *REPLACED_PROPERTIES}


async def test_every_property_with_every_kind_of_value_is_stored_the_same(tmp_path: Path) -> None:
    stream = Stream(random.Random(1))
    stream.add_ordinary()
    untouched = 0
    for name in PROPERTY_NAMES:
        for value in VALUES:
            item, unique = f"{name}\x01{value}\x02", f"UNIQ_KEY\x01{stream.next:032X}\x02"
            text = stream.dice.choice((item + unique, unique + item))
            stream.add(RequestCode.SEND_MESSAGE_V2, send_header(stream.next, i=text), b"body")
            untouched += name not in TOUCHED and name != properties.UNIQ_KEY
    _, fast = await same_on_both(tmp_path, stream.frames, stream.last(), seed=1)
    if has_fast_path():
        assert untouched <= fast.taken["sent"] <= untouched + 8 + 20, (
            "and where a file is full, the general path is asked"
        )


async def test_every_property_of_a_batch_and_of_its_messages_is_stored_the_same(tmp_path: Path) -> None:
    stream = Stream(random.Random(2))
    stream.add_ordinary()
    for name in PROPERTY_NAMES:
        for value in VALUES:
            item = f"{name}\x01{value}\x02"
            body = encode_batch([(0, b"one", item.encode()), (0, b"two", b"UNIQ_KEY\x01%032X\x02" % stream.next)])
            outer = stream.dice.choice(("", item, f"UNIQ_KEY\x01{stream.next:032X}\x02"))
            stream.add(RequestCode.SEND_BATCH_MESSAGE, send_header(stream.next, m="true", i=outer), body)
    _, fast = await same_on_both(tmp_path, stream.frames, stream.last(), seed=2)
    if has_fast_path():
        assert fast.taken["sent"] > len(stream.frames)


async def test_every_property_of_a_half_message_is_kept_and_published_the_same(tmp_path: Path) -> None:
    """Half messages, then their ends: where each lies is found out before, on a broker that leaves the same."""
    stream = Stream(random.Random(3))
    stream.add_ordinary()
    for name in PROPERTY_NAMES:
        for value in VALUES:
            item = f"{name}\x01{value}\x02"
            text = f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02{item}UNIQ_KEY\x01{stream.next:032X}\x02"
            stream.add(RequestCode.SEND_MESSAGE_V2, send_header(stream.next, f="4", i=text), b"half")
    sent = await run(tmp_path / "places", stream.frames, stream.frames, fast=False)
    for number in range(9, len(sent.answers) + 1):
        (answer,) = FrameSplitter().feed(sent.answers[number])
        if "msgId" in answer.ext:
            place = parse_offset_message_id(answer.ext["msgId"]).physical_offset
            end = end_header(tranStateTableOffset=answer.ext["queueOffset"], commitLogOffset=str(place))
            stream.add(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": stream.dice.choice(("8", "12"))})
    _, fast = await same_on_both(tmp_path, stream.frames, stream.last(), seed=3)
    if has_fast_path():
        assert fast.taken["halves"] > len(sent.answers) // 2
        assert fast.taken["ends"] > len(sent.answers) // 2


CODES_AND_HEADERS = [
    (RequestCode.SEND_MESSAGE_V2, SEND, b"body"),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, encode_batch([(0, b"one", b"UNIQ_KEY\x01a\x02"), (0, b"two", b"")])),
    (RequestCode.PULL_MESSAGE, PULL, b""),
    (RequestCode.END_TRANSACTION, END, b""),
]


@pytest.mark.parametrize(
    ("code", "fields", "body"), CODES_AND_HEADERS, ids=[str(each[0]) for each in CODES_AND_HEADERS]
)
async def test_every_header_field_with_every_kind_of_value_is_answered_the_same(
    tmp_path: Path, code: RequestCode, fields: NativeFields, body: bytes
) -> None:
    """Also without the field, and with fields that no header has."""
    stream = Stream(random.Random(code))
    stream.add_ordinary()
    for name in (*fields.wire_names, "AccessKey", "z", "consumergroup"):
        for value in (*HEADER_VALUES, None):
            if fields is SEND:
                ext = send_header(stream.next, m=str(code == RequestCode.SEND_BATCH_MESSAGE).lower())
            else:
                ext = pull_header() if fields is PULL else end_header()
            ext.pop(name, None)
            stream.add(code, ext if value is None else {**ext, name: value}, body)
        stream.add_ordinary(1)
    await same_on_both(tmp_path, stream.frames, stream.last(), seed=code)

"""The fast path says what the general path says: requests written, answers read in place; native and reference."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq import native
from arrowmq.client.errors import ArrowMQError
from arrowmq.client.produce import _pending_sends_plain as _pending_sends_plain
from arrowmq.client.produce.faults import FaultTable
from arrowmq.client.produce.outgoing import Message, Packing, message_properties, pack
from arrowmq.client.produce.send_frame import FrameStarts
from arrowmq.client.produce.sending import Sender
from arrowmq.clock import VirtualClock
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, FrameError, decode_frame, encode_frame
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.properties import encode_properties

FORMS = [_pending_sends_plain]
if native.is_native(native.load("arrowmq.client.produce._pending_sends")):
    FORMS.append(native.load("arrowmq.client.produce._pending_sends"))  # type: ignore[arg-type]
WORD = st.text(st.characters(exclude_characters="\x01\x02 |\x00", exclude_categories=("Cs",)), min_size=1, max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
QUEUE = MessageQueue("topic", "broker-a", 3)
both_forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.rpartition("_")[2])


class _Session:
    def __init__(self) -> None:
        self.clock = VirtualClock(1_700_000_000_000)


@both_forms
@settings(deadline=None)
@given(
    body=st.binary(min_size=1, max_size=200),
    tag=st.none() | WORD.filter(str.strip),
    properties=st.dictionaries(WORD.map(lambda word: f"p{word}"), WORD.filter(str.strip), max_size=4),
    flag=INT32,
    queue_id=st.integers(0, 9999),
    opaque=st.integers(1, 2**31 - 1),
    is_batch=st.booleans(),
)
def test_both_forms_are_the_same_request(
    form: Any,
    body: bytes,
    tag: str | None,
    properties: dict[str, str],
    flag: int,
    queue_id: int,
    opaque: int,
    is_batch: bool,
) -> None:
    message = Message("topic", body, tag=tag, properties=properties, flag=flag)
    packed = pack(message, "topic", "A" * 32, Packing())
    queue = MessageQueue("topic", "broker-a", queue_id)
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    sender = Sender(_Session(), "group", retries=0)  # type: ignore[arg-type]
    general = sender.request(packed, queue, code)
    start = FrameStarts("group").of("topic", queue, is_batch)
    raw = encode_properties(packed.properties)
    written = form.frame(code, opaque, 0, start, packed.sys_flag, flag, 1_700_000_000_000, raw, packed.body)
    assert len(written) == 4 + int.from_bytes(written[:4], "big")
    direct = decode_frame(written[4:])
    assert (general.code, general.ext, general.body) == (direct.code, direct.ext, bytes(direct.body))
    assert (general.flag, general.version, general.language, opaque) == (
        direct.flag, direct.version, direct.language, direct.opaque,
    )  # fmt: skip


@both_forms
@given(
    tag=st.none() | WORD.filter(str.strip),
    keys=st.lists(WORD.filter(lambda word: not set(word) & set(" \t")), max_size=3),
    properties=st.none() | st.dictionaries(WORD.map(lambda word: f"p{word}"), WORD.filter(str.strip), max_size=3),
    wait_store=st.booleans(),
)
def test_the_short_way_writes_the_properties_of_the_general_way(
    form: Any, tag: str | None, keys: list[str], properties: dict[str, str] | None, wait_store: bool
) -> None:
    message = Message("topic", b"x", tag, keys, properties, wait_store=wait_store)
    expected = encode_properties(message_properties(message, "ID"))
    assert expected == form.properties_bytes(tag, keys, properties, wait_store, "ID")


class Landed:
    """Feeds bytes to one form, with a pending send for each opaque, and says how each ended."""

    def __init__(self, form: ModuleType, opaques: set[int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._form: Any = form
        self.pending_sends = {
            opaque: self._form.PendingSend(
                opaque, "topic", QUEUE, "host:1", None, f"ID{opaque}", 3.0, self._loop.create_future(), None
            )
            for opaque in opaques
        }
        self.consumed: int | str = -1

    def feed(self, data: bytes) -> Landed:
        waiting = dict(self.pending_sends)
        try:
            self.consumed = self._form.settle(waiting, memoryview(data), lambda: 1.0)
        except FrameError as broken:
            self.consumed = str(broken)
        self.waiting = set(waiting)
        self._loop.close()
        return self

    @property
    def outcome(self) -> list[object]:
        ends: list[object] = [self.consumed, self.waiting]
        for opaque, pending in sorted(self.pending_sends.items()):
            future = pending.future
            if not future.done():
                ends.append((opaque, "in flight"))
            elif (error := future.exception()) is not None:
                assert isinstance(error, ArrowMQError)
                ends.append((opaque, type(error).__name__, str(error)))
            else:
                ends.append((opaque, future.result()))
        return ends


ANSWERS = st.builds(
    lambda code, opaque, flag, remark, ext, body, kind: encode_frame(
        Command(code=code, opaque=opaque, flag=flag, remark=remark, ext=ext, body=body, serialize_type=kind)
    ),
    code=st.sampled_from([0, 0, 0, 1, 2, 10, 11, 12, 16, 17]),
    opaque=st.integers(1, 6),
    flag=st.sampled_from([1, 1, 1, 0, 3]),
    remark=st.none() | st.text(max_size=10),
    ext=st.dictionaries(
        st.sampled_from(["msgId", "queueOffset", "queueId", "transactionId", "recallHandle", "MSG_REGION", "TRACE_ON"]),
        st.sampled_from(["0", "7", "123456789012345678901", "-1", " 5", "x", "", "eins"]) | st.text(max_size=6),
        max_size=7,
    ),
    body=st.binary(max_size=8),
    kind=st.sampled_from([1, 1, 1, 0]),
)


@settings(deadline=None, max_examples=300)
@given(
    frames=st.lists(ANSWERS, max_size=5),
    cut=st.integers(0, 40),
    damage=st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)),
)
def test_both_forms_end_the_same_pending_sends_in_the_same_way(
    frames: list[bytes], cut: int, damage: tuple[int, int] | None
) -> None:
    """Whole, cut and damaged answers: the same receipts and errors, the same bytes consumed, nothing read beyond."""
    data = bytearray(b"".join(frames))
    if damage is not None and data:
        data[damage[0] % len(data)] = damage[1]
    received = bytes(data[: max(0, len(data) - cut)])
    outcomes = [Landed(form, {1, 2, 3, 4}).feed(received).outcome for form in FORMS]
    assert all(outcomes[0] == outcome for outcome in outcomes)


@both_forms
def test_an_answer_that_cannot_be_read_leaves_its_pending_send_to_end_with_the_connection(form: ModuleType) -> None:
    frame = bytearray(encode_frame(Command(code=0, opaque=1, flag=1, ext={"queueId": "1"}, serialize_type=1)))
    frame[25:29] = b"\x7f\xff\xff\xff"  # the length of the fields
    landed = Landed(form, {1}).feed(bytes(frame))
    assert {1} == landed.waiting
    assert isinstance(landed.consumed, str)


@both_forms
def test_a_refusal_ends_the_pending_send_with_what_the_broker_said(form: ModuleType) -> None:
    refusal = Command(code=ResponseCode.SYSTEM_BUSY, opaque=2, flag=1, remark="too much", serialize_type=1)
    frame = encode_frame(refusal)
    landed = Landed(form, {2}).feed(frame)
    assert len(frame) == landed.consumed
    assert "too much" in str(landed.pending_sends[2].future.exception())


@both_forms
def test_a_slow_answer_makes_its_broker_suspect_and_a_quick_one_clears_it(form: ModuleType) -> None:
    faults = FaultTable(VirtualClock(1_700_000_000_000))
    fields = {"queueId": "1", "queueOffset": "2", "msgId": "M"}
    for took_s, is_available in ((0.04, True), (0.7, False), (0.01, True)):
        landed = Landed(form, {1})
        landed.pending_sends[1].faults = faults
        landed.pending_sends[1].sent_at = 1.0 - took_s
        landed.feed(encode_frame(Command(code=0, opaque=1, flag=1, ext=fields, serialize_type=1)))
        assert (1, 2) == (
            landed.pending_sends[1].future.result().queue_id,
            landed.pending_sends[1].future.result().queue_offset,
        )
        assert is_available == faults.is_available("broker-a")

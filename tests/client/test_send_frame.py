"""The frame that is written directly says what the general form says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.client.outgoing import Message, Packing, pack
from arrowmq.client.send_frame import SendFrames
from arrowmq.client.sending import Sender
from arrowmq.clock import VirtualClock
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frame import decode_frame
from arrowmq.wire.message import MessageQueue
from arrowmq.wire.properties import encode_properties

WORD = st.text(st.characters(exclude_characters="\x01\x02 |\x00", exclude_categories=("Cs",)), min_size=1, max_size=20)


class _Session:
    def __init__(self) -> None:
        self.clock = VirtualClock(1_700_000_000_000)


@settings(deadline=None)
@given(
    body=st.binary(min_size=1, max_size=200),
    tag=st.none() | WORD.filter(str.strip),
    properties=st.dictionaries(WORD.map(lambda word: f"p{word}"), WORD.filter(str.strip), max_size=4),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_id=st.integers(0, 9999),
    opaque=st.integers(1, 2**31 - 1),
    is_batch=st.booleans(),
)
def test_both_forms_are_the_same_request(
    body: bytes, tag: str | None, properties: dict[str, str], flag: int, queue_id: int, opaque: int, is_batch: bool
) -> None:
    message = Message("topic", body, tag=tag, properties=properties, flag=flag)
    packed = pack(message, "topic", "A" * 32, Packing())
    queue = MessageQueue("topic", "broker-a", queue_id)
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    sender = Sender(_Session(), "group", retries=0)  # type: ignore[arg-type]
    general = sender.request(packed, queue, code)
    frames = SendFrames("group")
    raw = encode_properties(packed.properties)
    written = frames.frame(
        code,
        opaque,
        frames.start_of("topic", queue, is_batch),
        packed.sys_flag,
        flag,
        1_700_000_000_000,
        raw,
        packed.body,
    )
    assert len(written) == 4 + int.from_bytes(written[:4], "big")
    direct = decode_frame(written[4:])
    assert (general.code, general.ext, general.body) == (direct.code, direct.ext, bytes(direct.body))
    assert (general.flag, general.version, general.language, opaque) == (
        direct.flag, direct.version, direct.language, direct.opaque,
    )  # fmt: skip

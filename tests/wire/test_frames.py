"""Frames beyond the recorded ones: limits, bad input, what other clients send."""

from __future__ import annotations

import pytest

from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode, RequestCode, ResponseCode, full_code, request_name
from arrowmq.wire.frames import MAX_FRAME_BYTES, Command, FrameError, FrameSplitter, decode_frame, encode_frame
from arrowmq.wire.headers import QueryConsumerOffset, QueryConsumerOffsetResult


def json_frame(text: str, body: bytes = b"") -> bytes:
    header = text.encode()
    return len(header).to_bytes(4) + header + body


def binary_frame(header: bytes) -> bytes:
    return b"\x01" + len(header).to_bytes(3) + header


def test_a_request_and_its_answer_belong_together() -> None:
    request = Command.request(
        RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(consumer_group="G", topic="T", queue_id=3)
    )
    request.serialize_type = 1
    answer = request.answer(header=QueryConsumerOffsetResult(offset=7), remark="found")
    assert {"consumerGroup": "G", "topic": "T", "queueId": "3"} == request.ext
    assert not request.is_response
    assert answer.is_response
    assert (request.opaque, 1, "found", {"offset": "7"}) == (
        answer.opaque, answer.serialize_type, answer.remark, answer.ext
    )  # fmt: skip
    assert CURRENT_VERSION == answer.version


def test_oneway_requests_carry_their_bit_and_opaques_differ() -> None:
    first, second = Command.request(15, oneway=True), Command.request(15)
    assert first.is_oneway
    assert not second.is_oneway
    assert first.opaque != second.opaque


def test_numbers_and_booleans_in_ext_fields_become_their_text_as_node_relies_on() -> None:
    command = decode_frame(
        json_frame('{"code":310,"extFields":{"d":4,"k":false,"x":null,"y":1.5,"z":{"a":1}},"opaque":7}', b"body")
    )
    assert {"d": "4", "k": "false", "y": "1.5", "z": '{"a":1}'} == command.ext
    assert (310, 7, b"body", 0) == (command.code, command.opaque, command.body, command.version)


def test_unknown_members_languages_and_spaces_are_no_error() -> None:
    command = decode_frame(
        json_frame('{ "code" : 34, "language":"KLINGON", "news":[1,{"a":2}], "remark":null, "extFields":{} }')
    )
    assert (34, LanguageCode.OTHER, None, {}) == (command.code, command.language, command.remark, command.ext)


def test_escapes_and_surrogate_pairs_are_joined() -> None:
    command = decode_frame(json_frame(r'{"code":1,"extFields":{"i":"TAGS\u0001\u00fc\u0002\ud83d\ude80\n"}}'))
    assert {"i": "TAGS\x01ü\x02🚀\n"} == command.ext


@pytest.mark.parametrize("code", [code for code in RequestCode if code > 0x7FFF])
def test_codes_that_the_binary_header_cuts_come_back_whole(code: RequestCode) -> None:
    request = Command.request(code)
    request.serialize_type = 1
    assert code == decode_frame(encode_frame(request)[4:]).code
    assert code == full_code(code & 0xFFFF)


def test_no_real_code_lies_where_a_cut_one_lands() -> None:
    assert not {int(code) & 0xFFFF for code in RequestCode if code > 0x7FFF} & {int(code) for code in RequestCode}


def test_codes_have_names() -> None:
    assert "PULL_MESSAGE" == request_name(11)
    assert "99999" == request_name(99999)
    assert 16 == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x05{}",
        b"\x02\x00\x00\x00",
        json_frame("{"),
        json_frame("[]"),
        json_frame('{"code":"many"}'),
        json_frame('{"code":99999999999}'),
        json_frame('{"code":1,"extFields":[]}'),
        json_frame('{"code":1}x'),
        json_frame("{" * 5000),
        b"\x00\x00\x00\x02\xff\xfe",
        binary_frame(b"\x00" * 20),
        binary_frame(b"\x00" * 13 + b"\x00\x00\x00\x09" + b"\x00" * 4),
        binary_frame(b"\x00" * 13 + b"\xff\xff\xff\xff" + b"\x00" * 4),
        binary_frame(b"\x00" * 17 + b"\x00\x00\x00\x09"),
        binary_frame(b"\x00" * 17 + b"\x00\x00\x00\x07" + b"\x00\x09k\x00\x00\x00\x00"),
        binary_frame(b"\x00" * 17 + b"\x00\x00\x00\x07" + b"\x00\x01k\x00\x00\x00\x01"),
        binary_frame(b"\x00" * 17 + b"\x00\x00\x00\x01" + b"\x00"),
    ],
)
def test_a_broken_frame_is_refused_with_a_reason(frame: bytes) -> None:
    with pytest.raises(FrameError) as refused:
        decode_frame(frame)
    assert refused.value.reason


def test_an_empty_key_of_the_binary_map_is_dropped() -> None:
    entries = b"\x00\x00\x00\x00\x00\x01v" + b"\x00\x01k\x00\x00\x00\x01v"
    header = b"\x00" * 17 + len(entries).to_bytes(4) + entries
    assert {"k": "v"} == decode_frame(binary_frame(header)).ext


@pytest.mark.parametrize(
    "change",
    [
        {"opaque": 1 << 40},
        {"ext": {"number": 5}},
        {"ext": {"k" * 40000: "v"}, "serialize_type": 1},
        {"serialize_type": 9},
    ],
)
def test_what_cannot_be_written_is_refused(change: dict[str, object]) -> None:
    command = Command(10)
    for name, value in change.items():
        setattr(command, name, value)
    with pytest.raises(FrameError):
        encode_frame(command)


@pytest.mark.parametrize("length", [0, 3, MAX_FRAME_BYTES - 3, 0xFFFFFFFF, 0x16030100])
def test_a_length_out_of_bounds_is_refused_before_anything_is_gathered(length: int) -> None:
    with pytest.raises(FrameError):
        FrameSplitter().feed(length.to_bytes(4) + b"xxxx")


def test_the_largest_legal_length_is_waited_for() -> None:
    splitter = FrameSplitter()
    assert [] == splitter.feed((MAX_FRAME_BYTES - 4).to_bytes(4))
    assert 4 == splitter.pending_bytes


def test_whole_frames_before_a_broken_one_are_given_out_first() -> None:
    good = encode_frame(Command(34, opaque=5))
    broken = b"\x00\x00\x00\x04\x09\x00\x00\x00"
    splitter = FrameSplitter()
    commands = splitter.feed(good + broken)
    assert [5] == [command.opaque for command in commands]
    assert splitter.error is not None
    with pytest.raises(FrameError, match="serialize type 9"):
        splitter.feed(b"")


def test_a_broken_frame_that_arrives_in_pieces_is_refused_when_it_is_whole() -> None:
    splitter = FrameSplitter()
    assert [] == splitter.feed(b"\x00\x00")
    assert [] == splitter.feed(b"\x00\x06\x00\x00\x00\x02{")
    with pytest.raises(FrameError):
        splitter.feed(b"]")

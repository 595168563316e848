"""The native modules and their pure-Python references take the same random and damaged input, and must say the same."""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from arrowmq.wire import _checksum_plain
from arrowmq.wire.command import Command
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import _frames_plain
from arrowmq.wire.records import _columns_plain, _records_plain


def native_of(plain: ModuleType) -> ModuleType:
    """Without a compiler the reference is compared with itself: the properties of one side still hold. The name is
    derived: a moved module stays compared."""
    try:
        return importlib.import_module(plain.__name__.replace("_plain", "_native"))
    except ModuleNotFoundError:
        return plain


checksum = native_of(_checksum_plain)
records = native_of(_records_plain)
frames = native_of(_frames_plain)
columns = native_of(_columns_plain)

settings.register_profile("wire", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wire")


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it refuses: the kind of error, its place and its words."""
    try:
        return call()
    except WireError as refused:
        return type(refused).__name__, refused.position, str(refused)


def fields(record: Any) -> Any:
    if isinstance(record, list):
        return [fields(one) for one in record]
    return record if isinstance(record, tuple) else tuple(getattr(record, name) for name in _records_plain.FIELDS)


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.tuples(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), int32)
property_bytes = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", "ключ".encode(), b""]), st.binary(max_size=8)),
        st.one_of(st.binary(max_size=12), st.sampled_from([b"\x02__CRC32#\x010123456789", b"__CRC32#\x01987654321"])),
        st.sampled_from([b"\x02", b"\x02", b""]),
    ),
    max_size=8,
).map(lambda items: b"".join(name + b"\x01" + value + end for name, value, end in items))
contents = st.fixed_dictionaries(
    {
        "topic": st.one_of(st.text(max_size=10), st.text("тop", min_size=60, max_size=140)),
        "body": st.binary(max_size=200),
        "properties_raw": property_bytes,
        "queue_id": int32,
        "flag": int32,
        "queue_offset": int64,
        "physical_offset": int64,
        "sys_flag": int32,
        "born_timestamp": int64,
        "born_host": hosts,
        "store_timestamp": int64,
        "store_host": hosts,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
    }
)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes with some of them changed, cut off, or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, 0x22, 0x5C]))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(data)))
        data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)


# Checksum and hash --------------------------------------------------------------------------------------------------


def test_crc_is_that_of_zlib_at_every_length_and_alignment() -> None:
    data = bytes((index * 7 + (index >> 8) * 13) & 0xFF for index in range(700))
    view = memoryview(data)
    for start in range(17):
        for length in range(0, 600 - start, 1 if start < 2 else 7):
            piece = view[start : start + length]
            assert zlib.crc32(piece) & 0x7FFFFFFF == checksum.crc32(piece)


@given(st.binary(max_size=5000), st.integers(0, 63))
def test_crc_is_that_of_zlib_on_anything(data: bytes, start: int) -> None:
    piece = memoryview(data)[start:]
    assert zlib.crc32(piece) & 0x7FFFFFFF == checksum.crc32(piece)
    if checksum is not _checksum_plain:
        assert zlib.crc32(piece) & 0x7FFFFFFF == checksum.crc32_by_tables(piece)


def test_crc_of_a_large_body_is_that_of_zlib() -> None:
    data = bytes(range(256)) * 4099
    assert zlib.crc32(data) & 0x7FFFFFFF == checksum.crc32(data)


@given(st.text(st.characters()))
def test_both_twins_hash_any_text_alike(text: str) -> None:
    assert _checksum_plain.java_hash(text) == checksum.java_hash(text)


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("TagA", 2598919), ("TagB", 2598920), ("🚀", 1773027)])
def test_java_hash_is_that_of_java(text: str, expected: int) -> None:
    assert expected == checksum.java_hash(text)
    assert expected == _checksum_plain.java_hash(text)


@given(st.one_of(st.text().map(str.encode), st.binary(max_size=12)))
def test_java_hash_of_utf8_is_that_of_the_text(data: bytes) -> None:
    assert _checksum_plain.java_hash_of_bytes(data) == checksum.java_hash_of_bytes(data)


# Records ------------------------------------------------------------------------------------------------------------


@given(contents, st.booleans())
def test_records_encode_to_the_same_bytes_and_decode_to_the_same_fields(content: dict[str, Any], crc: bool) -> None:
    plain_bytes = outcome(lambda: _records_plain.encode_record(_records_plain.Record(**content), with_record_crc=crc))
    assert plain_bytes == outcome(lambda: records.encode_record(records.Record(**content), with_record_crc=crc))
    if isinstance(plain_bytes, bytes):
        expected = _records_plain.decode_record(plain_bytes)
        assert fields(expected) == fields(records.decode_record(plain_bytes))
        assert content["body"] == expected.body
        assert content["topic"] == expected.topic
        assert len(plain_bytes) == expected.size


@given(st.data(), st.lists(contents, min_size=1, max_size=3), st.booleans())
def test_damaged_records_are_refused_alike(data: st.DataObject, items: list[dict[str, Any]], crc: bool) -> None:
    whole = b"".join(
        _records_plain.encode_record(_records_plain.Record(**item), with_record_crc=index == 1)
        for index, item in enumerate(items)
    )
    broken = data.draw(damaged(whole))
    offset = data.draw(st.integers(0, len(broken) + 3))
    for decode in ("decode_records", "record_bounds"):
        options = {"check_crc": crc} if decode == "decode_records" else {}
        expected = outcome(lambda: getattr(_records_plain, decode)(broken, **options))  # noqa: B023
        actual = outcome(lambda: getattr(records, decode)(broken, **options))  # noqa: B023
        if decode == "decode_records":
            assert fields(expected) == fields(actual)
        else:
            assert expected == actual
    expected = outcome(lambda: _records_plain.decode_record(broken, offset, check_crc=crc))
    assert fields(expected) == fields(outcome(lambda: records.decode_record(broken, offset, check_crc=crc)))


@given(contents, st.data())
def test_a_record_with_its_checksum_shows_any_changed_byte(content: dict[str, Any], data: st.DataObject) -> None:
    whole = _records_plain.encode_record(_records_plain.Record(**content), with_record_crc=True)
    position = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.integers(1, 255))
    broken = bytearray(whole)
    broken[position] ^= change
    for form in (_records_plain, records):
        assert content["body"] == form.decode_record(whole, require_record_crc=True).body
        refused = outcome(lambda: form.decode_record(bytes(broken), require_record_crc=True))  # noqa: B023
        assert isinstance(refused, tuple), f"byte {position} of {len(whole)} changed unnoticed"


@given(property_bytes, st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", "ключ".encode(), b"", b"x"]))
def test_one_property_is_found_as_in_the_whole(raw: bytes, name: bytes) -> None:
    expected = _records_plain.Record(properties_raw=raw).properties.get(name.decode())
    for form in (_records_plain, records):
        assert expected == form.Record(properties_raw=raw).property(name.decode())


# Columns ------------------------------------------------------------------------------------------------------------


@given(st.data(), st.lists(contents, max_size=4), st.booleans())
def test_columns_agree_and_hold_what_the_records_hold(
    data: st.DataObject, items: list[dict[str, Any]], decompress: bool
) -> None:
    whole = b"".join(_records_plain.encode_record(_records_plain.Record(**item)) for item in items)
    broken = data.draw(st.one_of(st.just(whole), damaged(whole)))
    options = {"check_crc": data.draw(st.booleans()), "decompress": decompress}
    expected = outcome(lambda: _columns_plain.decode_columns(broken, **options))
    assert expected == outcome(lambda: columns.decode_columns(broken, **options))


def test_columns_of_many_properties_and_of_repeated_names_agree() -> None:
    many = b"".join(b"name%d\x01value%d\x02" % (index % 90, index) for index in range(120))
    items = [
        _records_plain.Record("T", b"b", many),
        _records_plain.Record("T", b"b", b"a\x011\x02b\x012\x02a\x013\x02"),
        _records_plain.Record("T", b"b", b""),
    ]
    whole = b"".join(_records_plain.encode_record(item) for item in items)
    expected = _columns_plain.decode_columns(whole)
    assert expected == columns.decode_columns(whole)
    assert [0, 90, 92, 92] == list(memoryview(expected.property_offsets).cast("i"))


# Frames -------------------------------------------------------------------------------------------------------------

texts = st.one_of(
    st.text(max_size=12), st.text(st.characters(), max_size=4), st.text('\x01\x02"\\/\b\n\r\t\f\x7f', max_size=5)
)
commands = st.builds(
    Command,
    code=st.one_of(st.sampled_from([10, 11, 310, 200050, 3442, -5]), int32),
    opaque=int32,
    flag=st.sampled_from([0, 1, 2, 3]),
    version=st.integers(-(1 << 15), (1 << 15) - 1),
    language=st.integers(0, 15),
    remark=st.one_of(st.none(), texts),
    ext=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=50),
    serialize_type=st.sampled_from([0, 1]),
)


@given(commands)
def test_commands_encode_to_the_same_bytes_and_decode_alike(command: Command) -> None:
    frame = _frames_plain.encode_frame(command)
    assert frame == frames.encode_frame(command)
    assert frame == frames.encode_head(command, len(command.body)) + command.body
    expected = outcome(lambda: _frames_plain.decode_frame(frame[4:]))
    assert expected == outcome(lambda: frames.decode_frame(frame[4:]))


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_send_is_written_and_read_without_the_twins_help(
    serialize_type: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Separators of properties are control characters; the reference, which wrote them, takes five times as long."""
    properties = {"i": "UNIQ_KEY\x01AC11\x02TAGS\x01paid\x02note\x01\x1f\x02"}
    command = Command(310, 7, ext=properties, body=b"x", serialize_type=serialize_type)
    expected = _frames_plain.encode_frame(command)
    if frames is not _frames_plain:
        for name in ("encode_frame", "decode_frame"):
            monkeypatch.delattr(_frames_plain, name)
    assert expected == frames.encode_frame(command)
    assert command == frames.decode_frame(expected[4:])


@given(commands)
def test_a_json_command_comes_back_as_it_was(command: Command) -> None:
    command.serialize_type = 0
    command.language %= 14
    written = [text for pair in command.ext.items() for text in pair] + [command.remark or ""]
    assume(all(text == text.encode("utf-8", "ignore").decode() for text in written))  # no lone surrogates
    assert command == frames.decode_frame(frames.encode_frame(command)[4:])


@given(commands, st.data())
def test_damaged_frames_are_refused_alike(command: Command, data: st.DataObject) -> None:
    broken = data.draw(damaged(_frames_plain.encode_frame(command)))
    assert outcome(lambda: _frames_plain.decode_frame(broken[4:])) == outcome(lambda: frames.decode_frame(broken[4:]))
    assert outcome(lambda: _frames_plain.split(broken, 1 << 20)) == outcome(lambda: frames.split(broken, 1 << 20))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields", "other"]), json_values
    ),
    st.booleans(),
)
def test_strange_json_headers_are_read_alike(header: dict[str, Any], is_compact: bool) -> None:
    text = json.dumps(header, separators=(",", ":") if is_compact else None).encode()
    frame = len(text).to_bytes(4) + text
    assert outcome(lambda: _frames_plain.decode_frame(frame)) == outcome(lambda: frames.decode_frame(frame))


@given(st.binary(max_size=60))
def test_noise_is_refused_alike(noise: bytes) -> None:
    for frame in (noise, len(noise).to_bytes(4) + noise, b"\x01" + len(noise).to_bytes(3) + noise):
        assert outcome(lambda: _frames_plain.decode_frame(frame)) == outcome(  # noqa: B023
            lambda: frames.decode_frame(frame)  # noqa: B023
        )
    assert outcome(lambda: _records_plain.decode_records(noise)) == outcome(lambda: records.decode_records(noise))

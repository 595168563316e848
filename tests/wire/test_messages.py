"""Messages: properties, ids, compression, records of both versions, batches, columns for Arrow."""

from __future__ import annotations

import copy
import pickle
import struct
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.wire import compression, ids, properties, sysflag
from arrowmq.wire.batch import BatchItem, decode_batch, encode_batch
from arrowmq.wire.compression import CompressionType, compress, decompress
from arrowmq.wire.errors import BodyError, RecordError
from arrowmq.wire.records import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_record,
    decode_records,
    encode_record,
    record_bounds,
)
from arrowmq.wire.records.columns import decode_columns

RAW = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02TAGS\x01TagA\x02"


def a_record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "topic": "T",
        "body": b"body",
        "properties_raw": RAW,
        "queue_id": 1,
        "queue_offset": 7,
        "physical_offset": 4096,
        "born_host": (b"\x7f\x00\x00\x01", 5555),
        "store_host": (b"\x0a\x00\x00\x05", 10911),
    }
    return Record(**(fields | changes))  # type: ignore[arg-type]


# Properties ---------------------------------------------------------------------------------------------------------


def test_properties_are_read_as_java_reads_them() -> None:
    raw = b"a\x011\x02\x01empty name\x02empty value\x01\x02no separator\x02b\x01x\x01y\x02a\x013\x02last\x01one"
    assert {"a": "3", "b": "x\x01y", "last": "one"} == properties.decode_properties(raw)


def test_properties_come_back_as_they_were() -> None:
    values = {"KEYS": "a b", "имя": "значение", "🚀": "Zürich"}
    assert values == properties.decode_properties(properties.encode_properties(values))
    assert values == properties.parse_properties(properties.properties_text(values))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", True),
        (RAW, True),
        (RAW[:-1], True),
        (RAW[:20] + bytes(20), False),
        (b"abc", False),
        (b"a\x01\xff\x02", False),
    ],
)
def test_torn_properties_are_told_from_whole_ones(raw: bytes, expected: bool) -> None:
    assert expected is properties.are_well_formed(raw)


# Ids ----------------------------------------------------------------------------------------------------------------


def test_offset_message_ids_of_both_families() -> None:
    assert "0A00000500002A9F0000000000001000" == ids.offset_message_id(b"\x0a\x00\x00\x05", 10911, 4096)
    for ip in (b"\x0a\x00\x00\x05", bytes(range(16))):
        text = ids.offset_message_id(ip, 10911, 1 << 40)
        assert (ip, 10911, 1 << 40) == ids.parse_offset_message_id(text)
        assert (ip, 10911, 1 << 40) == ids.parse_offset_message_id(text.lower())


@pytest.mark.parametrize("text", ["", "0A", "Z" * 32, "0" * 40])
def test_a_wrong_offset_message_id_is_refused(text: str) -> None:
    with pytest.raises(ids.IdError):
        ids.parse_offset_message_id(text)


def test_unique_ids_differ_and_have_the_length_of_their_family() -> None:
    maker = ids.UniqueIds()
    made = [maker.next() for _ in range(1000)]
    assert 1000 == len(set(made))
    assert {32} == {len(text) for text in made}
    assert 56 == len(ids.UniqueIds(bytes(16)).next())


def test_unique_ids_go_on_over_the_turn_of_the_year() -> None:
    moments = iter([1735689599000, 1735689601000, 1738367999000])
    maker = ids.UniqueIds(clock_ms=lambda: next(moments))
    assert 3 == len({maker.next(), maker.next(), maker.next()})


def test_a_recall_handle_comes_back_as_it_was_and_a_wrong_one_is_refused() -> None:
    handle = ids.RecallHandle("T", "broker-a", 1757000000000, "ABC")
    assert handle == ids.parse_recall_handle(handle.encode())
    for wrong in ("", "!", "djEgVA==", handle.encode()[:-8]):
        with pytest.raises(ids.IdError):
            ids.parse_recall_handle(wrong)


# Compression --------------------------------------------------------------------------------------------------------


@given(st.sampled_from(CompressionType), st.binary(max_size=3000), st.integers(1, 9))
@settings(deadline=None)
def test_bodies_come_back_as_they_were(kind: CompressionType, body: bytes, level: int) -> None:
    assert body == decompress(kind.sys_flag, compress(kind, body, level))


def test_bit_zero_alone_means_zlib_and_no_bit_means_as_it_is() -> None:
    assert b"body" == decompress(sysflag.COMPRESSED, zlib.compress(b"body"))
    assert b"body" == decompress(0, b"body")


def test_lz4_blocks_stand_alone_as_java_demands() -> None:
    packed = compress(CompressionType.LZ4, b"x" * 300000)
    assert not lz4.frame.get_frame_info(packed)["block_linked"]


def test_zstd_without_a_content_size_is_read() -> None:
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = writer.compress(b"y" * 200000) + writer.flush()
    assert b"y" * 200000 == decompress(CompressionType.ZSTD.sys_flag, packed)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_broken_cut_off_and_exploding_bodies_are_refused(kind: CompressionType) -> None:
    packed = compress(kind, bytes(100000))
    for wrong in (b"not packed at all", packed[:-5], b""):
        with pytest.raises(BodyError):
            decompress(kind.sys_flag, wrong)
    with pytest.raises(BodyError, match="more than 1000 bytes"):
        decompress(kind.sys_flag, packed, max_bytes=1000)


def test_a_compression_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BodyError, match="type 4"):
        compression.compression_type(0x401)


# Records ------------------------------------------------------------------------------------------------------------


def test_a_record_has_the_layout_of_the_specification() -> None:
    encoded = encode_record(a_record(store_timestamp=99, born_timestamp=98))
    assert (len(encoded), MAGIC_V1, zlib.crc32(b"body") & 0x7FFFFFFF) == struct.unpack_from(">iii", encoded)
    assert (7, 4096) == struct.unpack_from(">qq", encoded, 20)
    assert (98,) == struct.unpack_from(">q", encoded, 40)
    assert (99,) == struct.unpack_from(">q", encoded, 56)
    assert b"\x00\x00\x00\x04body\x01T" + len(RAW).to_bytes(2) + RAW == encoded[84:]
    assert 91 == len(encode_record(a_record(topic="", body=b"", properties_raw=b"")))


def test_a_long_topic_gives_a_record_of_version_2() -> None:
    for topic in ("t" * 127, "t" * 128, "%RETRY%" + "ü" * 100):
        record = decode_record(encode_record(a_record(topic=topic)))
        assert topic == record.topic
        assert (MAGIC_V2 if len(topic.encode()) > 127 else MAGIC_V1) == record.magic


def test_hosts_of_both_families_are_kept_and_marked() -> None:
    for born in (bytes(4), bytes(16)):
        for store in (bytes(4), bytes(16)):
            record = decode_record(encode_record(a_record(born_host=(born, 1), store_host=(store, 2), sys_flag=0x30)))
            assert ((born, 1), (store, 2)) == (record.born_host, record.store_host)
            assert (len(born) == 16, len(store) == 16) == (bool(record.sys_flag & 0x10), bool(record.sys_flag & 0x20))


def test_a_record_tells_its_tag_keys_and_ids() -> None:
    record = a_record()
    assert ("TagA", ["k1", "k2"], "ABC") == (record.tag, record.keys, record.msg_id)
    assert "0A00000500002A9F0000000000001000" == record.offset_msg_id
    bare = a_record(properties_raw=b"")
    assert (None, [], bare.offset_msg_id, {}) == (bare.tag, bare.keys, bare.msg_id, bare.properties)
    assert {"KEYS": "k1 k2", "UNIQ_KEY": "ABC", "TAGS": "TagA"} == record.properties
    assert "TagA" == record.property("TAGS")


def test_records_can_be_copied_changed_and_sent_to_another_process() -> None:
    record = decode_record(encode_record(a_record()))
    assert record == copy.copy(record) == pickle.loads(pickle.dumps(record))
    assert ("other", record.body) == (record.replace(topic="other").topic, record.replace(topic="other").body)
    assert record != record.replace(queue_id=5)


def test_a_wrong_body_is_noticed_when_asked_for() -> None:
    encoded = bytearray(encode_record(a_record()))
    encoded[88] ^= 1
    assert b"cody" == decode_record(encoded, check_crc=False).body
    assert 1 == len(decode_records(encoded))
    for decode in (decode_record, lambda data: decode_records(data, check_crc=True)):
        with pytest.raises(RecordError, match="CRC"):
            decode(encoded)


def test_the_checksum_property_stands_at_the_end_least_digit_first() -> None:
    for raw in (b"", RAW, RAW[:-1]):
        encoded = encode_record(a_record(properties_raw=raw), with_record_crc=True)
        crc = zlib.crc32(encoded[:-20]) & 0x7FFFFFFF
        assert b"__CRC32#\x01" + str(crc).zfill(10)[::-1].encode() + b"\x02" == encoded[-20:]
        stored = decode_record(encoded).properties_raw[:-20]
        assert (raw + b"\x02" if raw and not raw.endswith(b"\x02") else raw) == stored


def test_a_checksum_that_a_sender_made_up_does_not_reach_the_log() -> None:
    forged = b"__CRC32#\x010123456789\x02"
    for with_record_crc in (False, True):
        encoded = encode_record(a_record(properties_raw=RAW + forged + forged), with_record_crc=with_record_crc)
        assert encode_record(a_record(), with_record_crc=with_record_crc) == encoded
        assert decode_record(encoded).properties_raw.startswith(RAW)


def test_the_name_of_the_checksum_inside_a_value_is_just_text() -> None:
    raw = b"note\x01__CRC32#\x010123456789\x02"
    assert raw == decode_record(encode_record(a_record(properties_raw=raw))).properties_raw


def test_the_first_record_that_cannot_be_read_is_named_by_its_place() -> None:
    whole = encode_record(a_record())
    with pytest.raises(RecordError) as refused:
        decode_records(whole + whole[:50])
    assert len(whole) == refused.value.position
    assert [(0, len(whole))] == record_bounds(whole + whole[:50])


@pytest.mark.parametrize(
    "changes",
    [{"properties_raw": bytes(32768)}, {"topic": "t" * 32768}, {"born_host": (b"abc", 1)}],
)
def test_what_does_not_fit_in_a_record_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        encode_record(a_record(**changes))


# Batches ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-5, 5), st.binary(max_size=20), st.binary(max_size=20)), max_size=5), st.data())
@settings(deadline=None)
def test_batches_come_back_as_they_were_and_cut_ones_are_refused(
    items: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    encoded = encode_batch(items)
    assert [BatchItem(*item) for item in items] == decode_batch(encoded)
    ends = {len(encode_batch(items[:count])) for count in range(len(items) + 1)}
    cut = data.draw(st.integers(0, len(encoded)))
    if cut not in ends:
        with pytest.raises(RecordError):
            decode_batch(encoded[:cut])


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_noise_is_no_batch_or_one_that_encodes_to_its_content(noise: bytes) -> None:
    try:
        items = decode_batch(noise)
    except RecordError:
        return
    assert items == decode_batch(encode_batch(items))


# Columns ------------------------------------------------------------------------------------------------------------


def test_columns_hold_what_the_records_hold() -> None:
    packed = compress(CompressionType.ZLIB, b"unpacked")
    records = [
        a_record(),
        a_record(properties_raw=b"", body=packed, sys_flag=CompressionType.ZLIB.sys_flag, queue_offset=8),
        a_record(properties_raw=b"TAGS\x01\xff\x02", born_host=(bytes(15) + b"\x01", 9), topic="тема"),
    ]
    columns = decode_columns(b"".join(map(encode_record, records)), check_crc=True)
    assert 3 == columns.row_count
    assert [b"T", b"T", "тема".encode()] == columns.topic.values()
    assert [7, 8, 7] == list(memoryview(columns.queue_offset).cast("q"))
    assert [1, 1, 1] == list(memoryview(columns.queue_id).cast("i"))
    assert [b"body", b"unpacked", b"body"] == columns.body.values()
    assert [b"TagA", None, "\ufffd".encode()] == columns.tags.values()
    assert [b"k1 k2", None, None] == columns.keys.values()
    assert [b"127.0.0.1:5555", b"127.0.0.1:5555", b"[::1]:9"] == columns.born_host.values()
    assert [b"10.0.0.5:10911"] * 3 == columns.store_host.values()
    assert [b"ABC", records[1].offset_msg_id.encode(), records[2].offset_msg_id.encode()] == columns.msg_id.values()
    assert [0, 3, 3, 4] == list(memoryview(columns.property_offsets).cast("i"))
    assert [b"KEYS", b"UNIQ_KEY", b"TAGS", b"TAGS"] == columns.property_names.values()
    assert [b"k1 k2", b"ABC", b"TagA", "\ufffd".encode()] == columns.property_values.values()
    as_stored = decode_columns(b"".join(map(encode_record, records)), decompress=False)
    assert packed == as_stored.body.values()[1]
    assert 0 == decode_columns(b"").row_count

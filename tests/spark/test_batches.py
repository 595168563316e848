"""Records to Arrow batches: the native way and the way record by record agree on everything."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.spark.schema import MESSAGE_SCHEMA, arrow_schema, message_schema
from arrowmq.spark.source.batches import BatchBuilder
from arrowmq.wire.compression import CompressionType, compress
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, decode_records, encode_record

SCHEMA = arrow_schema(MESSAGE_SCHEMA)
text = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
hosts = st.tuples(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), st.integers(0, 65535)
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    properties = draw(st.dictionaries(text, text, max_size=4))
    if draw(st.booleans()):
        properties["TAGS"] = draw(text)
    if draw(st.booleans()):
        properties["KEYS"] = draw(st.sampled_from(["a", "a b", " a  b ", "ключ один"]))
    if draw(st.booleans()):
        properties["UNIQ_KEY"] = draw(text)
    body, sys_flag = draw(st.binary(max_size=50)), 0
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(CompressionType)))
        body, sys_flag = compress(kind, body), kind.sys_flag
    elif draw(st.booleans()):
        sys_flag = CompressionType.ZLIB.sys_flag  # says packed, and is not
    return Record(
        topic=draw(text),
        body=body,
        properties_raw=encode_properties(properties),
        queue_id=draw(st.integers(0, 1000)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(st.integers(0, 2**62)),
        sys_flag=sys_flag,
        born_timestamp=draw(st.integers(0, 2**40)),
        born_host=draw(hosts),
        store_timestamp=draw(st.integers(0, 2**40)),
        store_host=draw(hosts),
        reconsume_times=draw(st.integers(0, 20)),
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(records(), min_size=1, max_size=8), st.sampled_from(["broker-a", None]))
def test_columns_hold_what_the_records_hold(found: list[Record], broker_name: str | None) -> None:
    data = b"".join(map(encode_record, found))
    builder = BatchBuilder(SCHEMA, broker_name)
    builder.add(data, len(found))
    batch = builder.take()
    assert SCHEMA == batch.schema
    expected = BatchBuilder(SCHEMA, broker_name)._from_records(decode_records(data))
    assert by_rows(expected) == by_rows(batch)


def by_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [{**row, "properties": dict(row["properties"])} for row in batch.to_pylist()]


def test_a_body_that_cannot_be_unpacked_is_given_as_it_is_stored() -> None:
    broken = Record(topic="t", body=b"not zlib", sys_flag=CompressionType.ZLIB.sys_flag)
    builder = BatchBuilder(SCHEMA, "a")
    builder.add(encode_record(broken), 1)
    (row,) = builder.take().to_pylist()
    assert (b"not zlib", CompressionType.ZLIB.sys_flag) == (row["body"], row["sysFlag"])


def test_tags_are_compared_by_their_text_even_where_the_column_is_not_wanted() -> None:
    # "Aa" and "BB" have the same hash, so a broker lets both through.
    data = [
        encode_record(Record(topic="t", body=tag.encode(), properties_raw=encode_properties({"TAGS": tag})))
        for tag in ("Aa", "BB")
    ]
    builder = BatchBuilder(arrow_schema(message_schema(["body"])), "a", tags=frozenset({"BB"}))
    builder.add(b"".join(data), 2)
    assert [{"body": b"BB"}] == builder.take().to_pylist()


def test_a_builder_says_when_it_is_full_and_starts_anew() -> None:
    builder = BatchBuilder(arrow_schema(message_schema(["queueOffset"])), "a")
    data = encode_record(Record(topic="t", body=b"x"))
    for _ in range(8192):
        builder.add(data, 1)
    assert builder.is_full
    assert 8192 == builder.take().num_rows
    assert not builder.is_full
    assert 0 == builder.rows

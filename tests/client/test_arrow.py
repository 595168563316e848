"""Arrow batches: columns decoded in native code and rows one by one give the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowmq
from arrowmq.client.consume.arrow import SCHEMA, from_chunk, from_rows, record_batch
from arrowmq.client.consume.pulled_body import Chunk
from arrowmq.client.message import ReceivedMessage
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, decode_records, encode_record

WORD = st.text(
    st.characters(exclude_characters="\x01\x02 \x00", exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=9
)


def chunk_of(records: list[Record]) -> Chunk:
    pulled: Any = SimpleNamespace(queue=MessageQueue("t", "broker-a", 3))
    body = b"".join(encode_record(record) for record in records)
    return Chunk(pulled, body, lambda _, data: [ReceivedMessage(each, "broker-a") for each in decode_records(data)])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=50),
            st.none() | WORD,
            st.lists(WORD, max_size=3),
            st.dictionaries(WORD.map(lambda word: f"p{word}"), WORD, max_size=3),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_columns_and_rows_are_the_same_batch(
    messages: list[tuple[bytes, str | None, list[str], dict[str, str]]],
) -> None:
    records = []
    for number, (body, tag, keys, properties) in enumerate(messages):
        named = {**properties, "UNIQ_KEY": f"{number:032X}"}
        if tag is not None:
            named["TAGS"] = tag
        if keys:
            named["KEYS"] = " ".join(keys)
        records.append(
            Record("t", body, encode_properties(named), 3, queue_offset=100 + number, born_timestamp=1_700_000_000_000)
        )
    chunk = chunk_of(records)
    assert 100 == chunk.queue_offset
    columns, rows = from_chunk(chunk), from_rows(chunk.messages())
    assert SCHEMA == columns.schema
    columns.validate(full=True)
    assert rows.to_pylist() == columns.to_pylist()


def test_messages_and_chunks_mix_in_the_order_they_came() -> None:
    def message(offset: int) -> Record:
        return Record("t", b"%d" % offset, b"", 3, queue_offset=offset)

    alone = ReceivedMessage(message(1), "broker-a")
    batch = record_batch([alone, chunk_of([message(2), message(3)]), ReceivedMessage(message(4), "broker-a")])
    assert [b"1", b"2", b"3", b"4"] == batch["body"].to_pylist()


async def test_what_comes_in_batches_is_acknowledged_as_a_whole(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=1)
        async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
            batches = consumer.batches(max_messages=50, linger_s=0.2)
            rows = []
            first = batches.__anext__()
            await producer.send_batch([arrowmq.Message(topic, b"%d" % n) for n in range(100)])
            rows += (await first)["body"].to_pylist()
            while len(rows) < 100:
                batch = await anext(batches)
                assert isinstance(batch, pyarrow.RecordBatch)
                rows += batch["body"].to_pylist()
            assert [b"%d" % n for n in range(100)] == rows
            with pytest.raises(arrowmq.InvalidUse, match="Arrow batches"):
                await consumer.receive(timeout_s=0.01)
            await batches.aclose()
        # The last batch was not asked beyond: it comes again.
        assert 0 < sum((await admin.lag(group, topic)).values()) <= 100

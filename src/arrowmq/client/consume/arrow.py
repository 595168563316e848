"""Consumed messages as Arrow record batches.

A pulled body is decoded to columns in native code, without an object a message. What needs a look at single messages
(retries, tags compared by text, namespaces, inner batches) goes row by row instead; both ways give the same batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow
import pyarrow.compute

from arrowmq.client.consume.decoding import INNER_BATCH
from arrowmq.client.consume.pulled_body import Chunk
from arrowmq.client.message import Delivered, ReceivedMessage
from arrowmq.wire.records.columns import Column, Columns, decode_columns

SCHEMA = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("broker_name", pyarrow.string()),
        ("queue_id", pyarrow.int32()),
        ("queue_offset", pyarrow.int64()),
        ("msg_id", pyarrow.string()),
        ("tag", pyarrow.string()),
        ("keys", pyarrow.list_(pyarrow.string())),
        ("body", pyarrow.binary()),
        ("properties", pyarrow.map_(pyarrow.string(), pyarrow.string())),
        ("born_timestamp", pyarrow.timestamp("ms", tz="UTC")),
        ("store_timestamp", pyarrow.timestamp("ms", tz="UTC")),
        ("reconsume_times", pyarrow.int32()),
    ]
)


def record_batch(held: Sequence[Delivered]) -> pyarrow.RecordBatch:
    """One row a message, in the order they came."""
    batches: list[pyarrow.RecordBatch] = []
    rows: list[ReceivedMessage] = []
    for each in held:
        if isinstance(each, ReceivedMessage):
            rows.append(each)
            continue
        if rows:
            batches.append(from_rows(rows))
            rows = []
        assert isinstance(each, Chunk)
        batches.append(from_chunk(each))
    if rows or not batches:
        batches.append(from_rows(rows))
    if len(batches) == 1:
        return batches[0]
    table = pyarrow.Table.from_batches(batches, SCHEMA).combine_chunks()
    return table.to_batches()[0]


def from_rows(messages: Sequence[ReceivedMessage]) -> pyarrow.RecordBatch:
    columns = [
        [message.topic for message in messages],
        [message.broker_name for message in messages],
        [message.queue_id for message in messages],
        [message.queue_offset for message in messages],
        [message.msg_id for message in messages],
        [message.tag for message in messages],
        [message.keys or None for message in messages],
        [message.body for message in messages],
        [list(message.properties.items()) for message in messages],
        [message.born_timestamp for message in messages],
        [message.store_timestamp for message in messages],
        [message.reconsume_times for message in messages],
    ]
    arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def from_chunk(chunk: Chunk) -> pyarrow.RecordBatch:
    columns = decode_columns(chunk.body)
    if any(flags & INNER_BATCH == INNER_BATCH for flags in array("i", columns.sys_flag)):
        return from_rows(chunk.messages())
    count = columns.row_count
    arrays = [
        _text(columns.topic, count),
        pyarrow.repeat(pyarrow.scalar(chunk.pulled_from.queue.broker_name, pyarrow.string()), count),
        _numbers(columns.queue_id, pyarrow.int32(), count),
        _numbers(columns.queue_offset, pyarrow.int64(), count),
        _text(columns.msg_id, count),
        _text(columns.tags, count),
        pyarrow.compute.split_pattern(_text(columns.keys, count), " "),
        _text(columns.body, count, pyarrow.binary()),
        _properties(columns, count),
        _numbers(columns.born_timestamp, pyarrow.timestamp("ms", tz="UTC"), count),
        _numbers(columns.store_timestamp, pyarrow.timestamp("ms", tz="UTC"), count),
        _numbers(columns.reconsume_times, pyarrow.int32(), count),
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _numbers(data: bytes, kind: pyarrow.DataType, count: int) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(data)])


def _text(column: Column, count: int, kind: pyarrow.DataType | None = None) -> pyarrow.Array:
    validity = None if column.validity is None else pyarrow.py_buffer(column.validity)
    buffers = [validity, pyarrow.py_buffer(column.offsets), pyarrow.py_buffer(column.data)]
    return pyarrow.Array.from_buffers(kind or pyarrow.string(), count, buffers)


def _properties(columns: Columns, count: int) -> pyarrow.Array:
    offsets = _numbers(columns.property_offsets, pyarrow.int32(), count + 1)
    items = len(columns.property_names.offsets) // 4 - 1
    names = _text(columns.property_names, items)
    return pyarrow.MapArray.from_arrays(offsets, names, _text(columns.property_values, items))

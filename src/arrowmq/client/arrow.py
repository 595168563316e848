"""Consumed messages as Arrow record batches."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow

from arrowmq.client.message import ReceivedMessage

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


def record_batch(messages: Sequence[ReceivedMessage]) -> pyarrow.RecordBatch:
    """One row a message, column by column."""
    columns = [
        [message.topic for message in messages],
        [message.broker_name for message in messages],
        [message.queue_id for message in messages],
        [message.queue_offset for message in messages],
        [message.msg_id for message in messages],
        [message.tag for message in messages],
        [message.keys for message in messages],
        [message.body for message in messages],
        [list(message.properties.items()) for message in messages],
        [message.born_timestamp for message in messages],
        [message.store_timestamp for message in messages],
        [message.reconsume_times for message in messages],
    ]
    arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)

"""Stored records become Arrow batches: the bytes are decoded into columns natively, no object is made per record.

In: pieces of bytes that hold whole records one after another. Out: `pyarrow.RecordBatch`es with exactly the columns
that Spark was promised. Filters that brokers apply by hash only (tags) are applied here again by the text itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arrowmq.wire.errors import BodyError
from arrowmq.wire.records import Record, decode_records
from arrowmq.wire.records.columns import Column, Columns, decode_columns
from arrowmq.wire.sysflag import COMPRESSED

ROWS_PER_BATCH = 8192
BYTES_PER_BATCH = 8 * 1024 * 1024

Keep = Callable[[Record], bool]
Piece = bytes | memoryview


class BatchBuilder:
    """Collects records of one broker and gives them back as Arrow batches."""

    def __init__(
        self,
        schema: pa.Schema,
        broker_name: str | None,
        *,
        tags: frozenset[str] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.schema = schema
        self._broker_name = broker_name
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        # The tag column is needed for the filter even where it is not wanted.
        is_tag_missing = tags is not None and "tags" not in schema.names
        self._built = schema.append(pa.field("tags", pa.string())) if is_tag_missing else schema
        self._keep = keep
        self._pieces: list[Piece] = []
        self._bytes = 0
        self.rows = 0

    def add(self, piece: Piece, rows: int) -> None:
        """Takes whole records, `rows` of them, that were checked before."""
        if rows == 0:
            return
        if self._keep is not None:
            piece, rows = self._chosen(piece)
        self._pieces.append(piece)
        self._bytes += len(piece)
        self.rows += rows

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
        """What was collected so far; the builder starts anew. May hold no row: filters come last."""
        pieces, self._pieces = self._pieces, []
        self._bytes = self.rows = 0
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            batch = self._from_columns(decode_columns(data))
        except BodyError:
            batch = self._from_records(decode_records(data))  # a body that cannot be unpacked is given as it is
        if self._tags is not None:
            batch = batch.filter(pc.is_in(batch.column("tags"), self._tags))
        return batch if self._built is self.schema else batch.select(self.schema.names)

    def _chosen(self, piece: Piece) -> tuple[Piece, int]:
        assert self._keep is not None
        view = memoryview(piece)
        kept = []
        position = 0
        for record in decode_records(piece):
            if self._keep(record):
                kept.append(view[position : position + record.size])
            position += record.size
        return b"".join(kept), len(kept)

    def _from_columns(self, columns: Columns) -> pa.RecordBatch:
        arrays = [_BUILD[field.name](columns, field.type, self._broker_name) for field in self._built]
        return pa.RecordBatch.from_arrays(arrays, schema=self._built)

    def _from_records(self, records: list[Record]) -> pa.RecordBatch:
        rows = [_row(record, self._broker_name) for record in records]
        return pa.RecordBatch.from_pylist(rows, schema=self._built)


# ------------------------------------------------------------------------------------------- columns, by their buffers


def _text(column: Column, kind: pa.DataType, count: int) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)])


def _number(data: bytes, kind: pa.DataType, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _moment(data: bytes, kind: pa.DataType, count: int) -> pa.Array:
    """Milliseconds to Spark's microseconds."""
    return _number((np.frombuffer(data, np.int64) * 1000).tobytes(), kind, count)


def _sys_flag(columns: Columns, kind: pa.DataType, broker_name: str | None) -> pa.Array:
    """As a client sees it: the body is unpacked, so the bit that says packed is gone."""
    return _number((np.frombuffer(columns.sys_flag, np.int32) & ~COMPRESSED).tobytes(), kind, columns.row_count)


def _broker_name(columns: Columns, kind: pa.DataType, broker_name: str | None) -> pa.Array:
    if broker_name is None:
        return pa.nulls(columns.row_count, kind)
    return pa.repeat(pa.scalar(broker_name, kind), columns.row_count)


def _keys(columns: Columns, kind: pa.DataType, broker_name: str | None) -> pa.Array:
    split = pc.utf8_split_whitespace(_text(columns.keys, pa.string(), columns.row_count))
    values = split.flatten()
    if len(values) and pc.min(pc.binary_length(values)).as_py() == 0:
        # Stray spaces make empty keys; rare, so done one by one.
        return pa.array([[key for key in keys or () if key] for keys in split.to_pylist()], kind)
    lengths = pc.fill_null(pc.list_value_length(split), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(columns.row_count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _properties(columns: Columns, kind: pa.DataType, broker_name: str | None) -> pa.Array:
    count = len(columns.property_names.offsets) // 4 - 1
    names = _text(columns.property_names, pa.string(), count)
    values = _text(columns.property_values, pa.string(), count)
    offsets = _number(columns.property_offsets, pa.int32(), columns.row_count + 1)
    return pa.MapArray.from_arrays(offsets, names, values, type=kind)


_HEX = np.array([list(f"{byte:02X}".encode()) for byte in range(256)], np.uint8)


def _offset_msg_id(columns: Columns, kind: pa.DataType, broker_name: str | None) -> pa.Array:
    """Address, port and commit log offset in hexadecimal. A broker has one address, so it is written once."""
    count = columns.row_count
    hosts = _text(columns.store_host, pa.string(), count).dictionary_encode()
    prefixes = [_host_hex(text) for text in hosts.dictionary.to_pylist()]
    log_offsets = np.frombuffer(columns.physical_offset, np.int64).astype(">i8").view(np.uint8).reshape(count, 8)
    tails = _HEX[log_offsets].reshape(count, 16)
    if len({len(prefix) for prefix in prefixes}) == 1:
        heads = np.array([list(prefix) for prefix in prefixes], np.uint8)[hosts.indices.to_numpy()]
        data = np.concatenate((heads, tails), axis=1)
        offsets = np.arange(count + 1, dtype=np.int32) * data.shape[1]
        return _text(Column(offsets.tobytes(), data.tobytes()), kind, count)
    texts = [prefixes[index] + tails[row].tobytes() for row, index in enumerate(hosts.indices.to_pylist())]
    return pa.array([text.decode() for text in texts], kind)


def _host_hex(text: str) -> bytes:
    ip, _, port = text.rpartition(":")
    packed = ipaddress.ip_address(ip.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)
    return packed.hex().upper().encode()


Build = Callable[[Columns, pa.DataType, "str | None"], pa.Array]
_BUILD: dict[str, Build] = {
    "topic": lambda columns, kind, _: _text(columns.topic, kind, columns.row_count),
    "brokerName": _broker_name,
    "queueId": lambda columns, kind, _: _number(columns.queue_id, kind, columns.row_count),
    "queueOffset": lambda columns, kind, _: _number(columns.queue_offset, kind, columns.row_count),
    "commitLogOffset": lambda columns, kind, _: _number(columns.physical_offset, kind, columns.row_count),
    "msgId": lambda columns, kind, _: _text(columns.msg_id, kind, columns.row_count),
    "offsetMsgId": _offset_msg_id,
    "tags": lambda columns, kind, _: _text(columns.tags, kind, columns.row_count),
    "keys": _keys,
    "body": lambda columns, kind, _: _text(columns.body, kind, columns.row_count),
    "properties": _properties,
    "bornTimestamp": lambda columns, kind, _: _moment(columns.born_timestamp, kind, columns.row_count),
    "storeTimestamp": lambda columns, kind, _: _moment(columns.store_timestamp, kind, columns.row_count),
    "bornHost": lambda columns, kind, _: _text(columns.born_host, kind, columns.row_count),
    "storeHost": lambda columns, kind, _: _text(columns.store_host, kind, columns.row_count),
    "reconsumeTimes": lambda columns, kind, _: _number(columns.reconsume_times, kind, columns.row_count),
    "flag": lambda columns, kind, _: _number(columns.flag, kind, columns.row_count),
    "sysFlag": _sys_flag,
    "storeSize": lambda columns, kind, _: _number(columns.size, kind, columns.row_count),
}


# -------------------------------------------------------------------------------- records, where columns cannot be had


def host_text(host: tuple[bytes, int]) -> str:
    ip, port = host
    address = ipaddress.ip_address(ip)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def _row(record: Record, broker_name: str | None) -> dict[str, Any]:
    try:
        body, sys_flag = record.decompressed_body(), record.sys_flag & ~COMPRESSED
    except BodyError:
        body, sys_flag = record.body, record.sys_flag
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "msgId": record.msg_id,
        "offsetMsgId": record.offset_msg_id,
        "tags": record.tag,
        "keys": record.keys,
        "body": body,
        "properties": list(record.properties.items()),
        "bornTimestamp": record.born_timestamp * 1000,
        "storeTimestamp": record.store_timestamp * 1000,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "flag": record.flag,
        "sysFlag": sys_flag,
        "storeSize": record.size,
    }

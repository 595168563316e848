"""Stored records become Arrow batches: one pass over the bytes, columns out.

In: a buffer and the positions of whole records in it. Out: `pyarrow.RecordBatch`es with exactly the columns that Spark
was promised. Filters that brokers apply by hash only (tags) are applied here again by the text itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from arrowmq.wire.errors import BodyError
from arrowmq.wire.record import Record, decode_record
from arrowmq.wire.sysflag import COMPRESSED

ROWS_PER_BATCH = 8192
BYTES_PER_BATCH = 16 * 1024 * 1024

Keep = Callable[[Record], bool]


class BatchBuilder:
    """Collects records of one broker and gives them back as Arrow batches."""

    def __init__(self, schema: pa.Schema, broker_name: str | None, keep: Keep | None = None) -> None:
        self.schema = schema
        self.keep = keep
        self._getters = [_getter(field.name, broker_name) for field in schema]
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._bytes = 0
        self.rows = 0

    def add(self, buffer: bytes | memoryview, positions: Sequence[int]) -> None:
        """Takes the records at `positions` of `buffer`; they were checked before."""
        for position in positions:
            record = decode_record(buffer, position, check_crc=False)
            if self.keep is not None and not self.keep(record):
                continue
            for values, get in zip(self._columns, self._getters, strict=True):
                values.append(get(record))
            self.rows += 1
            self._bytes += record.size

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
        """What was collected so far; the builder starts anew."""
        arrays = [pa.array(values, field.type) for values, field in zip(self._columns, self.schema, strict=True)]
        if not arrays:
            raise ValueError("a batch needs at least one column")
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._columns = [[] for _ in self.schema]
        self._bytes = self.rows = 0
        return batch


def host_text(host: tuple[bytes, int]) -> str:
    ip, port = host
    if len(ip) == 4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}:{port}"
    return f"[{ipaddress.IPv6Address(ip)}]:{port}"


def _body(record: Record) -> tuple[bytes, int]:
    """The body and the sys flag as a client sees them: unpacked, and then without the bit that says packed. What
    cannot be unpacked is handed over as it is stored, with the bit."""
    if not record.sys_flag & COMPRESSED:
        return record.body, record.sys_flag
    try:
        return record.decompressed_body(), record.sys_flag & ~COMPRESSED
    except BodyError:
        return record.body, record.sys_flag


def _getter(name: str, broker_name: str | None) -> Callable[[Record], Any]:
    getters: dict[str, Callable[[Record], Any]] = {
        "topic": lambda record: record.topic,
        "brokerName": lambda record: broker_name,
        "queueId": lambda record: record.queue_id,
        "queueOffset": lambda record: record.queue_offset,
        "commitLogOffset": lambda record: record.physical_offset,
        "msgId": lambda record: record.msg_id,
        "offsetMsgId": lambda record: record.offset_msg_id,
        "tags": lambda record: record.properties.get("TAGS"),
        "keys": lambda record: record.properties.get("KEYS", "").split(),
        "body": lambda record: _body(record)[0],
        "properties": lambda record: list(record.properties.items()),
        "bornTimestamp": lambda record: record.born_timestamp * 1000,
        "storeTimestamp": lambda record: record.store_timestamp * 1000,
        "bornHost": lambda record: host_text(record.born_host),
        "storeHost": lambda record: host_text(record.store_host),
        "reconsumeTimes": lambda record: record.reconsume_times,
        "flag": lambda record: record.flag,
        "sysFlag": lambda record: _body(record)[1],
        "storeSize": lambda record: record.size,
    }
    return getters[name]

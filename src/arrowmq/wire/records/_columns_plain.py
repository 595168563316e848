"""Records to columns in plain Python: the reference that the native module must agree with."""

from __future__ import annotations

import ipaddress
from array import array
from typing import NamedTuple

from arrowmq.wire.errors import RecordError
from arrowmq.wire.records import _records_plain as records

Buffer = bytes | bytearray | memoryview
_INT32_MAX = 0x7FFFFFFF


class Column(NamedTuple):
    """A column of text or bytes."""

    offsets: bytes  # int32, count + 1 of them
    data: bytes
    validity: bytes | None = None  # a bit for each value, or None if none is missing

    def values(self) -> list[bytes | None]:
        """The values one by one, for tests and for looking at them."""
        offsets = memoryview(self.offsets).cast("i")
        return [
            None
            if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1
            else self.data[offsets[index] : offsets[index + 1]]
            for index in range(len(offsets) - 1)
        ]


class Columns(NamedTuple):
    """The records of a buffer."""

    row_count: int
    topic: Column
    queue_id: bytes  # int32
    queue_offset: bytes  # int64
    physical_offset: bytes  # int64
    size: bytes  # int32
    flag: bytes  # int32
    sys_flag: bytes  # int32
    born_timestamp: bytes  # int64, ms
    store_timestamp: bytes  # int64, ms
    reconsume_times: bytes  # int32
    prepared_transaction_offset: bytes  # int64
    born_host: Column  # `ip:port`
    store_host: Column
    body: Column  # decompressed unless asked otherwise
    tags: Column  # may be missing
    keys: Column  # may be missing
    msg_id: Column  # the client's unique id, else the broker's
    properties_raw: Column  # as stored
    property_offsets: bytes  # int32, count + 1: which names and values belong to a record
    property_names: Column
    property_values: Column


def decode_columns(buffer: Buffer, *, check_crc: bool = False, decompress: bool = True) -> Columns:
    """The records of a pull's body, or of a piece of a commit log, as columns. One that cannot be read raises."""
    found = records.decode_records(buffer, check_crc=check_crc)
    property_offsets = array("i", [0])
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    for record in found:
        for name, value in record.properties.items():
            names.append(name.encode())
            values.append(value.encode())
        property_offsets.append(len(names))
    return Columns(
        row_count=len(found),
        topic=column([record.topic.encode() for record in found]),
        queue_id=array("i", [record.queue_id for record in found]).tobytes(),
        queue_offset=array("q", [record.queue_offset for record in found]).tobytes(),
        physical_offset=array("q", [record.physical_offset for record in found]).tobytes(),
        size=array("i", [record.size for record in found]).tobytes(),
        flag=array("i", [record.flag for record in found]).tobytes(),
        sys_flag=array("i", [record.sys_flag for record in found]).tobytes(),
        born_timestamp=array("q", [record.born_timestamp for record in found]).tobytes(),
        store_timestamp=array("q", [record.store_timestamp for record in found]).tobytes(),
        reconsume_times=array("i", [record.reconsume_times for record in found]).tobytes(),
        prepared_transaction_offset=array("q", [record.prepared_transaction_offset for record in found]).tobytes(),
        born_host=column([host_text(*record.born_host) for record in found]),
        store_host=column([host_text(*record.store_host) for record in found]),
        body=column([record.decompressed_body() if decompress else record.body for record in found]),
        tags=column([_text(record.tag) for record in found], may_miss=True),
        keys=column([_text(record.property("KEYS")) for record in found], may_miss=True),
        msg_id=column([record.msg_id.encode() for record in found]),
        properties_raw=column([record.properties_raw for record in found]),
        property_offsets=property_offsets.tobytes(),
        property_names=column(names),
        property_values=column(values),
    )


def host_text(ip: bytes, port: int) -> bytes:
    address = ipaddress.ip_address(ip)
    return f"{address}:{port}".encode() if address.version == 4 else f"[{address}]:{port}".encode()


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def column(values: list[bytes | None] | list[bytes], *, may_miss: bool = False) -> Column:
    offsets = array("i", [0])
    total = 0
    validity = bytearray((len(values) + 7) // 8)
    for index, value in enumerate(values):
        if value is not None:
            total += len(value)
            validity[index >> 3] |= 1 << (index & 7)
        if total > _INT32_MAX:
            raise RecordError("the records hold more than 2 GiB, which one column cannot")
        offsets.append(total)
    data = b"".join([value for value in values if value is not None])
    return Column(offsets.tobytes(), data, bytes(validity) if may_miss else None)

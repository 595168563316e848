"""Stored records in plain Python: the reference that the native module must agree with.

#    at  bytes  field                       (offsets with two IPv4 hosts)
1     0      4  total size
2     4      4  magic: version 1 or 2
3     8      4  CRC of the body, top bit cleared
4    12      4  queue id
5    16      4  flag (the user's)
6    20      8  queue offset
7    28      8  physical offset
8    36      4  sys flag
9    40      8  born timestamp
10   48   8/20  born host: IP (16 bytes if sys flag bit 4) + port (4)
11   56      8  store timestamp
12   64   8/20  store host: IP (16 bytes if sys flag bit 5) + port (4)
13   72      4  reconsume times
14   76      8  prepared transaction offset
15   84    4+n  body
16        1+n   topic (version 2: 2+n)
17        2+n   properties
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from arrowmq.wire._checksum_plain import crc32
from arrowmq.wire.compression import decompress
from arrowmq.wire.errors import RecordError
from arrowmq.wire.ids import offset_message_id
from arrowmq.wire.properties import decode_properties
from arrowmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB
BLANK_MAGIC = -875286124  # 0xCBD43194: fills the end of a commit log file
MIN_RECORD_BYTES = 91
CRC_PROPERTY_BYTES = 20  # `__CRC32#` 0x01, ten digits, 0x02

Buffer = bytes | bytearray | memoryview
Host = tuple[bytes, int]

_START = struct.Struct(">iiiiiqqiq")  # 1 to 9
_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PORT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MIDDLE = struct.Struct(">iqi")  # 13, 14 and the body's length
_NOWHERE: Host = (b"\x00\x00\x00\x00", 0)


# The fields of a record, in the order in which `Record` takes them.
FIELDS = (
    "topic", "body", "properties_raw", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset",
    "size", "magic", "body_crc",
)  # fmt: skip


class Record:
    """One message as the commit log holds it and as pulls deliver it. `body` is as stored, so perhaps compressed."""

    __slots__ = (*FIELDS, "_properties")

    def __init__(
        self,
        topic: str = "",
        body: bytes = b"",
        properties_raw: bytes = b"",
        queue_id: int = 0,
        flag: int = 0,
        queue_offset: int = 0,
        physical_offset: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: Host = _NOWHERE,
        store_timestamp: int = 0,
        store_host: Host = _NOWHERE,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        size: int = 0,
        magic: int = 0,
        body_crc: int = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties_raw = properties_raw
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.size = size
        self.magic = magic
        self.body_crc = body_crc
        self._properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The properties, read on first use. Changing the dict does not change `properties_raw`."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_raw)
        return self._properties

    @property
    def tag(self) -> str | None:
        return self.property("TAGS")

    @property
    def keys(self) -> list[str]:
        """The index keys; the property separates them by spaces."""
        text = self.property("KEYS")
        return text.split() if text else []

    @property
    def msg_id(self) -> str:
        """The client's unique id, or the broker's id of a message that has none."""
        return self.property("UNIQ_KEY") or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        return offset_message_id(self.store_host[0], self.store_host[1], self.physical_offset)

    def property(self, name: str) -> str | None:
        """One property, without reading the others."""
        if self._properties is not None:
            return self._properties.get(name)
        value = find_property(self.properties_raw, name.encode("utf-8", "replace"))
        return None if value is None else value.decode("utf-8", "replace")

    def decompressed_body(self) -> bytes:
        """The body as its sender had it."""
        return decompress(self.sys_flag, self.body)

    def replace(self, **changes: Any) -> Record:
        """A copy with some fields changed."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return Record(**(fields | changes))

    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]:
        return Record, tuple(getattr(self, name) for name in FIELDS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<Record {self.topic}/{self.queue_id}@{self.queue_offset} at {self.physical_offset}, "
            f"body {len(self.body)} bytes>"
        )


# ----------------------------------------------------------------------------------------------------------- writing


def encode_record(record: Record, *, with_record_crc: bool = False) -> bytes:
    """The bytes of a record. Size, CRC, the version and the IPv6 bits follow from the content, whatever they were.

    `with_record_crc` appends the property `__CRC32#`, a checksum over everything before it. One that is there already
    was made over other bytes, or by a sender who would have his message taken for a damaged one: it is dropped.
    """
    topic = record.topic.encode("utf-8", "replace")
    properties = without_crc_property(record.properties_raw)
    if with_record_crc:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += bytes(CRC_PROPERTY_BYTES)
    if len(properties) > 32767:
        raise RecordError(f"the properties have {len(properties)} bytes, a record has room for 32767")
    if len(topic) > 32767:
        raise RecordError(f"the topic has {len(topic)} bytes, a record has room for 32767")
    is_v2 = len(topic) > 127
    born_ip, born_port = record.born_host
    store_ip, store_port = record.store_host
    if len(born_ip) not in (4, 16) or len(store_ip) not in (4, 16):
        raise RecordError("a host has 4 or 16 bytes of address")
    sys_flag = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(born_ip) == 16 else 0
    sys_flag |= STORE_HOST_V6 if len(store_ip) == 16 else 0
    body = record.body
    size = 76 + len(born_ip) + len(store_ip) + 4 + len(body) + (2 if is_v2 else 1) + len(topic) + 2 + len(properties)
    try:
        encoded = b"".join(
            (
                _START.pack(
                    size, MAGIC_V2 if is_v2 else MAGIC_V1, crc32(body), record.queue_id, record.flag,
                    record.queue_offset, record.physical_offset, sys_flag, record.born_timestamp,
                ),
                born_ip, _PORT.pack(born_port), _LONG.pack(record.store_timestamp),
                store_ip, _PORT.pack(store_port),
                _MIDDLE.pack(record.reconsume_times, record.prepared_transaction_offset, len(body)), body,
                _SHORT.pack(len(topic)) if is_v2 else bytes((len(topic),)), topic,
                _SHORT.pack(len(properties)), properties,
            )
        )  # fmt: skip
    except struct.error as wrong:
        raise RecordError(f"a field of the record does not fit: {wrong}") from wrong
    return _with_crc_property(encoded) if with_record_crc else encoded


def _with_crc_property(encoded: bytes) -> bytes:
    kept = encoded[:-CRC_PROPERTY_BYTES]
    return kept + crc_property(crc32(kept))


def crc_property(crc: int) -> bytes:
    """The property that ends a record with a checksum: the digits stand least significant first."""
    return b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"


def has_crc_property(properties: bytes) -> bool:
    """Whether the last item is a checksum: the name alone may stand in any value."""
    return (
        properties[-CRC_PROPERTY_BYTES : -CRC_PROPERTY_BYTES + 9] == b"__CRC32#\x01"
        and properties[-1] == 2
        and (len(properties) == CRC_PROPERTY_BYTES or properties[-CRC_PROPERTY_BYTES - 1] == 2)
    )


def without_crc_property(properties: bytes) -> bytes:
    while has_crc_property(properties):
        properties = properties[:-CRC_PROPERTY_BYTES]
    return properties


# ----------------------------------------------------------------------------------------------------------- reading


class _Layout(NamedTuple):
    """Where the parts of one record begin, all checked to lie inside it."""

    end: int
    born_host: int
    store_host: int
    body: int
    body_length: int
    topic: int
    topic_length: int
    properties: int
    properties_length: int


def _layout(view: Buffer, offset: int, limit: int) -> _Layout:
    if limit - offset < MIN_RECORD_BYTES:
        raise RecordError(f"{limit - offset} bytes are too few for a record", offset)
    size, magic = _LENGTH.unpack_from(view, offset)[0], _LENGTH.unpack_from(view, offset + 4)[0]
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"magic {magic & 0xFFFFFFFF:#x} is no record's", offset)
    if size < MIN_RECORD_BYTES or size > limit - offset:
        raise RecordError(f"the record claims {size} bytes, {limit - offset} are there", offset)
    end = offset + size
    sys_flag = _LENGTH.unpack_from(view, offset + 36)[0]
    born_host = offset + 48
    store_host = born_host + (20 if sys_flag & BORN_HOST_V6 else 8) + 8
    body = store_host + (20 if sys_flag & STORE_HOST_V6 else 8) + 16
    topic_length_bytes = 2 if magic == MAGIC_V2 else 1
    if end - body < topic_length_bytes + 2:
        raise RecordError("the record ends before its body", offset)
    body_length = _LENGTH.unpack_from(view, body - 4)[0]
    if body_length < 0 or body_length > end - body - topic_length_bytes - 2:
        raise RecordError(f"the body claims {body_length} bytes", body - 4)
    topic = body + body_length + topic_length_bytes
    topic_length = _SHORT.unpack_from(view, topic - 2)[0] if topic_length_bytes == 2 else view[topic - 1]
    # Java reads the one byte as signed, so it never wrote more than 127 there.
    if topic_length < 0 or (topic_length_bytes == 1 and topic_length > 127) or topic_length > end - topic - 2:
        raise RecordError(f"the topic claims {topic_length} bytes", topic - topic_length_bytes)
    properties = topic + topic_length + 2
    properties_length = _SHORT.unpack_from(view, properties - 2)[0]
    if properties_length != end - properties:
        raise RecordError(
            f"the properties claim {properties_length} bytes, {end - properties} are there", properties - 2
        )
    return _Layout(end, born_host, store_host, body, body_length, topic, topic_length, properties, properties_length)


def decode_record(
    buffer: Buffer, offset: int = 0, *, check_crc: bool = True, require_record_crc: bool = False
) -> Record:
    """The record at `offset`. With `check_crc` the body's checksum, and the record's if it has one, must be right.

    `require_record_crc` refuses a record without a checksum of its own: then no changed byte passes at all.
    """
    if offset < 0 or offset > len(buffer):
        raise RecordError(f"offset {offset} lies outside of the buffer", offset)
    record = _read(memoryview(buffer), offset, len(buffer), check_crc or require_record_crc)
    if require_record_crc and not has_crc_property(record.properties_raw):
        raise RecordError("the record has no checksum of its own", offset)
    return record


def decode_records(buffer: Buffer, *, check_crc: bool = False) -> list[Record]:
    """Every record of a pull's body. One that cannot be read raises `RecordError`, with its position."""
    view = memoryview(buffer)
    records: list[Record] = []
    offset, limit = 0, len(view)
    while offset < limit:
        record = _read(view, offset, limit, check_crc)
        records.append(record)
        offset += record.size
    return records


def _read(view: memoryview, offset: int, limit: int, check_crc: bool) -> Record:
    at = _layout(view, offset, limit)
    if check_crc:
        _check_crc(view, offset, at)
    (size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp) = (
        _START.unpack_from(view, offset)
    )
    reconsume_times, prepared_transaction_offset, _ = _MIDDLE.unpack_from(view, at.body - 16)
    return Record(
        str(view[at.topic : at.topic + at.topic_length], "utf-8", "replace"),
        bytes(view[at.body : at.body + at.body_length]),
        bytes(view[at.properties : at.end]),
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        _host(view, at.born_host, at.store_host - 8),
        _LONG.unpack_from(view, at.store_host - 8)[0],
        _host(view, at.store_host, at.body - 16),
        reconsume_times,
        prepared_transaction_offset,
        size,
        magic,
        body_crc,
    )


def _host(view: memoryview, begin: int, end: int) -> Host:
    return bytes(view[begin : end - 4]), _PORT.unpack_from(view, end - 4)[0]


def _check_crc(view: memoryview, offset: int, at: _Layout) -> None:
    stored = _LENGTH.unpack_from(view, offset + 8)[0]
    actual = crc32(view[at.body : at.body + at.body_length])
    # Java leaves the field 0 for an empty body, whose CRC is 0 as well.
    if stored != actual:
        raise RecordError(f"the body has CRC {actual}, the record says {stored}", offset)
    if has_crc_property(bytes(view[at.properties : at.end])):
        tail_begin = at.end - CRC_PROPERTY_BYTES
        if bytes(view[tail_begin : at.end]) != crc_property(crc32(view[offset:tail_begin])):
            raise RecordError("the record does not have the checksum that its properties say", offset)


def record_bounds(buffer: Buffer, offset: int = 0) -> list[tuple[int, int]]:
    """(offset, size) of the records one after another from `offset`, up to the end or the first that is none."""
    view = memoryview(buffer)
    bounds: list[tuple[int, int]] = []
    limit = len(view)
    if offset < 0:
        return bounds
    while offset < limit:
        try:
            end = _layout(view, offset, limit).end
        except RecordError:
            break
        bounds.append((offset, end - offset))
        offset = end
    return bounds


def find_property(properties: Buffer, name: bytes) -> bytes | None:
    """The value of one property (of the last item with that name), without reading the others into a dict."""
    found: bytes | None = None
    for item in bytes(properties).split(b"\x02"):
        if item.startswith(name) and item[len(name) : len(name) + 1] == b"\x01" and len(item) > len(name) + 1:
            found = item[len(name) + 1 :]
    return found if name else None

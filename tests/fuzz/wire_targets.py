"""What is fuzzed of the wire: frames and all that lies in them, greetings, ids and filters."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from target import Target
from writing import numbered, opened

from arrowmq.filter import compile as compile_filter
from arrowmq.filter.errors import FilterError
from arrowmq.remoting.greeting import may_be_proxy, read_proxy
from arrowmq.spark.store.log_walk import sound_run
from arrowmq.store.log.walk import (
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    repair_index,
    scan_queue,
    topic_and_properties,
    walk,
)
from arrowmq.wire import bodies, fastjson, headers
from arrowmq.wire.compression import CompressionType, compress, decompress
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import FrameSplitter, decode_frame, encode_frame
from arrowmq.wire.headers import Header, decode_header, encode_header
from arrowmq.wire.ids import parse_offset_message_id, parse_recall_handle
from arrowmq.wire.properties import are_well_formed, decode_properties, encode_properties
from arrowmq.wire.records import decode_record, decode_records
from arrowmq.wire.records.columns import decode_columns

GOLDEN = Path(__file__).parents[1] / "golden"
MOST_DECOMPRESSED = 1 << 20


@cache
def recorded_frames() -> list[bytes]:
    """Every frame that Apache's programs were recorded to send, with its length; no two of one code and size."""
    found: dict[tuple[int, int], bytes] = {}
    for path in sorted((GOLDEN / "wire").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                frame = json.loads(line)
                if frame["link"] == "slave-master-ha":
                    continue
                data = bytes.fromhex(frame["hex"])
                if len(data) > 8:
                    found.setdefault((decode_frame(data[4:]).code, len(data)), data)
    return list(found.values())


@cache
def stored_records() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder) / "store")
        places = [store.put(numbered(number)).physical_offset for number in range(20)]
        records = [bytes(store.record_bytes_at(place) or b"") for place in places]
        store.close()
    return records


def run_frames(data: bytes) -> None:
    try:
        for command in FrameSplitter().feed(data):
            encode_frame(command)
    except WireError:
        return


HEADERS = [
    kind
    for kind in vars(headers).values()
    if isinstance(kind, type) and issubclass(kind, Header) and kind is not Header
]
BODIES = [kind for kind in vars(bodies).values() if isinstance(kind, type) and hasattr(kind, "__struct_fields__")]


def run_headers(data: bytes) -> None:
    """The first byte chooses the class, the others are names and values by lines."""
    if not data:
        return
    kind = HEADERS[data[0] % len(HEADERS)]
    names = list(getattr(kind, "__struct_fields__", ())) or ["topic"]
    values = data[1:].split(b"\n")
    wire = headers.wire_names(kind) if hasattr(headers, "wire_names") else names
    fields = {str(name): value.decode("utf-8", "replace") for name, value in zip(wire, values, strict=False)}
    try:
        header = decode_header(kind, fields)
    except WireError:
        return
    assert header == decode_header(kind, encode_header(header))


def header_corpus() -> list[bytes]:
    return [
        bytes([number]) + b"\n".join([b"1", b"orders", b"true", b"-1", b"9223372036854775807"]) for number in range(256)
    ]


def run_json(data: bytes) -> None:
    """The first byte chooses the class."""
    if not data:
        return
    kind: Any = BODIES[data[0] % len(BODIES)]
    for wanted in (Any, kind):
        try:
            fastjson.dumps(fastjson.loads(data[1:], type=wanted))
        except WireError:
            continue


def json_corpus() -> list[bytes]:
    texts = [frame[frame.index(b"{", 40) :] for frame in recorded_frames() if b"{" in frame[40:]][:200]
    return [bytes([number % 256]) + text[:4000] for number, text in enumerate(texts)]


def run_records(data: bytes) -> None:
    """Records as clients, Spark and recovery read them; what looks like a queue or an index file of a store as well."""
    view = memoryview(data)
    for read in (
        lambda: decode_records(data, check_crc=True),
        lambda: decode_record(data),
        lambda: decode_columns(data, check_crc=True),
    ):
        try:
            read()
        except WireError:
            continue
    walked = walk(view, 0, len(data), 0, CHECK_BODY_CRC | CHECK_RECORD_CRC)
    assert 0 <= walked.position <= len(data)
    topic_and_properties(view, 0, len(data))
    assert 0 <= sound_run(view, 0, len(data), 0)[0] <= len(data)
    scan_queue(data, 0)
    slots = 5
    entries = (len(data) - 40 - 4 * slots) // 20
    if entries > 1:
        repair_index(memoryview(bytearray(data)), slots, entries, 1 << 40)


def run_properties(data: bytes) -> None:
    found = decode_properties(data)
    if are_well_formed(data):
        assert decode_properties(encode_properties(found)) == found


def run_decompress(data: bytes) -> None:
    if not data:
        return
    try:
        assert len(decompress(data[0] << 8 | 1, data[1:], MOST_DECOMPRESSED)) <= MOST_DECOMPRESSED
    except WireError:
        return


def compressed() -> list[bytes]:
    """Of each kind: nothing, a little, and more than is allowed."""
    texts = (b"", b"hello " * 40, bytes(2 * MOST_DECOMPRESSED))
    return [bytes([kind]) + compress(kind, text) for kind in CompressionType for text in texts]


def run_sql(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for kind in ("SQL92", "TAG"):
        try:
            compiled = compile_filter(kind, text)
        except FilterError:
            continue
        if compiled.needs_record:
            compiled.matches_record(memoryview(stored_records()[0]))


def sql_corpus() -> list[bytes]:
    expressions = json.loads((GOLDEN / "filter" / "expressions.json").read_text())
    texts = expressions if isinstance(expressions, list) else list(expressions)
    return [str(text).encode() for text in texts][:300] or [b"a > 1 AND b IN ('x', 'y')"]


def run_greeting(data: bytes) -> None:
    view = memoryview(data)
    if may_be_proxy(view):
        try:
            read_proxy(view)
        except WireError:
            return


def run_ids(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for read in (parse_offset_message_id, parse_recall_handle):
        try:
            read(text)
        except WireError:
            continue


TARGETS = {
    "frames": Target(recorded_frames, run_frames),
    "headers": Target(header_corpus, run_headers),
    "json": Target(json_corpus, run_json),
    "records": Target(lambda: [*stored_records(), b"".join(stored_records()[:5])], run_records),
    "properties": Target(
        lambda: [b"KEYS\x01a b\x02TAGS\x01t\x02", b"\x01\x02", b"a\x01", "grüße\x01ß\x02".encode()], run_properties
    ),
    "decompress": Target(compressed, run_decompress),
    "sql92": Target(sql_corpus, run_sql),
    "greeting": Target(
        lambda: [b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)],
        run_greeting,
    ),
    "ids": Target(lambda: [b"0A000001" * 4, b"djEg" * 10], run_ids),
}

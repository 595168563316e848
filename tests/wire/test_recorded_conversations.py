"""Every frame that the Apache client, broker, NameServer, controller and mqadmin were recorded to send.

What is compared byte for byte, and what by value:

- A frame decoded and encoded again: the same bytes, always (the fields keep the order in which they came), but for an
  empty `extFields`, which Java writes if it had a header object without any value, and which we leave out.
- A header decoded to its class and encoded again: the same fields. In the same order where Java defines one: the four
  headers that write themselves (send V2, send result, pull, pull result) in their own order in the binary form, all
  others in the order of a Java HashMap; where two names share a bucket of that map, the order is Java's secret.
- A JSON body decoded to its struct and encoded again: the same value, with defaults where an old client leaves a member
  out; the same bytes unless it holds a map (Java writes maps in hash order and number keys bare) or lacks members.
- Records and batch items: the same bytes, always.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arrowmq.wire import bodies, fastjson, headers
from arrowmq.wire.batch import decode_batch, encode_batch
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.codes import LanguageCode, RequestCode, full_code
from arrowmq.wire.fastjson_reader import parse
from arrowmq.wire.frames import Command, FrameSplitter, decode_frame, encode_frame
from arrowmq.wire.headers import decode_header, encode_header, wire_names
from arrowmq.wire.records import decode_record, decode_records, encode_record

GOLDEN = Path(__file__).parents[1] / "golden" / "wire"
SCENES = sorted(path.name.removesuffix(".jsonl.gz") for path in GOLDEN.glob("*.jsonl.gz"))

# Fields that any request may carry beside its own: the stream client's mark.
COMMON_FIELDS = {"ReqT"}
WRITE_THEMSELVES = (
    headers.SendMessageV2,
    headers.SendMessageResult,
    headers.PullMessage,
    headers.PullMessageResult,
)
RECORD_ANSWERS = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
}
RECORD_REQUESTS = {RequestCode.CHECK_TRANSACTION_STATE, RequestCode.CONSUME_MESSAGE_DIRECTLY}


class Recorded(NamedTuple):
    frame: bytes
    decoded: dict[str, Any]  # as an independent decoder read it
    command: Command
    request_code: int | None  # of an answer: the code of its request, if that was recorded


def frames_of(scene: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / f"{scene}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            frame = json.loads(line)
            if frame["link"] != "slave-master-ha":  # the replication port has a protocol of its own
                yield frame


def conversation(scene: str) -> list[Recorded]:
    pending: dict[tuple[str, int, str, int], int] = {}
    found: list[Recorded] = []
    for line in frames_of(scene):
        frame = bytes.fromhex(line["hex"])
        command = decode_frame(frame[4:])
        link, conn, side = line["link"], line["conn"], line["from"]
        if command.is_response:
            asker = "client" if side == "server" else "server"
            request_code = pending.pop((link, conn, asker, command.opaque), None)
        else:
            pending[link, conn, side, command.opaque] = command.code
            request_code = None
        found.append(Recorded(frame, line["decoded"], command, request_code))
    return found


@pytest.fixture(params=SCENES)
def recorded(request: pytest.FixtureRequest) -> list[Recorded]:
    return conversation(request.param)


def test_there_are_recordings_of_both_serializations() -> None:
    assert 142 == len(SCENES)
    assert 71 == sum(name.endswith(".rocketmq") for name in SCENES)


def test_every_frame_decodes_to_what_an_independent_decoder_saw(recorded: list[Recorded]) -> None:
    for frame, decoded, command, _ in recorded:
        code = decoded["code"] if command.is_response else full_code(decoded["code"])
        assert code == command.code
        assert decoded["flag"] == command.flag
        assert decoded["opaque"] == command.opaque
        assert decoded["version"] == command.version
        assert decoded["language"] == LanguageCode(command.language).name
        assert decoded["remark"] == command.remark
        assert {name: value or "" for name, value in decoded["extFields"].items()} == command.ext
        assert ("ROCKETMQ" if command.serialize_type else "JSON") == decoded["serialization"]
        assert frame.endswith(command.body)


def test_every_frame_encodes_to_the_same_bytes(recorded: list[Recorded]) -> None:
    for frame, _, command, _ in recorded:
        assert without_empty_fields(frame) == encode_frame(command)


def without_empty_fields(frame: bytes) -> bytes:
    empty = b'"extFields":{},'
    if empty not in frame or frame[4] != 0:
        return frame
    length, word = int.from_bytes(frame[:4]) - len(empty), int.from_bytes(frame[4:8]) - len(empty)
    return length.to_bytes(4) + word.to_bytes(4) + frame[8:].replace(empty, b"", 1)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 1 << 20])
def test_a_conversation_splits_into_the_same_frames_in_any_chunks(chunk_bytes: int) -> None:
    wanted = conversation("send-sync.json") + conversation("send-sync.rocketmq")
    stream = b"".join(frame for frame, _, _, _ in wanted)
    splitter = FrameSplitter()
    commands: list[Command] = []
    for begin in range(0, len(stream), chunk_bytes):
        commands += splitter.feed(stream[begin : begin + chunk_bytes])
    assert [command for _, _, command, _ in wanted] == commands
    assert 0 == splitter.pending_bytes


def header_class(entry: Recorded) -> type[headers.Header] | None:
    if not entry.command.is_response:
        return headers.request_header(entry.command.code)
    if entry.request_code is None or entry.command.code != 0:
        return None
    return headers.response_header(entry.request_code)


def test_every_header_decodes_to_its_class_and_back(recorded: list[Recorded]) -> None:
    for entry in recorded:
        cls = header_class(entry)
        if cls is None:
            continue
        header = decode_header(cls, entry.command.ext)
        unknown = set(entry.command.ext) - set(wire_names(cls))
        assert unknown <= COMMON_FIELDS, f"{cls.__name__} lacks {unknown}"
        expected = {name: value for name, value in entry.command.ext.items() if name not in unknown}
        assert expected == encode_header(header)


def test_send_v2_and_v1_are_one_header() -> None:
    sends = [entry.command for entry in conversation("send-sync.json") if entry.command.code == 310]
    assert sends
    for command in sends:
        header = headers.SendMessage.from_v2_ext(command.ext)
        assert command.ext == header.to_v2_ext()
        assert header == decode_header(headers.SendMessage, encode_header(header))


# Put into the map one by one before the header is, into a map of 256 buckets; the header alone gets one of 16.
ADDED_FIELDS = ("ReqT", "TRACE_ON", "MSG_REGION", "_UNIQUE_KEY_QUERY", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE")


def buckets_of(names: list[str]) -> dict[str, int]:
    """The buckets of a Java HashMap in which these names lie; it lists them by bucket."""
    added = [name for name in ADDED_FIELDS if name in names]
    buckets = 256 if added else 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    places = {}
    for name in added + [name for name in names if name not in added]:
        hashed = java_hash(name) & 0xFFFFFFFF
        places[name] = (hashed ^ (hashed >> 16)) & (buckets - 1)
    return places


def hash_map_order(names: list[str]) -> list[str]:
    places = buckets_of(names)
    return sorted(places, key=lambda name: places[name])


def java_order(cls: type[headers.Header], ext: dict[str, str], serialize_type: int) -> list[str]:
    if serialize_type == 0 or cls not in WRITE_THEMSELVES:
        return hash_map_order(list(ext))
    own = [name for name in ext if name not in ADDED_FIELDS]
    return own + hash_map_order([name for name in ext if name in ADDED_FIELDS])


def test_headers_encode_to_the_same_bytes_in_the_order_of_java() -> None:
    counts: Counter[str] = Counter()
    for scene in SCENES:
        for frame, _, command, request_code in conversation(scene):
            cls = header_class(Recorded(frame, {}, command, request_code))
            if cls is None or not command.ext:
                continue
            ext = encode_header(decode_header(cls, command.ext))
            ext |= {name: command.ext[name] for name in COMMON_FIELDS & set(command.ext)}
            command.ext = {name: ext[name] for name in java_order(cls, ext, command.serialize_type)}
            if frame == encode_frame(command):
                counts["same bytes"] += 1
            elif len(set(buckets_of(list(ext)).values())) < len(ext):
                counts["two names share a bucket"] += 1
            else:
                assert cls is headers.GetConsumerRunningInfo
                counts["relayed by the broker, out of a map of another size"] += 1
    assert {
        "same bytes": 3997,
        "two names share a bucket": 571,
        "relayed by the broker, out of a map of another size": 2,
    } == counts


def body_type(entry: Recorded) -> Any:
    if not entry.command.is_response:
        return bodies.REQUEST_BODIES.get(entry.command.code)
    if entry.request_code is None or entry.command.code != 0:
        return None
    return bodies.RESPONSE_BODIES.get(entry.request_code)


def has_maps(value: Any) -> bool:
    if isinstance(value, dict):
        return any(isinstance(member, dict) or has_maps(member) for member in value.values())
    return isinstance(value, list) and any(has_maps(item) for item in value)


def lacks(full: Any, part: Any) -> bool:
    """Whether `part` is `full` with some members left out."""
    if isinstance(full, dict) and isinstance(part, dict):
        return set(part) <= set(full) and all(lacks(full[name], part[name]) for name in part)
    if isinstance(full, list) and isinstance(part, list):
        return len(full) == len(part) and all(map(lacks, full, part))
    return bool(full == part)


def test_every_json_body_decodes_to_its_struct_and_back() -> None:
    counts: Counter[str] = Counter()
    for scene in SCENES:
        for entry in conversation(scene):
            body, kind = entry.command.body, body_type(entry)
            if not body.startswith((b"{", b"[")):
                continue
            if entry.command.is_response and entry.request_code is None:
                counts["answer without its request"] += 1
                continue
            assert kind is not None, f"no body is declared for {entry.request_code} {entry.command}"
            written = fastjson.dumps(fastjson.loads(body, kind))
            if body == written:
                counts["same bytes"] += 1
            elif parse(body) == parse(written):
                assert has_maps(parse(body))
                counts["same value, maps in another order"] += 1
            else:
                assert lacks(parse(written), parse(body))
                counts["same value, members of newer versions added"] += 1
    assert {
        "same bytes": 1394,
        "same value, maps in another order": 416,
        "same value, members of newer versions added": 23,
        "answer without its request": 2,
    } == counts


def test_every_record_decodes_and_encodes_to_the_same_bytes() -> None:
    count = 0
    for scene in SCENES:
        for entry in conversation(scene):
            command = entry.command
            has_records = (
                entry.request_code in RECORD_ANSWERS and command.code == 0
                if command.is_response
                else command.code in RECORD_REQUESTS
            )
            if not has_records or not command.body:
                continue
            records = decode_records(command.body, check_crc=True)
            assert command.body == b"".join(encode_record(record) for record in records)
            assert records == [
                decode_record(command.body, sum(before.size for before in records[:index]))
                for index in range(len(records))
            ]
            count += len(records)
    assert 342 == count


def test_every_batch_decodes_and_encodes_to_the_same_bytes() -> None:
    count = 0
    for scene in SCENES:
        for entry in conversation(scene):
            if entry.command.code == RequestCode.SEND_BATCH_MESSAGE and not entry.command.is_response:
                items = decode_batch(entry.command.body)
                assert entry.command.body == encode_batch(items)
                count += len(items)
    assert 68 == count

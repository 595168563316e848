"""Messages: find, show, send, send again, let a member consume one on the spot."""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from starlette.responses import Response

from arrowmq.client.message import ReceivedMessage
from arrowmq.console.api.consumers.offsets import LATEST_MS
from arrowmq.console.api.declare import Call, Query, Struct, endpoint
from arrowmq.console.api.topics import stats_of
from arrowmq.console.errors import bad_request
from arrowmq.inspect.messages.finding import find_by_id, host_text, offsets_at
from arrowmq.inspect.texts import body_text

MOST_SCANNED = 20_000
SCAN_S = 4.0
PULL = 32
PREVIEW = 200
#: How much of a body a page shows; all of it is to be had as a file
SHOWN_BYTES = 256 << 10
HEX_BYTES = 16 << 10

Moment = Annotated[int, msgspec.Meta(ge=0, le=LATEST_MS)]
MessageId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class MessagesQuery(Query, kw_only=True):
    """By id; by topic and key; or by topic, time and text. Times are milliseconds since 1970."""

    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    id: Annotated[str, msgspec.Meta(max_length=200)] = ""
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    text: Annotated[str, msgspec.Meta(max_length=500)] = ""
    tag: Annotated[str, msgspec.Meta(max_length=255)] = ""
    begin: Moment | None = None
    end: Moment | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 64


class MessageRow(Struct, kw_only=True):
    msg_id: str
    offset_msg_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    tag: str | None
    keys: list[str]
    stored: int
    born: int
    size: int
    preview: str


class MessagesAnswer(Struct, kw_only=True):
    rows: list[MessageRow]
    scanned: int | None = None
    is_complete: bool = True


@endpoint("GET", "/api/messages", tag="messages")
async def messages(call: Call, query: MessagesQuery) -> MessagesAnswer:
    """Find messages, the newest first. A search by time and text reads at most 20,000, or four seconds, and says so."""
    admin = await call.admin()
    if query.id:
        return MessagesAnswer(rows=[row_of(await find_by_id(admin, query.id, query.topic or None))])
    if not query.topic:
        raise bad_request("a search needs a topic, or an id")
    if query.key:
        begin, end = _moment(query.begin), _moment(query.end)
        found = await admin.messages_by_key(query.topic, query.key, max_count=query.limit, begin=begin, end=end)
        return MessagesAnswer(rows=[row_of(each) for each in reversed(found) if not query.tag or each.tag == query.tag])
    if query.begin is None and query.end is None and not query.text and not query.tag:
        return MessagesAnswer(rows=[row_of(each) for each in await _newest(call, query)])
    return await _scan(call, query)


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


async def _newest(call: Call, query: MessagesQuery) -> list[ReceivedMessage]:
    admin = await call.admin()
    # Who searches looks for what is there now: offsets that are kept for a moment would hide the newest.
    stats = await stats_of(call, query.topic, 0)
    each = max(1, -(-query.limit // max(1, sum(limits.max_offset > limits.min_offset for limits in stats.values()))))
    found: list[ReceivedMessage] = []
    for queue, limits in stats.items():
        offset = max(limits.min_offset, limits.max_offset - min(each, PULL))
        if offset < limits.max_offset:
            found += await admin.messages_at(queue, offset, PULL)
    found.sort(key=lambda message: message.store_timestamp, reverse=True)
    return found[: query.limit]


@dataclass(slots=True)
class _Rest:
    """What of a queue is still to be read, from its newest message back; and how old what was read of it is."""

    first: int
    end: int
    read_back_to_ms: float = math.inf


async def _scan(call: Call, query: MessagesQuery) -> MessagesAnswer:
    """From the newest back, always on in the queue of which least was read: what is left out is the oldest."""
    admin = await call.admin()
    stats = await stats_of(call, query.topic, 0)
    begin_ms = query.begin or 0
    starts = await offsets_at(admin, query.topic, list(stats), begin_ms)
    ends = {} if query.end is None else await offsets_at(admin, query.topic, list(stats), query.end)
    rests = {
        queue: _Rest(max(starts[queue], limits.min_offset), min(limits.max_offset, ends.get(queue, limits.max_offset)))
        for queue, limits in stats.items()
    }
    deadline = time.monotonic() + SCAN_S
    text = query.text.lower()
    found: list[ReceivedMessage] = []
    scanned = 0
    while rests := {queue: rest for queue, rest in rests.items() if rest.first < rest.end}:
        queue, rest = max(rests.items(), key=lambda item: item[1].read_back_to_ms)
        if scanned >= MOST_SCANNED or time.monotonic() > deadline or _has_newest(found, query.limit, rest):
            break
        offset = begin = max(rest.first, rest.end - PULL)
        while offset < rest.end:  # an answer is bounded in bytes as well, and may be short
            batch = await admin.messages_at(queue, offset, rest.end - offset)
            if not batch:
                break
            if offset == begin:
                rest.read_back_to_ms = batch[0].store_timestamp
            scanned += len(batch)
            offset = batch[-1].queue_offset + 1
            found += [
                each
                for each in batch
                if each.store_timestamp >= begin_ms
                and (query.end is None or each.store_timestamp < query.end)
                and (not query.tag or each.tag == query.tag)
                and (not text or text in body_text(each.body).lower())
            ]
        rest.end = begin
    found.sort(key=lambda message: message.store_timestamp, reverse=True)
    rows = [row_of(each) for each in found[: query.limit]]
    return MessagesAnswer(rows=rows, scanned=scanned, is_complete=not rests)


def _has_newest(found: list[ReceivedMessage], limit: int, rest: _Rest) -> bool:
    """Whether nothing that is still to be read can be newer than the oldest that would be shown."""
    if len(found) < limit:
        return False
    shown = heapq.nlargest(limit, (message.store_timestamp for message in found))
    return rest.read_back_to_ms <= shown[-1]


def row_of(message: ReceivedMessage) -> MessageRow:
    return MessageRow(
        msg_id=message.msg_id,
        offset_msg_id=message.offset_msg_id,
        topic=message.topic,
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        tag=message.tag,
        keys=message.keys,
        stored=message.store_timestamp,
        born=message.born_timestamp,
        size=message.size,
        preview=body_text(message.body[:PREVIEW], PREVIEW),
    )


# -- one


class MessageQuery(Query, kw_only=True):
    id: MessageId
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""


class MessageAnswer(MessageRow, kw_only=True):
    born_host: str
    store_host: str
    physical_offset: int
    reconsume_times: int
    flag: int
    sys_flag: int
    properties: dict[str, str]
    body_bytes: int
    is_text: bool
    text: str
    json: str | None
    hex: str
    is_cut: bool


@endpoint("GET", "/api/messages/{id}", tag="messages")
async def message(call: Call, query: MessageQuery) -> MessageAnswer:
    """One message with its properties and its body as text, JSON (if it is) and hexadecimal."""
    return shown(await find(call, query))


async def find(call: Call, query: MessageQuery) -> ReceivedMessage:
    return await find_by_id(await call.admin(), query.id, query.topic or None)


def shown(message: ReceivedMessage) -> MessageAnswer:
    body = message.body
    text, is_text = _text(body[:SHOWN_BYTES], is_cut=len(body) > SHOWN_BYTES)
    row = row_of(message)
    return MessageAnswer(
        **{name: getattr(row, name) for name in row.__struct_fields__},
        born_host=host_text(message.record.born_host),
        store_host=host_text(message.record.store_host),
        physical_offset=message.physical_offset,
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        sys_flag=message.sys_flag,
        properties=dict(sorted(message.properties.items())),
        body_bytes=len(body),
        is_text=is_text,
        text=text,
        json=_json(body),
        hex=hex_dump(body[:HEX_BYTES]),
        is_cut=len(body) > SHOWN_BYTES,
    )


def _text(body: bytes, *, is_cut: bool) -> tuple[str, bool]:
    try:
        return body.decode(), True
    except UnicodeDecodeError as wrong:
        if is_cut and wrong.start >= len(body) - 3:  # cut in the middle of a character
            return body[: wrong.start].decode(), True
        return body.decode("utf-8", "replace"), False


def _json(body: bytes) -> str | None:
    if len(body) > SHOWN_BYTES or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def hex_dump(body: bytes) -> str:
    lines = []
    for begin in range(0, len(body), 16):
        part = body[begin : begin + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{begin:08x}  {part[:8].hex(' '):23}  {part[8:].hex(' '):23}  {letters}")
    return "\n".join(lines)


@endpoint("GET", "/api/messages/{id}/body", tag="messages")
async def message_body(call: Call, query: MessageQuery) -> Response:
    """The body as a file."""
    found = await find(call, query)
    name = "".join(letter for letter in found.msg_id if letter.isalnum())[:64] or "message"
    return Response(
        found.body,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}.bin"'},
    )

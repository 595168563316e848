"""Scheduled messages: what is due when, and taking it back.

A cluster keeps what waits in two ways: timer messages in `rmq_sys_wheel_timer` (any time, from RocketMQ 5 on) and delay
levels in `SCHEDULE_TOPIC_XXXX` (one queue a level). Only timer messages can be recalled.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec

from arrowmq.client import names
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.console.api.declare import Call, ListQuery, Struct, endpoint, paged
from arrowmq.console.errors import bad_request, is_denied
from arrowmq.inspect.messages.history import SCHEDULE_TOPIC, TIMER_TOPIC
from arrowmq.inspect.texts import body_text
from arrowmq.wire import fastjson
from arrowmq.wire import properties as prop
from arrowmq.wire.bodies import DelayOffsetTable, TimerMetrics
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.ids import RecallHandle
from arrowmq.wire.message_queue import MessageQueue

READ = 32
MOST_TIMERS = 4096
MOST_A_LEVEL = 64
KEPT_S = 5.0
BUCKETS = 24
PREVIEW = 160
MOST_RECALLED = 1000


class ScheduledQuery(ListQuery, kw_only=True):
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""


class ScheduledRow(Struct, kw_only=True):
    due: int
    topic: str
    kind: Literal["timer", "level", "retry"]
    level: int | None
    msg_id: str
    offset_msg_id: str
    broker: str
    stored: int
    tag: str | None
    keys: list[str]
    preview: str
    can_recall: bool


class Bucket(Struct, kw_only=True):
    begin: int
    end: int
    count: int


class Waits(Struct, kw_only=True):
    name: str
    count: int


class ScheduledAnswer(Struct, kw_only=True):
    at: int
    total: int
    #: How many wait altogether by the brokers' own count; more than were read where there are many
    waiting: int
    topics: list[Waits]
    levels: list[Waits]
    buckets: list[Bucket]
    lacks: str | None
    rows: list[ScheduledRow]


@endpoint("GET", "/api/scheduled", tag="scheduled")
async def scheduled(call: Call, query: ScheduledQuery) -> ScheduledAnswer:
    """Messages that wait for their time, the next due first, with a time line of when they are due."""
    now_ms = round(time.time() * 1000)
    gathered = await call.kept(("scheduled",), KEPT_S, lambda _: _gather(call))
    text = query.q.lower()
    found = [
        row
        for row in gathered.rows
        if row.due > now_ms - 5_000
        and (not query.topic or row.topic == query.topic)
        and (not text or text in f"{row.topic} {row.msg_id} {' '.join(row.keys)} {row.preview}".lower())
    ]
    sorts = {
        "due": lambda row: row.due,
        "topic": lambda row: (row.topic, row.due),
        "stored": lambda row: row.stored,
    }
    total, rows = paged(found, query, sorts, "due")
    return ScheduledAnswer(
        at=now_ms,
        total=total,
        waiting=gathered.waiting,
        topics=gathered.topics,
        levels=gathered.levels,
        buckets=_buckets([row.due for row in found], now_ms),
        lacks=gathered.lacks,
        rows=rows,
    )


def _buckets(times: list[int], now_ms: int) -> list[Bucket]:
    ahead = [due for due in times if due >= now_ms]
    if not ahead:
        return []
    width = max(1000, -(-(max(ahead) - now_ms + 1) // BUCKETS))
    counts = [0] * BUCKETS
    for due in ahead:
        counts[min(BUCKETS - 1, (due - now_ms) // width)] += 1
    return [
        Bucket(begin=now_ms + index * width, end=now_ms + (index + 1) * width, count=count)
        for index, count in enumerate(counts)
    ]


class _Gathered(msgspec.Struct, kw_only=True):
    rows: list[ScheduledRow]
    waiting: int
    topics: list[Waits]
    levels: list[Waits]
    lacks: str | None


async def _gather(call: Call) -> _Gathered:
    snapshot = await call.console.gatherer.fresh()
    rows: list[ScheduledRow] = []
    topics: dict[str, int] = {}
    levels: dict[str, int] = {}
    lacks = None
    waiting = 0
    for broker, address in snapshot.masters.items():
        if SCHEDULE_TOPIC in snapshot.topics:
            for level, count, found in await _levels(call, broker, address):
                levels[str(level)] = levels.get(str(level), 0) + count
                waiting += count
                rows += found
        if TIMER_TOPIC not in snapshot.topics:
            lacks = "timer"
            continue
        rows += await _timers(call, broker, address)
        try:
            body = await (await call.admin()).call(address, RequestCode.GET_TIMER_METRICS)
            metrics = fastjson.loads(body.body, TimerMetrics)
        except (ArrowMQError, WireError) as failure:
            if is_denied(failure):
                raise
            lacks = "metrics"
            continue
        for topic, each in metrics.timing_count.items():
            if each.count > 0 and not names.is_system_topic(topic):
                topics[topic] = topics.get(topic, 0) + each.count
                waiting += each.count
    return _Gathered(
        rows=rows,
        waiting=waiting,
        topics=[Waits(name=name, count=count) for name, count in sorted(topics.items())],
        levels=[Waits(name=name, count=count) for name, count in sorted(levels.items(), key=lambda each: int(each[0]))],
        lacks=lacks,
    )


async def _levels(call: Call, broker: str, address: str) -> list[tuple[int, int, list[ScheduledRow]]]:
    """(level, how many wait, the first of them) by what the broker has delivered of each level's queue."""
    admin = await call.admin()
    try:
        answer = await admin.call(address, RequestCode.GET_ALL_DELAY_OFFSET)
        delivered = fastjson.loads(answer.body, DelayOffsetTable).offset_table
        stats = await admin.topic_stats_at(address, SCHEDULE_TOPIC)
    except (ArrowMQError, WireError) as failure:
        if is_denied(failure):
            raise
        return []
    found = []
    for queue, limits in stats.items():
        level = queue.queue_id + 1
        offset = max(limits.min_offset, delivered.get(level, limits.min_offset))
        count = limits.max_offset - offset
        if count <= 0:
            continue
        rows: list[ScheduledRow] = []
        while len(rows) < MOST_A_LEVEL and offset < limits.max_offset:
            messages = await admin.messages_at(queue, offset, READ)
            entries = await admin.queue_entries(address, SCHEDULE_TOPIC, queue.queue_id, offset, len(messages) or 1)
            # A delayed message's queue entry has its due time where others have the hash of their tag.
            times = [entry.tags_code for entry in entries.queue_data] if entries is not None else []
            if not messages:
                break
            for message, due in zip(messages, times, strict=False):
                rows.append(_row(message, broker, due, level))
            offset = messages[-1].queue_offset + 1
        found.append((level, count, rows))
    return found


async def _timers(call: Call, broker: str, address: str) -> list[ScheduledRow]:
    """The newest timer messages that are still to come, without those that were recalled."""
    admin = await call.admin()
    now_ms = round(time.time() * 1000)
    try:
        stats = await admin.topic_stats_at(address, TIMER_TOPIC)
    except (ArrowMQError, WireError) as failure:
        if is_denied(failure):
            raise
        return []
    rows: dict[str, ScheduledRow] = {}
    recalled: set[str] = set()
    for queue, limits in stats.items():
        end = limits.max_offset
        scanned = 0
        while end > limits.min_offset and scanned < MOST_TIMERS:
            begin = max(limits.min_offset, end - READ)
            messages = await admin.messages_at(
                MessageQueue(TIMER_TOPIC, queue.broker_name, queue.queue_id), begin, READ
            )
            if not messages:
                break
            for message in messages:
                mark = message.properties.get(prop.TIMER_DEL_UNIQKEY)
                if mark:
                    recalled.add(mark.rpartition("+")[2])
                    continue
                if names.is_system_topic(message.properties.get(prop.REAL_TOPIC, "")):
                    continue  # of the brokers' own: Apache's keep what is popped here, and nobody may recall that
                due = _number(message.properties.get(prop.TIMER_OUT_MS))
                if due > now_ms - 5_000 and message.queue_offset < end:
                    rows[message.msg_id] = _row(message, broker, due, None)
            scanned += end - begin
            end = begin
    return [row for msg_id, row in rows.items() if msg_id not in recalled]


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 18 else 0


def _row(message: ReceivedMessage, broker: str, due: int, level: int | None) -> ScheduledRow:
    topic = message.properties.get(prop.REAL_TOPIC, "?")
    is_retry = topic.startswith(names.RETRY_PREFIX)
    return ScheduledRow(
        due=due,
        topic=topic,
        kind="retry" if is_retry else ("level" if level is not None else "timer"),
        level=level,
        msg_id=message.msg_id,
        offset_msg_id=message.offset_msg_id,
        broker=broker,
        stored=message.store_timestamp,
        tag=message.tag,
        keys=message.keys,
        preview=body_text(message.body[:PREVIEW], PREVIEW),
        can_recall=level is None and not is_retry,
    )


# -- taking back


class Recall(Struct, kw_only=True, forbid_unknown_fields=True):
    """Single messages by id, or all that wait for a topic and contain a text."""

    ids: Annotated[list[str], msgspec.Meta(max_length=MOST_RECALLED)] | None = None
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    text: Annotated[str, msgspec.Meta(max_length=500)] = ""


class RecallRow(Struct, kw_only=True):
    msg_id: str
    topic: str
    is_recalled: bool
    error: str | None = None


class Recalled(Struct, kw_only=True):
    done: str
    rows: list[RecallRow]


@endpoint("POST", "/api/scheduled/recall", tag="scheduled")
async def recall(call: Call, body: Recall) -> Recalled:
    """Take timer messages back before they are due, at most 1,000 at once; with a result for each."""
    if body.ids is None and not body.topic and not body.text:
        raise bad_request("say which: ids, a topic, or a text")
    call.console.cache.forget()
    gathered = await _gather(call)
    text = body.text.lower()
    chosen = [
        row
        for row in gathered.rows
        if row.can_recall
        and (body.ids is None or row.msg_id in body.ids)
        and (not body.topic or row.topic == body.topic)
        and (not text or text in f"{row.msg_id} {' '.join(row.keys)} {row.preview}".lower())
    ][:MOST_RECALLED]
    admin = await call.admin()
    masters = (await call.console.gatherer.fresh()).masters
    results = []
    for row in chosen:
        # Any moment of the second under which the message waits names it.
        handle = RecallHandle(row.topic, row.broker, row.due + 500, row.msg_id).encode()
        ext = {"producerGroup": "arrowmq_console", "topic": row.topic, "recallHandle": handle}
        try:
            await admin.call(masters[row.broker], RequestCode.RECALL_MESSAGE, ext)
            results.append(RecallRow(msg_id=row.msg_id, topic=row.topic, is_recalled=True))
        except Refused as refused:
            results.append(RecallRow(msg_id=row.msg_id, topic=row.topic, is_recalled=False, error=str(refused)))
    call.console.cache.forget()
    count = sum(row.is_recalled for row in results)
    failed = next((row.error for row in results if row.error), None)
    if failed is not None and not count:
        raise bad_request(failed)
    return Recalled(done=f"{count} of {len(results)} messages are recalled", rows=results)

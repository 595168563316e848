"""Transactions: half messages that nobody has decided yet, since when, and how often their producers were asked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from arrowmq.client import names
from arrowmq.client.admin.cluster import text as fields
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.console.api.declare import Call, Done, ListQuery, Query, Struct, endpoint, paged
from arrowmq.console.api.messages.finding import MessageId
from arrowmq.console.errors import is_denied, not_found
from arrowmq.inspect.messages.finding import host_text
from arrowmq.inspect.messages.history import HALF_TOPIC, OP_TOPIC, PARKED_TOPIC
from arrowmq.inspect.texts import body_text
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.message_queue import MessageQueue

TRANSACTION_GROUP = f"{names.SYSTEM_GROUP_PREFIX}TRANS"
READ = 32
MOST_HALVES = 4096
MOST_OPS = 16_384
KEPT_S = 5.0
PREVIEW = 160


class TransactionRow(Struct, kw_only=True):
    msg_id: str
    offset_msg_id: str
    topic: str
    producer_group: str
    broker: str
    stored: int
    age_ms: int
    checks: int
    tag: str | None
    keys: list[str]
    preview: str


class TransactionsAnswer(Struct, kw_only=True):
    total: int
    is_complete: bool
    #: Given up: nobody decided them in time
    parked: int
    rows: list[TransactionRow]


@endpoint("GET", "/api/transactions", tag="transactions")
async def transactions(call: Call, query: ListQuery) -> TransactionsAnswer:
    """Half messages that are neither committed nor rolled back, the oldest first."""
    rows, parked, is_complete = await call.kept(("transactions",), KEPT_S, lambda _: _gather(call))
    word = query.q.lower()
    found = [row for row in rows if word in f"{row.topic} {row.producer_group} {row.msg_id} {row.preview}".lower()]
    sorts = {
        "stored": lambda row: row.stored,
        "topic": lambda row: (row.topic, row.stored),
        "group": lambda row: (row.producer_group, row.stored),
        "checks": lambda row: (row.checks, row.stored),
    }
    total, shown = paged(found, query, sorts, "stored")
    return TransactionsAnswer(total=total, is_complete=is_complete, parked=parked, rows=shown)


async def _gather(call: Call) -> tuple[list[TransactionRow], int, bool]:
    snapshot = await call.console.gatherer.fresh()
    rows: list[TransactionRow] = []
    parked = 0
    is_complete = True
    for broker, address in snapshot.masters.items():
        if HALF_TOPIC not in snapshot.topics or broker not in snapshot.topics[HALF_TOPIC].configs:
            continue
        found, is_all = await _open_at(call, broker)
        rows += found
        is_complete = is_complete and is_all
        if PARKED_TOPIC in snapshot.topics:
            try:
                stats = await (await call.admin()).topic_stats_at(address, PARKED_TOPIC)
                parked += sum(each.max_offset - each.min_offset for each in stats.values())
            except (ArrowMQError, WireError) as failure:
                if is_denied(failure):
                    raise
    return rows, parked, is_complete


async def _open_at(call: Call, broker: str) -> tuple[list[TransactionRow], bool]:
    """What lies between the broker's own offset in its half queue and the end, less what its op records name."""
    half, op = MessageQueue(HALF_TOPIC, broker, 0), MessageQueue(OP_TOPIC, broker, 0)
    ended: set[int] = set()
    async for message in _from(call, op, MOST_OPS):
        ended.update(
            int(word) for word in message.body.decode("utf-8", "replace").split(",") if word.strip().isdecimal()
        )
    now_ms = round(time.time() * 1000)
    rows: dict[str, TransactionRow] = {}
    count = 0
    async for message in _from(call, half, MOST_HALVES):
        count += 1
        if message.queue_offset in ended:
            continue
        properties = message.properties
        first = rows.get(message.msg_id)
        checks = properties.get(prop.TRANSACTION_CHECK_TIMES, "0")
        rows[message.msg_id] = TransactionRow(
            msg_id=message.msg_id,
            offset_msg_id=message.offset_msg_id,
            topic=properties.get(prop.REAL_TOPIC, "?"),
            producer_group=properties.get(prop.PGROUP, "?"),
            broker=broker,
            stored=message.born_timestamp if first is None else first.stored,
            age_ms=max(0, now_ms - message.born_timestamp),
            checks=int(checks) if checks.isdecimal() else 0,
            tag=message.tag,
            keys=message.keys,
            preview=body_text(message.body[:PREVIEW], PREVIEW),
        )
    return list(rows.values()), count < MOST_HALVES


async def _from(call: Call, queue: MessageQueue, most: int) -> AsyncIterator[ReceivedMessage]:
    """Messages of one of the brokers' own queues, from where the broker itself stands."""
    admin = await call.admin()
    try:
        offset = await admin.committed(TRANSACTION_GROUP, queue) or 0
    except (ArrowMQError, WireError) as failure:
        if is_denied(failure):
            raise
        return  # there never was a transaction
    count = 0
    while count < most:
        try:
            found = await admin.messages_at(queue, offset, READ)
        except Refused as refused:
            if is_denied(refused):
                raise
            return
        if not found:
            return
        for message in found:
            yield message
        count += len(found)
        offset = found[-1].queue_offset + 1


class CheckQuery(Query, kw_only=True):
    id: MessageId


@endpoint("POST", "/api/transactions/{id}/check", tag="transactions")
async def check_again(call: Call, query: CheckQuery) -> Done:
    """Let the broker ask the producer group about a half message that it had given up; by the broker's id of it."""
    admin = await call.admin()
    place = parse_offset_message_id(query.id)
    address = host_text((place.ip, place.port))
    # Anybody can write an id: before a connection is made, the address in it must be one of ours.
    if address not in (await call.console.gatherer.fresh()).masters.values():
        raise not_found(f"{address} is no master of this cluster")
    message = await admin.message_by_offset_id(query.id)
    await admin.call(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields(msgId=query.id, topic=message.record.topic))
    call.console.cache.forget()
    return Done(done="the producer group will be asked again")

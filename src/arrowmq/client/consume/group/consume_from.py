"""Where a group begins on a queue for which no offset is stored."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import NamedTuple

from arrowmq.client.consume.group.offsets import OffsetStore, broker_address
from arrowmq.client.names import RETRY_PREFIX
from arrowmq.client.session import Session
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue


class ConsumeFrom(Enum):
    """A queue so young that its first message is still in the broker's memory is read from its start by LAST_OFFSET

    too: the broker itself decides that, so that messages which come before the first consumer are not skipped.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Start(NamedTuple):
    where: ConsumeFrom
    timestamp_ms: int = 0


def start_from(given: ConsumeFrom | str | datetime | float) -> Start:
    """From what a user says: a member of the enum, "first", "last", or a moment (datetime, or seconds since 1970)."""
    if isinstance(given, ConsumeFrom):
        if given is ConsumeFrom.TIMESTAMP:
            raise ValueError("consuming from a time needs the time: give a datetime, or seconds since 1970")
        return Start(given)
    if isinstance(given, datetime):
        return Start(ConsumeFrom.TIMESTAMP, round(given.timestamp() * 1000))
    if isinstance(given, (int, float)):
        return Start(ConsumeFrom.TIMESTAMP, round(given * 1000))
    wanted = {"first": ConsumeFrom.FIRST_OFFSET, "last": ConsumeFrom.LAST_OFFSET}.get(str(given).lower())
    if wanted is None:
        raise ValueError(f"consume_from={given!r}: say 'first', 'last', a ConsumeFrom or a time")
    return Start(wanted)


async def first_offset(session: Session, store: OffsetStore, queue: MessageQueue, start: Start) -> int:
    """The stored offset, or what the rule says for a group that has none."""
    # With a time given, the broker's own rule for young queues would override it.
    stored = await store.query(queue, zero_if_young=start.where is not ConsumeFrom.TIMESTAMP)
    if stored is not None and stored >= 0:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start.where is ConsumeFrom.FIRST_OFFSET or (is_retry and start.where is ConsumeFrom.LAST_OFFSET):
        return await min_offset(session, queue)
    if start.where is ConsumeFrom.LAST_OFFSET or is_retry:
        return await max_offset(session, queue)
    return await offset_at(session, queue, start.timestamp_ms)


async def max_offset(session: Session, queue: MessageQueue) -> int:
    return await _ask_offset(session, queue, RequestCode.GET_MAX_OFFSET, "the end")


async def min_offset(session: Session, queue: MessageQueue) -> int:
    return await _ask_offset(session, queue, RequestCode.GET_MIN_OFFSET, "the start")


async def offset_at(session: Session, queue: MessageQueue, timestamp_ms: int) -> int:
    """The first message stored at or after this moment."""
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return await _ask_offset(session, queue, code, "a time", timestamp=str(timestamp_ms), boundaryType="LOWER")


async def _ask_offset(session: Session, queue: MessageQueue, code: int, what: str, **fields: str) -> int:
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **fields}
    answer = await session.ask(
        await broker_address(session, queue),
        Command.request(code, ext),
        f"asking for the offset of {what} of {queue.topic} queue {queue.queue_id}",
    )
    return int(answer.ext["offset"])

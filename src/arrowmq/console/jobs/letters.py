"""Dead letters as they are listed and chosen: place, origin, why they died, and what a filter says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.message import ReceivedMessage
from arrowmq.inspect.texts import body_text
from arrowmq.wire import properties as prop

#: Where applications say why they gave a message up; RocketMQ itself keeps no reason with it.
REASON_PROPERTIES = ("DLQ_REASON", "reason", "REASON", "errorMessage", "exception", "error")
EXHAUSTED = "exhausted"
REJECTED = "rejected"
PREVIEW = 160


class Letter(msgspec.Struct, kw_only=True, rename="camel"):
    place: str
    msg_id: str
    offset_msg_id: str
    broker: str
    queue_id: int
    queue_offset: int
    origin: str | None
    reason: str
    tries: int
    tag: str | None
    keys: list[str]
    stored: int
    born: int
    size: int
    preview: str
    #: The id it was sent again under, by this console's record
    resent_as: str | None = None


class LetterFilter(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All that is given must fit."""

    text: Annotated[str, msgspec.Meta(max_length=500)] = ""
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    tag: Annotated[str, msgspec.Meta(max_length=255)] = ""
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""
    begin: int | None = None
    end: int | None = None
    places: Annotated[list[str], msgspec.Meta(max_length=1000)] | None = None

    def fits(self, letter: Letter, body: str) -> bool:
        text = self.text.lower()
        return (
            (self.places is None or letter.place in self.places)
            and (not self.topic or letter.origin == self.topic)
            and (not self.tag or letter.tag == self.tag)
            and (not self.key or self.key in letter.keys)
            and (not self.reason or letter.reason == self.reason)
            and (self.begin is None or letter.stored >= self.begin)
            and (self.end is None or letter.stored < self.end)
            and (
                not text
                or text in letter.msg_id.lower()
                or text in " ".join(letter.keys).lower()
                or text in body.lower()
            )
        )


def place_of(message: ReceivedMessage) -> str:
    """Names one letter for good: a store that was wiped and filled again has other times at the same offsets."""
    return f"{message.broker_name}:{message.queue_id}:{message.queue_offset}:{message.store_timestamp}"


def parse_place(place: str) -> tuple[str, int, int, int]:
    """(broker, queue, offset, store time). Raises ValueError."""
    broker, queue, offset, stored = place.rsplit(":", 3)
    if not broker:
        raise ValueError(place)
    return broker, int(queue), int(offset), int(stored)


def letter_of(message: ReceivedMessage, retry_max_times: int) -> Letter:
    return Letter(
        place=place_of(message),
        msg_id=message.msg_id,
        offset_msg_id=message.offset_msg_id,
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        origin=message.properties.get(prop.DLQ_ORIGIN_TOPIC) or message.properties.get(prop.RETRY_TOPIC),
        reason=reason_of(message, retry_max_times),
        tries=message.reconsume_times,
        tag=message.tag,
        keys=message.keys,
        stored=message.store_timestamp,
        born=message.born_timestamp,
        size=message.size,
        preview=body_text(message.body[:PREVIEW], PREVIEW),
    )


def reason_of(message: ReceivedMessage, retry_max_times: int) -> str:
    for name in REASON_PROPERTIES:
        if said := message.properties.get(name):
            return said[:200]
    return EXHAUSTED if message.reconsume_times > retry_max_times else REJECTED


async def read_letters(admin: Admin, group: str, retry_max_times: int) -> AsyncIterator[tuple[Letter, ReceivedMessage]]:
    """The letters of a group one by one, the oldest of each queue first; none if nothing of the group ever died."""
    topic = names.dlq_topic(admin.namespace.wrap(group))
    if await admin.session.fetch_route(topic) is None:
        return
    async for message in admin.read(topic):
        yield letter_of(message, retry_max_times), message

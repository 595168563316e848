"""Headers of pop consumption, and the texts inside its answer and its receipts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from arrowmq.wire.errors import HeaderError
from arrowmq.wire.headers.declare import Header, Int32, TopicHeader

ORDERED_REVIVE_QUEUE = 999  # stands in receipts of ordered messages, which have no checkpoint


class PopMessage(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32  # -1: every queue
    max_msg_nums: Int32
    invisible_time: int
    poll_time: int
    born_time: int = 0
    init_mode: Int32 = 0  # 0 from the first message, 1 from the last
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResult(Header, kw_only=True):
    pop_time: int = 0
    invisible_time: int = 0
    revive_qid: Int32 = 0
    rest_num: int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: int
    lite_topic: str | None = None


class ChangeInvisibleTime(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: int
    invisible_time: int
    lite_topic: str | None = None
    suspend: bool | None = None


class ChangeInvisibleTimeResult(Header, kw_only=True):
    pop_time: int
    invisible_time: int
    revive_qid: Int32


class Notification(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: int
    born_time: int
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResult(Header, kw_only=True):
    has_msg: bool
    polling_full: bool | None = None


class PeekMessage(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class PollingInfo(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResult(Header, kw_only=True):
    polling_num: Int32


class Receipt(NamedTuple):
    """What a consumer of pop needs to acknowledge a message: property `POP_CK`, field `extraInfo`."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: Int32
    retry_flag: str  # 0 the topic itself, 1 its retry topic `%RETRY%group_topic`, 2 `%RETRY%group+topic`
    broker_name: str
    queue_id: Int32
    queue_offset: int
    commit_log_offset: int = -1

    def encode(self) -> str:
        parts = self if self.commit_log_offset >= 0 else self[:8]
        return " ".join(str(part) for part in parts)


def parse_receipt(text: str) -> Receipt:
    parts = text.split(" ")
    if len(parts) not in (8, 9):
        raise HeaderError(f"the receipt {text[:100]!r} has {len(parts)} parts instead of 8", "extraInfo")
    try:
        return Receipt(
            int(parts[0]), int(parts[1]), int(parts[2]), int(parts[3]), parts[4], parts[5], *map(int, parts[6:])
        )
    except ValueError as wrong:
        raise HeaderError(f"the receipt {text[:100]!r} is damaged: {wrong}", "extraInfo") from wrong


def start_offset_info(entries: Iterable[tuple[str, int, int]]) -> str:
    """`flag queueId startOffset` joined by semicolons."""
    return ";".join(f"{flag} {queue_id} {offset}" for flag, queue_id, offset in entries)


def msg_offset_info(entries: Iterable[tuple[str, int, Iterable[int]]]) -> str:
    """`flag queueId offset,offset,…` joined by semicolons."""
    return ";".join(
        f"{flag} {queue_id} {','.join(str(offset) for offset in offsets)}" for flag, queue_id, offsets in entries
    )


def parse_offset_info(text: str | None) -> dict[tuple[str, str], list[int]]:
    """(flag, queue) → numbers of any of the three texts; the queue is a number, or `qo<queue>%<offset>` of a count."""
    found: dict[tuple[str, str], list[int]] = {}
    for entry in (text or "").split(";"):
        if not entry:
            continue
        parts = entry.split(" ")
        if len(parts) != 3 or (parts[0], parts[1]) in found:
            raise HeaderError(f"the entry {entry[:60]!r} of an offset text is damaged or repeated")
        try:
            found[parts[0], parts[1]] = [int(number) for number in parts[2].split(",")]
        except ValueError as wrong:
            raise HeaderError(f"the entry {entry[:60]!r} of an offset text is damaged: {wrong}") from wrong
    return found

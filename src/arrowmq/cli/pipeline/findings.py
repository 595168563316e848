"""What pipelines have found, for people and for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arrowmq.cli.screen import Column, Screen

MOST = 30


def _plain(row: Any) -> dict[str, Any]:
    """A row of Spark as JSON shows it: times with their zone, bytes as text."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone().isoformat()
        if isinstance(value, bytes | bytearray):
            return bytes(value).decode("utf-8", "replace")
        return value

    return {name: plain(value) for name, value in row.asDict().items()}


def _count(value: Any) -> str:
    return f"{value:,}"


def _moment(value: Any) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}"


def print_dead(screen: Screen, counted: list[Any], latest: list[Any]) -> None:
    if screen.as_json:
        screen.json(
            {
                "letters": sum(row["count"] for row in counted),
                "counts": [_plain(row) for row in counted],
                "latest": [_plain(row) for row in latest],
            }
        )
        return
    if not counted:
        screen.say("no dead letters")
        return
    screen.table(
        [
            Column("consumerGroup", "group"),
            Column("originTopic", "origin", lambda value: value or "–"),
            Column("why", "why"),
            Column("count", "messages", _count, is_number=True),
        ],
        [row.asDict() for row in counted],
        "dead letters",
    )
    screen.table(
        [
            Column("consumerGroup", "group", is_extra=True),
            Column("originTopic", "origin", lambda value: value or "–", is_extra=True),
            Column("originMsgId", "message id", is_whole=True),
            Column("keys", "keys", " ".join),
            Column("reconsumeTimes", "tries", str, is_number=True),
            Column("resentTimes", "resent", str, is_number=True, is_extra=True),
            Column("diedAt", "died", _moment, is_whole=True),
            Column("body", "body", lambda value: bytes(value[:40]).decode("utf-8", "replace"), is_cut=True),
        ],
        [row.asDict() for row in latest],
        f"the latest {len(latest):,}",
    )


def print_audit(screen: Screen, found: Any) -> None:
    if screen.as_json:
        lists = ("stores", "topics", "hot_keys", "damage", "gaps", "differences", "duplicates")
        screen.json(
            {
                "isSound": found.is_sound,
                "messages": found.messages,
                "bytes": found.bytes,
                "damageCount": found.damage_count,
                "gapCount": found.gap_count,
                "missing": found.missing,
                "duplicateCount": found.duplicate_count,
                **{_camel(name): [_plain(row) for row in getattr(found, name)] for name in lists},
                "report": found.report,
            }
        )
        return
    screen.table(
        [
            Column("topic", "topic"),
            Column("messages", "records", _count, is_number=True),
            Column("bytes", "bytes", _count, is_number=True),
            Column("queues", "queues", _count, is_number=True),
            Column("keyCount", "keys", _count, is_number=True),
            Column("largestBytes", "largest", _count, is_number=True),
        ],
        [row.asDict() for row in found.topics[:MOST]],
        "topics" if len(found.topics) <= MOST else f"the {MOST} largest of {len(found.topics):,} topics",
    )
    for row in found.damage[:20]:
        screen.warn(f"damaged: {row.path} at {row.commitLogOffset}: {row.reason}")
    for row in found.gaps[:20]:
        screen.warn(
            f"gap: {row.topic} {row.broker}:{row.queueId} lacks {row.missing:,} "
            f"from {row.firstMissing} to {row.lastMissing} in {row.store}"
        )
    for row in found.differences[:20]:
        screen.warn(_difference(row))
    screen.say(
        f"{found.messages:,} records verified, {found.damage_count:,} damaged, {found.gap_count:,} gaps, "
        f"{found.duplicate_count:,} ids sent twice" + (f"; report in {found.report}" if found.report else "")
    )


def _difference(row: Any) -> str:
    parts = [
        (row.others, "other messages than its copies"),
        (row.holes, "fewer in the middle"),
        (row.newer, "not yet"),
        (row.older, "no longer"),
    ]
    what = ", ".join(f"{count:,} {name}" for count, name in parts if count)
    where = f"{row.topic} {row.broker}:{row.queueId} in {row.store}"
    return f"copy: {where} has {what} ({row.firstOffset} to {row.lastOffset})"


def print_trace(screen: Screen, found: Any) -> None:
    if screen.as_json:
        screen.json(
            {
                "sends": found.sends,
                "deliveries": found.deliveries,
                "failures": found.failures,
                "unreadable": found.unreadable,
                "topics": [_plain(row) for row in found.by_topic],
                "groups": [_plain(row) for row in found.by_group],
                "stored": found.stored,
                "report": found.report,
            }
        )
        return
    three = ("median", "90 %", "99 %")
    screen.table(
        [
            Column("topic", "topic"),
            Column("sends", "sends", _count, is_number=True),
            Column("failed", "failed", _count, is_number=True),
            *(Column(f"p{number}", name, _count, is_number=True) for number, name in enumerate(three)),
            *([Column("stored", "stored, median", str, is_number=True)] if found.stored else []),
        ],
        [
            row.asDict()
            | {f"p{number}": value for number, value in enumerate(row.send or ())}
            | {"stored": (found.stored.get(row.topic) or ["–"])[0]}
            for row in found.by_topic[:MOST]
        ],
        "sending, in ms",
    )
    screen.table(
        [
            Column("consumerGroup", "group"),
            Column("topic", "topic", lambda value: value or "–"),
            Column("deliveries", "deliveries", _count, is_number=True),
            Column("failed", "failed", _count, is_number=True),
            Column("retried", "retried", _count, is_number=True, is_extra=True),
            Column("waited0", "waited", str, is_number=True),
            Column("consumed0", "consumed", str, is_number=True),
        ],
        [
            row.asDict()
            | {
                f"{name}0": values[0] if values else "–"
                for name, values in (("waited", row.waited), ("consumed", row.consumed))
            }
            for row in found.by_group[:MOST]
        ],
        "consuming, medians in ms",
    )
    screen.say(
        f"{found.sends:,} sends, {found.deliveries:,} deliveries, {found.failures:,} failures"
        + (f"; report in {found.report}" if found.report else "")
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

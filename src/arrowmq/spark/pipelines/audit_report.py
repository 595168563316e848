"""The page that an audit ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.spark.pipelines.report import Report, by_time, size_text

if TYPE_CHECKING:
    from arrowmq.spark.pipelines.audit import Audited

MOST_TOPICS = 500


def audit_report(result: Audited, stores: list[str]) -> Report:
    page = Report("Audit of stores", f"{len(stores)} store{'s' if len(stores) > 1 else ''}: {', '.join(stores)}")
    lost = sum(row.holes + row.others for row in result.differences)
    page.numbers(
        [
            ("the verdict", "sound" if result.is_sound else "not sound", not result.is_sound),
            ("records verified", f"{result.messages:,}", False),
            ("stored size", size_text(result.bytes), False),
            ("topic" if len(result.topics) == 1 else "topics", f"{len(result.topics):,}", False),
            ("damaged records", f"{result.damage_count:,}", bool(result.damage_count)),
            ("gaps in queues", f"{result.gap_count:,}", bool(result.gap_count)),
            ("copy differences", f"{lost:,}", bool(lost)),
            ("ids sent twice", f"{result.duplicate_count:,}", False),
        ]
    )
    if not result.is_sound:
        _faults(page, result)  # what somebody has to look at comes first
    page.heading("Records by time of storing")
    page.bars(by_time({row.moment: row.messages for row in result.times}), "records")
    page.heading("Hot topics, by stored size")
    page.ranking([(row.topic, row.bytes, size_text(row.bytes)) for row in result.topics[:12]])
    _stores(page, result)
    _topics(page, result)
    if result.is_sound:
        _faults(page, result)
    return page


def _stores(page: Report, result: Audited) -> None:
    page.heading("Stores")
    page.table(
        ["store", "broker", "records", "stored size", "topics", "first", "last"],
        [
            (
                row.store, row.broker, row.messages, size_text(row.bytes), row.topics, _moment(row.first),
                _moment(row.last),
            )
            for row in result.stores
        ],
        empty="no store has a record",
    )  # fmt: skip


def _topics(page: Report, result: Audited) -> None:
    page.heading("Topics")
    page.table(
        ["topic", "records", "stored size", "queues", "keys", "median size", "largest", "first", "last"],
        [
            (
                row.topic, row.messages, size_text(row.bytes), row.queues, row.keyCount, size_text(row.medianBytes),
                size_text(row.largestBytes), _moment(row.first), _moment(row.last),
            )
            for row in result.topics[:MOST_TOPICS]
        ],
        of=len(result.topics),
    )  # fmt: skip
    page.heading("Hot keys")
    page.table(
        ["topic", "key", "messages"],
        [(row.topic, row.key, row.messages) for row in result.hot_keys],
        empty="no key occurs more than once",
    )


def _faults(page: Report, result: Audited) -> None:
    page.heading("Damage")
    page.table(
        ["segment", "offset", "bytes", "what is wrong"],
        [(row.path, row.commitLogOffset, row.size, row.reason) for row in result.damage],
        of=result.damage_count,
        empty="every record is whole",
    )
    page.heading("Gaps in queues")
    page.table(
        ["store", "topic", "broker", "queue", "first missing", "last missing", "missing"],
        [
            (row.store, row.topic, row.broker, row.queueId, row.firstMissing, row.lastMissing, row.missing)
            for row in result.gaps
        ],
        of=result.gap_count,
        empty="no queue has a gap",
    )
    page.heading("Differences between copies of a broker")
    page.table(
        ["store", "topic", "queue", "other content", "missing inside", "not there yet", "deleted", "from", "to"],
        [
            (
                row.store, row.topic, row.queueId, row.others, row.holes, row.newer, row.older, row.firstOffset,
                row.lastOffset,
            )
            for row in result.differences
        ],
        empty="no store is a copy of another, or the copies hold the same",
    )  # fmt: skip
    page.heading("Ids that occur more than once in a topic")
    page.table(
        ["topic", "message id", "times", "brokers"],
        [(row.topic, row.msgId, row.positions, row.brokers) for row in result.duplicates[:50]],
        of=result.duplicate_count,
        empty="every id occurs once",
    )


def _moment(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M}"

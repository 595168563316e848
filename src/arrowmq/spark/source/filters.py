"""What a query's filters say about the messages it wants, so that the rest is not even read.

Filters learnt from Spark only ever narrow what is read; Spark still evaluates every one of them, so that a filter
understood by half is never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from arrowmq.spark.options import OptionError

MOST = (1 << 63) - 1


class QuietPushdown:
    """A `pushFilters` that Spark takes for the one every reader inherits, while it is switched off.

    Spark refuses a reader of its own `pushFilters` when spark.sql.python.filterPushdown.enabled is false, which is its
    default, and tells them apart by `__func__`. Our filters only save work, so off must simply mean: never called.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], list[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._push(filters)


class MessageFilter:
    """Bounds on a message's columns, gathered from a conjunction of filters."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] | None = None
        self.broker_names: frozenset[str] | None = None
        self.queue_ids: frozenset[int] | None = None
        self.tags: frozenset[str] | None = None
        self.least_offset = 0
        self.most_offset = MOST - 1
        self.least_store_ms = 0
        self.most_store_ms = MOST

    def learn(self, item: Filter) -> None:
        """Takes in what one filter says, if it is about a column that narrows the reading."""
        attribute = getattr(item, "attribute", None)
        if not isinstance(attribute, tuple) or len(attribute) != 1:
            return
        column = attribute[0]
        if isinstance(item, EqualTo | EqualNullSafe) and item.value is not None:
            self._one_of(column, (item.value,))
        elif isinstance(item, In):
            self._one_of(column, tuple(value for value in item.value if value is not None))
        elif isinstance(item, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            self._bound(column, item)
        if isinstance(item, EqualTo | EqualNullSafe) and item.value is not None:
            self._bound(column, GreaterThanOrEqual(attribute, item.value))
            self._bound(column, LessThanOrEqual(attribute, item.value))

    def _one_of(self, column: str, values: tuple[Any, ...]) -> None:
        if column == "topic":
            known = set(values) if self.topics is None else set(values) & set(self.topics)
            self.topics = tuple(sorted(known))
        elif column == "brokerName":
            self.broker_names = (
                frozenset(values) if self.broker_names is None else self.broker_names & frozenset(values)
            )
        elif column == "queueId":
            self.queue_ids = frozenset(values) if self.queue_ids is None else self.queue_ids & frozenset(values)
        elif column == "tags":
            self.tags = frozenset(values) if self.tags is None else self.tags & frozenset(values)

    def _bound(self, column: str, item: Any) -> None:
        is_lower = isinstance(item, GreaterThan | GreaterThanOrEqual)
        if column == "queueOffset":
            if is_lower:
                self.least_offset = max(self.least_offset, item.value + (1 if isinstance(item, GreaterThan) else 0))
            else:
                self.most_offset = min(self.most_offset, item.value - (1 if isinstance(item, LessThan) else 0))
        elif column == "storeTimestamp":
            # Rounded outwards to whole milliseconds: Spark looks at the exact time itself.
            at_ms = epoch_ms(item.value)
            if is_lower:
                self.least_store_ms = max(self.least_store_ms, at_ms)
            else:
                self.most_store_ms = min(self.most_store_ms, at_ms + 1)


def epoch_ms(value: datetime) -> int:
    """Spark hands times over as datetimes; one without a zone is UTC."""
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def tag_filter(expression: str) -> frozenset[str] | None:
    """The tags of an expression such as `created || paid`; None when it is `*`."""
    if expression.strip() == "*":
        return None
    found = [part.strip() for part in expression.split("||")]
    if not all(found) or any(" " in part for part in found):
        raise OptionError("tags", f"{expression!r} is not an expression of tags such as 'created || paid'")
    return frozenset(found)

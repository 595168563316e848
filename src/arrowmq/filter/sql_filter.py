"""A SQL92 subscription, as the store asks it: by queue entry nothing can be said, by record everything."""

from __future__ import annotations

from collections.abc import Mapping

from arrowmq.filter.java_numbers import Unconvertible
from arrowmq.filter.sql92 import parse
from arrowmq.filter.stored import stored_properties


class SqlFilter:
    needs_record = True
    codes: frozenset[int] = frozenset()  # the entry says nothing of the properties

    def __init__(self, expression: str) -> None:
        """Raises `FilterError` for an expression that is not of the language."""
        self.expression = expression
        self._evaluate = parse(expression)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """TRUE, FALSE, or None for unknown; raises `Unconvertible` where a text is not of the type compared with."""
        result: bool | None = self._evaluate(properties)
        return result

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Only TRUE matches: neither unknown nor an expression that cannot be evaluated on these properties."""
        try:
            return self._evaluate(properties) is True
        except Unconvertible:
            return False

    def matches_entry(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: memoryview | bytes) -> bool:
        return self.matches_properties(stored_properties(record))

    def __repr__(self) -> str:
        return f"SqlFilter({self.expression!r})"

"""Subscriptions by tag: `*`, or tags joined by `||`.

A queue entry holds Java's hash of the tag, so the broker decides by the hash alone and never reads the record. Two tags
may share a hash: clients compare the text again.
"""

from __future__ import annotations

from arrowmq.wire.checksum import java_hash

ALL_TAGS = "*"
SEPARATOR = "||"


def split_tags(expression: str) -> list[str]:
    """The tags of an expression; none means all of them."""
    if expression.strip() in ("", ALL_TAGS):
        return []
    return [tag for tag in (part.strip() for part in expression.split(SEPARATOR)) if tag]


class TagFilter:
    needs_record = False

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tags = frozenset(split_tags(expression))
        self.codes = frozenset(java_hash(tag) for tag in self.tags)

    @classmethod
    def of_codes(cls, codes: frozenset[int], expression: str = "") -> TagFilter:
        """A filter by hashes that a client has computed itself; no hash at all means every message."""
        made = cls(ALL_TAGS)
        made.expression, made.codes = expression, codes
        return made

    def matches_entry(self, tags_code: int) -> bool:
        # Of an entry's 64 bits the hash takes the low 32, as a signed number.
        return not self.codes or ((tags_code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 in self.codes

    def matches_record(self, record: memoryview | bytes) -> bool:
        return True

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"

"""Which header fields native code knows, and the place of each in a native `Request` or answer.

`tools/native_fields` writes `_fields.pxd` from here, so that native code says `request.fields[PULL_QUEUE_OFFSET]`; the
tables of names that a reader or a template is given come from here as well. The order is that of the header's class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from arrowmq.wire.headers import (
    AckMessage,
    EndTransaction,
    PopMessage,
    PullMessage,
    PullMessageResult,
    SendMessage,
    SendMessageResult,
)
from arrowmq.wire.headers.client import V2_LETTERS
from arrowmq.wire.headers.declare import Header, TopicHeader, field_names
from arrowmq.wire.headers.pop import PopMessageResult


@dataclass(frozen=True, slots=True)
class NativeFields:
    """One header: its fields by their Python name and the name they have on the wire."""

    prefix: str  # of the names in `_fields.pxd`
    names: tuple[str, ...]
    wire_names: tuple[str, ...]
    java_names: tuple[str, ...]  # those of the header's class; other than on the wire for the V2 codes of sends

    @classmethod
    def of(cls, prefix: str, header: type[Header], letters: dict[str, str] | None = None) -> NativeFields:
        fields = [each for each in field_names(header) if letters is None or each[1] in letters]
        java_names = tuple(java_name for _, java_name in fields)
        wire_names = java_names if letters is None else tuple(letters[name] for name in java_names)
        return cls(prefix, tuple(name for name, _ in fields), wire_names, java_names)

    def numbers(self, without: Collection[str] = ()) -> dict[str, int]:
        """Wire name → place + 1, for a `NameTable`, without the fields that have one of these names."""
        return {
            wire_name: place
            for place, (wire_name, java_name) in enumerate(zip(self.wire_names, self.java_names, strict=True), 1)
            if wire_name not in without and java_name not in without
        }

    def places(self, *wire_names: str) -> list[int]:
        return [self.wire_names.index(name) for name in wire_names]


# Requests
SEND = NativeFields.of("SEND", SendMessage, V2_LETTERS)
PULL = NativeFields.of("PULL", PullMessage)
END = NativeFields.of("END", EndTransaction)
POP = NativeFields.of("POP", PopMessage)
ACK = NativeFields.of("ACK", AckMessage)
BATCH_ACK = NativeFields.of("BATCH_ACK", TopicHeader)  # all it says is in the body
# Answers
SENT = NativeFields.of("SENT", SendMessageResult)
PULLED = NativeFields.of("PULLED", PullMessageResult)
POPPED = NativeFields.of("POPPED", PopMessageResult)

ALL = (SEND, PULL, END, POP, ACK, BATCH_ACK, SENT, PULLED, POPPED)
FIELDS = max(len(each.names) for each in ALL)
EXTRA_FIELDS = 4  # of a request beyond its header, for who asks for them: a signature, for example


def declarations() -> str:
    """The text of `_fields.pxd`."""
    lines = [
        "# Written by tools/native_fields from arrowmq.wire.headers; do not edit. `fields.py` says what is in it.",
        "",
        "cdef enum:",
        f"    FIELDS = {FIELDS}",
        f"    EXTRA_FIELDS = {EXTRA_FIELDS}",
    ]
    for each in ALL:
        lines += ["", "cdef enum:"]
        lines += [f"    {each.prefix}_{name.upper()} = {place}" for place, name in enumerate(each.names)]
        lines += [f"    {each.prefix}_FIELDS = {len(each.names)}"]
    return "\n".join(lines) + "\n"

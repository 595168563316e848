"""The face of the log walk: the native form where it is compiled, else the Python twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.store._walk_plain import (
    BAD_MAGIC,
    BLANK,
    CHECK_BODY_CRC,
    CHECK_RECORD_CRC,
    END_OF_BUFFER,
    GAP,
    REASONS,
    Sink,
    Walked,
)

if TYPE_CHECKING:
    from arrowmq.store import _walk_plain as _walk
else:
    _walk = native.load("arrowmq.store._walk")

__all__ = [
    "BAD_MAGIC",
    "BLANK",
    "CHECK_BODY_CRC",
    "CHECK_RECORD_CRC",
    "END_OF_BUFFER",
    "GAP",
    "REASONS",
    "Sink",
    "Walked",
    "check_record",
    "repair_index",
    "walk",
]

check_record = _walk.check_record
repair_index = _walk.repair_index
walk = _walk.walk

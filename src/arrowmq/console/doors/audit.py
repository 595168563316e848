"""The audit log: one JSON line for every change that somebody asked for, and how it ended."""

from __future__ import annotations

import logging
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger("arrowmq.console.audit")

LARGEST_BYTES = 16 << 20
LONGEST_VALUE = 200
KEPT_IN_MEMORY = 500


class AuditRow(msgspec.Struct, kw_only=True):
    at: int
    who: str
    address: str
    action: str
    detail: dict[str, str] = msgspec.field(default_factory=dict)
    status: int
    outcome: str


class AuditLog:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "audit.log"
        self._recent: deque[AuditRow] = deque(maxlen=KEPT_IN_MEMORY)
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(max(0, self.path.stat().st_size - (256 << 10)))
                for line in file.read().splitlines()[-KEPT_IN_MEMORY:]:
                    try:
                        self._recent.append(msgspec.json.decode(line, type=AuditRow))
                    except msgspec.MsgspecError:
                        continue  # the first line may be a part of one

    def note(self, who: str, address: str, action: str, detail: Any, status: int, outcome: str) -> None:
        row = AuditRow(
            at=round(time.time() * 1000),
            who=who,
            address=address,
            action=action,
            detail=_shortened(detail),
            status=status,
            outcome=outcome[:LONGEST_VALUE],
        )
        self._recent.append(row)
        line = msgspec.json.encode(row) + b"\n"
        if self.path.exists() and self.path.stat().st_size + len(line) > LARGEST_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
        with self.path.open("ab") as file:
            file.write(line)
        log.info("%s by %s from %s: %d %s", action, who, address, status, row.outcome)

    def recent(self) -> list[AuditRow]:
        return list(reversed(self._recent))


def _shortened(detail: Any) -> dict[str, str]:
    """What was asked, without the bodies of messages and without secrets."""
    if not isinstance(detail, dict):
        return {}
    shown: dict[str, str] = {}
    for name, value in list(detail.items())[:40]:
        if any(word in str(name).lower() for word in ("password", "token", "secret")):
            text = "(not shown)"
        elif name == "body":
            text = f"({len(value)} characters)" if isinstance(value, str) else "(body)"
        else:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        shown[str(name)[:LONGEST_VALUE]] = text[:LONGEST_VALUE]
    return shown

"""The pure-Python reference of the router: it knows no frame, so every request goes to the general path.

That is all a reference has to do here: the fast path may always hand over, and what the general path leaves in the
files defines what is right. The native handlers behind the router have no reference of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Router:
    has_declined = True

    def __init__(self, now_ms: Callable[[], int] | None) -> None:
        self.handlers: dict[str, Any] = {}

    def add(self, name: str, handler: Any, codes: Iterable[int]) -> None:
        self.handlers[name] = handler

    def use_fields(self, code: int, numbers: dict[str, int]) -> None:
        """No field is read."""

    def use_checks(self, checks: list[Any]) -> None:
        """Nothing is let pass."""

    def close(self) -> None:
        """Nothing is open."""

    def __call__(self, connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        return 0, None

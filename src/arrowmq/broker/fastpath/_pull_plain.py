"""The Python twin of the short way of pulls: it knows no frame, so every pull goes the general way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Admitted = tuple[str, str, int, Any, frozenset[int] | None, int, int, dict[int, int], tuple[int, int]]


class FastPull:
    def __init__(
        self,
        reader: Any,
        answers: tuple[list[bytes], list[int], bytes],
        *,
        is_open: Callable[[], bool],
        admit: Callable[[dict[str, str], Any], Admitted | None],
        rests_on: tuple[Any, Any, Any],
        commit: Callable[[str, str, int, int], None],
        commits_of: Callable[[str, str], dict[int, int]],
        resets: dict[str, dict[int, int]],
    ) -> None:
        self.taken_messages = 0

    def forget(self) -> None:
        """Nothing is remembered."""

    def take_commits(self) -> int:
        return 0

    def take_counts(self) -> list[tuple[str, str, int, int, int, int]]:
        return []

    def __call__(self, connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        return 0, None

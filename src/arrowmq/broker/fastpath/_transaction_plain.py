"""The Python twin of the short way of transactions: it knows no frame, so half messages and ends go the general way.

What the general path leaves in the files defines what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hold = Callable[[Any, bytes], None]


# The words around the figures of an answer; see `fastpath.answer_words`
Answers = tuple[list[bytes], list[int], bytes, bytes]


class FastTransactions:
    def __init__(
        self,
        log: Any,
        index: Any,
        ended: Any,
        commit_log: Any,
        *,
        half_answers: Answers,
        end_answers: Answers,
        added: bytes,
        store_host: bytes,
        half_topic: bytes,
        op_topic: bytes,
        commit_words: bytes,
        rollback_words: bytes,
        find_topic: Callable[[bytes], int],
        find_queue: Callable[[str, int], Any],
        notify: Callable[[Any, bytes], None],
        gate: Callable[[bool], int],
        counted_up_to: Callable[[], int],
        now_ms: Callable[[], int],
        peer_of: Callable[[Any], bytes],
        hold_halves: Hold | None,
        hold_ends: Hold | None,
    ) -> None:
        self.taken_halves = 0
        self.taken_ends = 0

    def close(self) -> None:
        """Nothing is open."""

    def use(self, unusual_of_halves: frozenset[str], unusual_of_stored: frozenset[str]) -> None:
        """Nothing is looked at."""

    def forget(self) -> None:
        """Nothing is remembered."""

    def take_answered(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def take_published(self) -> list[tuple[str, int, int, int]]:
        return []

    def take_ended(self) -> list[tuple[str, int, dict[int, int], int]]:
        return []

    def __call__(self, connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        return 0, None

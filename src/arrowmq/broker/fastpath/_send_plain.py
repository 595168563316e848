"""The Python twin of the short way: it knows no frame, so every request goes the general way.

That is all a twin has to do here: the short way may always hand over, and what the general path leaves in the files
defines what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The words around the figures of an answer; see `fastpath.answer_words`
Answers = tuple[list[bytes], list[int], bytes, bytes]


class FastSend:
    def __init__(
        self,
        log: Any,
        index: Any,
        answers: Answers,
        nameless: Answers,
        *,
        added: bytes,
        store_host: bytes,
        find_topic: Callable[[bytes], int],
        find_queue: Callable[[str, int], Any],
        make_room: Callable[[str, int, int, int], bool],
        notify: Callable[[Any, bytes], None],
        gate: Callable[[], tuple[int, int]],
        now_ms: Callable[[], int] | None,
        peer_of: Callable[[Any], bytes],
        with_crc: bool,
        hold: Callable[[Any, bytes], None] | None,
        size_bounds: tuple[int, ...],
    ) -> None:
        self.pull: Any = None
        self.transactions: Any = None
        self.taken_messages = 0

    def close(self) -> None:
        """Nothing is open."""

    def use(self, unusual: frozenset[str]) -> None:
        """Nothing is looked at."""

    def forget(self) -> None:
        """Nothing is remembered."""

    def ask_again(self) -> None:
        """Nothing was asked."""

    def take_counts(self) -> list[tuple[str, int, int, int]]:
        return []

    def take_sizes(self) -> list[tuple[str, bool, list[int], int, int]]:
        return []

    def take_answered(self) -> list[tuple[int, bool, int]]:
        return []

    def __call__(self, connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        return 0, None

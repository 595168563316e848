"""What pop counts, under the labels of Apache's metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

CHECK_POINT = "CK"
ACK = "ACK"


Stored = tuple[str, str, str, str]
"""Group, topic, kind, status of the put."""


class PopCounts:
    def __init__(self) -> None:
        self._stored: Counter[Stored] = Counter()
        # What others have counted and not handed in yet
        self.sources: list[Callable[[], Iterable[tuple[Stored, int]]]] = []
        self.read: Counter[tuple[str, str, int, str]] = Counter()  # group, topic, revive queue, kind
        self.retries: Counter[tuple[str, str, str]] = Counter()  # group, topic, status of the put

    @property
    def stored(self) -> Counter[Stored]:
        for source in self.sources:
            for key, count in source():
                self._stored[key] += count
        return self._stored

    def wrote(self, group: str, topic: str, kind: str, status: str) -> None:
        self._stored[group, topic, kind, status] += 1

    def was_read(self, group: str, topic: str, queue_id: int, kind: str) -> None:
        self.read[group, topic, queue_id, kind] += 1

    def retry_message(self, group: str, topic: str, status: str) -> None:
        self.retries[group, topic, status] += 1

    def forget_group(self, group: str) -> None:
        for table in (self.stored, self.read, self.retries):
            for key in [key for key in table if key[0] == group]:
                del table[key]

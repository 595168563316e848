"""How many consume queues are mapped at once.

The kernel bounds the mappings of a process (`vm.max_map_count`, 65,530 by default) and a broker can have more queues
than that. So of the queues that are mapped one gives way when another is needed; it is mapped again at its next message
or reader. Which one is left to chance: a broker that goes round more queues than there is room for would otherwise
always have dropped the very queue that comes next.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

_SETTING = Path("/proc/sys/vm/max_map_count")
_USUAL = 65_530
#: Of the kernel's bound; the log, the index, older queue files under a reader, and libraries need mappings too.
_SHARE = 0.8


def allowed_mappings() -> int:
    """How many queues may be mapped, as the kernel is set."""
    try:
        bound = int(_SETTING.read_text())
    except (OSError, ValueError):
        bound = _USUAL
    return max(64, int(bound * _SHARE))


class Mapped(Protocol):
    """A queue, which knows its place among the mapped ones (-1: it is none of them)."""

    mapped_place: int

    def unmap(self) -> None: ...


class MappedQueues:
    def __init__(self, most: int | None = None) -> None:
        self.most = most or allowed_mappings()
        self._held: list[Mapped] = []

    def __len__(self) -> int:
        return len(self._held)

    def add(self, queue: Mapped) -> None:
        """The queue is about to be mapped; another one gives way where there are too many."""
        if queue.mapped_place >= 0:
            return
        if len(self._held) >= self.most:
            self._held[random.randrange(len(self._held))].unmap()
        queue.mapped_place = len(self._held)
        self._held.append(queue)

    def remove(self, queue: Mapped) -> None:
        place = queue.mapped_place
        if place < 0:
            return
        queue.mapped_place = -1
        last = self._held.pop()
        if last is not queue:
            self._held[place] = last
            last.mapped_place = place

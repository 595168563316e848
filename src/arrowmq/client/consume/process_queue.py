"""The messages of one queue between pull and acknowledgement, and the offset that may be committed.

Offsets arrive in rising order and are acknowledged in any order. What may be committed is the lowest offset that is
still unacknowledged, or one past the highest seen when none is: so a crash delivers again what was not acknowledged,
and nothing is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeVar

from arrowmq.wire.message_queue import MessageQueue


class Held(Protocol):
    """What a process queue needs to know of a message."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def size(self) -> int: ...


_T = TypeVar("_T", bound=Held)


class ProcessQueue:
    __slots__ = ("_highest", "_order", "_unacked", "held_bytes", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.held_bytes = 0
        # Popping the first key of a dict again and again is quadratic, so the order is kept beside it.
        self._unacked: dict[int, Held] = {}
        self._order: deque[int] = deque()
        self._highest = -1

    def put(self, messages: Iterable[_T]) -> list[_T]:
        """Take pulled messages in; answers those that are new, as a pull may repeat offsets after a reconnect."""
        unacked, order = self._unacked, self._order
        fresh = []
        size = 0
        highest = self._highest
        for message in messages:
            offset = message.queue_offset
            if offset <= highest:
                continue
            highest = offset
            unacked[offset] = message
            order.append(offset)
            size += message.size
            fresh.append(message)
        self._highest = highest
        self.held_bytes += size
        return fresh

    def remove(self, offset: int) -> bool:
        """Acknowledged, or given up: True the first time."""
        message = self._unacked.pop(offset, None)
        if message is None:
            return False
        self.held_bytes -= message.size
        return True

    def skip_to(self, next_offset: int) -> None:
        """The broker had nothing for us up to here (filtered out), so the offset may move on when nothing is held."""
        self._highest = max(self._highest, next_offset - 1)

    def clear(self) -> None:
        self._unacked.clear()
        self._order.clear()
        self.held_bytes = 0
        self._highest = -1

    def committable(self) -> int:
        """The offset to commit: the next one to be delivered after a crash. -1 when nothing was seen yet."""
        order, unacked = self._order, self._unacked
        while order and order[0] not in unacked:
            order.popleft()
        return order[0] if order else self._highest + 1 if self._highest >= 0 else -1

    @property
    def count(self) -> int:
        return len(self._unacked)

    @property
    def span(self) -> int:
        """From the lowest held offset to the highest: how much a crash would deliver again at most."""
        return self._highest - self.committable() if self._unacked else 0

    @property
    def lowest(self) -> Held | None:
        self.committable()
        return self._unacked[self._order[0]] if self._order else None

    @property
    def highest_offset(self) -> int:
        return self._highest

    def held(self) -> list[Held]:
        return list(self._unacked.values())

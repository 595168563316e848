"""Revive queues as they are kept in memory, and whose turn it is, in Python: says what is right for the native form."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from arrowmq.broker.pop.check_points._table_plain import CheckPoint

_MASK = (1 << 64) - 1


class OpenCheckPoints:
    """Check points in the order of their places in a revive queue; closed ones leave when they come to the front."""

    def __init__(self) -> None:
        self._queue: deque[CheckPoint] = deque()

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, check_point: CheckPoint) -> None:
        self._queue.append(check_point)

    def estimate_open(self, looks: int) -> int:
        """How many are open, by a look at so many at even distances; of no more than that it is the exact number."""
        stored = len(self._queue)
        step = max(1, -(-stored // looks))
        found = sum(self._queue[place].is_open for place in range(0, stored, step))
        return min(found * step, stored)

    def popleft(self) -> CheckPoint:
        return self._queue.popleft()

    def appendleft(self, check_point: CheckPoint) -> None:
        self._queue.appendleft(check_point)

    def clear(self) -> None:
        self._queue.clear()

    def first(self) -> CheckPoint | None:
        """The first that is open."""
        queue = self._queue
        while queue and not queue[0].is_open:
            queue.popleft()
        return queue[0] if queue else None


class ReviveQueue:
    """What is known of one queue of the revive topic."""

    __slots__ = ("maybe_moved", "noted", "open", "queue_id", "read_offset", "unreadable")

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.read_offset = 0  # of the next message that is not in the table yet
        self.noted = -1
        self.open = OpenCheckPoints()
        self.unreadable = 0
        # The message read last, if it is a check point of one message: followed by the ack of an older one of the same
        # message it was made by a change of the invisible time (`write_move`), else by a pop
        self.maybe_moved: tuple[int, Any] | None = None

    def first_open(self) -> CheckPoint | None:
        return self.open.first()


class QueueTurn:
    """The revive queue of the next pop: one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.upcoming = 1 % count

    def take(self) -> int:
        taken = self.upcoming
        self.upcoming = (taken + 1) % self.count
        return taken


class Chance:
    """A number below a hundred for each pop, by chance (splitmix64)."""

    def __init__(self, seed: int) -> None:
        self.seed(seed)

    def seed(self, seed: int) -> None:
        self._state = seed & _MASK
        self.draw()

    def draw(self) -> None:
        """Another number from now on."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((self._state ^ self._state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        self.value = (mixed ^ mixed >> 31) % 100

"""What is to happen at a time, many things at many times: buckets, and one timer of the clock at the earliest.

A thing that no longer has to happen leaves its bucket, so there is nothing to clean up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from arrowmq.clock import Clock, Timer

# The clock of the machine may be set while a timer runs.
LONGEST_WAIT_S = 30.0
MOST_EMPTY = 1024

Item = TypeVar("Item")


class Buckets(Protocol[Item]):
    """Where the things are, by the number of their bucket."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def __contains__(self, number: int) -> bool: ...
    def add(self, item: Item, number: int) -> bool: ...
    def remove(self, item: Item, number: int) -> None: ...
    def take(self, number: int) -> Iterable[Item]: ...
    def clear(self) -> None: ...


class AnyBuckets(Generic[Item]):
    """Of things of any kind. (Check points have buckets of their own.)"""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Item, None]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._buckets)

    def __contains__(self, number: int) -> bool:
        return number in self._buckets

    def add(self, item: Item, number: int) -> bool:
        """True if there was no such bucket."""
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket[item] = None
            return False
        self._buckets[number] = {item: None}
        return True

    def remove(self, item: Item, number: int) -> None:
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket.pop(item, None)
            if not bucket:
                del self._buckets[number]  # it would keep the memory of all that it held, for as long as it stands

    def take(self, number: int) -> Iterable[Item]:
        """All of a bucket, which is gone with that."""
        return self._buckets.pop(number, {})

    def clear(self) -> None:
        self._buckets.clear()


class Due(Generic[Item]):
    def __init__(
        self,
        clock: Clock,
        width_ms: int,
        on_due: Callable[[Iterable[Item]], None],
        buckets: Buckets[Item] | None = None,
    ) -> None:
        self.clock = clock
        self.width_ms = width_ms
        self.on_due = on_due
        self.buckets: Buckets[Item] = AnyBuckets() if buckets is None else buckets
        self._order: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self._is_running = False

    def add(self, item: Item, at_ms: int) -> int:
        """Never earlier than `at_ms`. Gives the number that `remove` wants."""
        number = -(-at_ms // self.width_ms)
        if self.buckets.add(item, number):
            self.opened(number)
        return number

    def opened(self, number: int) -> None:
        """There is a bucket more."""
        if len(self._order) > 2 * len(self.buckets) + MOST_EMPTY:
            self._order = sorted(self.buckets)
        else:
            heapq.heappush(self._order, number)
        if self._is_running and (self._timer is None or number < self._timer_bucket):
            self._arm()

    def remove(self, item: Item, number: int) -> None:
        self.buckets.remove(item, number)

    def start(self) -> None:
        self._is_running = True
        self._arm()

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clear(self) -> None:
        self.buckets.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._order and self._order[0] not in self.buckets:
            heapq.heappop(self._order)
        if self._order:
            self._timer_bucket = self._order[0]
            delay_s = (self._timer_bucket * self.width_ms - self.clock.now_ms()) / 1000
            self._timer = self.clock.call_later(min(max(0.0, delay_s), LONGEST_WAIT_S), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self.clock.now_ms()
        while self._order and self._order[0] * self.width_ms <= now_ms:
            items = self.buckets.take(heapq.heappop(self._order))
            if items:
                self.on_due(items)
        if self._is_running:
            self._arm()

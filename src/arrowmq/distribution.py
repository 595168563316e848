"""How values are distributed: how many were at most this, at most that, and what they add up to.

The form in which Prometheus takes sizes and times. Adding a value is one search in a short table and two additions.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence


class Distribution:
    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds` ascend; what is above the last of them has a place of its own."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0
        self.largest = 0

    def add(self, value: int, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulated(self) -> list[tuple[float, int]]:
        """Each bound and how many values were at most that; the last bound is infinity."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            so_far += count
            found.append((float(bound), so_far))
        return found

    def join(self, other: Distribution) -> None:
        """Take in another one of the same bounds."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def at_most(self, share: float) -> int:
        """What this share of the values does not exceed, as far as the bounds tell it."""
        wanted = share * self.count
        for bound, count in self.cumulated():
            if count >= wanted:
                return int(min(bound, self.largest))
        return self.largest

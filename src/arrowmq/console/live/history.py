"""The last hour of some numbers, in memory and bounded; Prometheus has more."""

from __future__ import annotations

from array import array
from collections import OrderedDict

MOST_SERIES = 4096
POINTS = 720  # an hour at a point every 5 s


class Series:
    """Points in the order of time; the oldest are given up first."""

    __slots__ = ("times_ms", "values")

    def __init__(self) -> None:
        self.times_ms = array("q")
        self.values = array("d")

    def add(self, at_ms: int, value: float) -> None:
        if len(self.times_ms) >= POINTS + POINTS // 8:  # cut now and then, not at every point
            del self.times_ms[: -POINTS + 1], self.values[: -POINTS + 1]
        self.times_ms.append(at_ms)
        self.values.append(value)

    def since(self, at_ms: int) -> list[tuple[int, float]]:
        return [(time, value) for time, value in zip(self.times_ms, self.values, strict=True) if time >= at_ms]


class History:
    """Series by name, such as `in:broker-a` or `lag:billing`; of too many, those not written for longest go."""

    def __init__(self) -> None:
        self._series: OrderedDict[str, Series] = OrderedDict()

    def add(self, name: str, at_ms: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series()
            if len(self._series) > MOST_SERIES:
                self._series.popitem(last=False)
        else:
            self._series.move_to_end(name)
        series.add(at_ms, value)

    def since(self, name: str, at_ms: int) -> list[tuple[int, float]]:
        series = self._series.get(name)
        return [] if series is None else series.since(at_ms)

    def names(self) -> list[str]:
        return sorted(self._series)


class Rates:
    """Per second, from counters that only grow: what came since the last look, if that was long enough ago."""

    SHORTEST_MS = 1_000

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[int, int, float | None]] = OrderedDict()

    def last(self, name: str) -> float | None:
        """What the newest look gave."""
        known = self._seen.get(name)
        return None if known is None else known[2]

    def see(self, name: str, at_ms: int, count: int) -> float | None:
        """The rate now; None at the first look."""
        before = self._seen.get(name)
        if before is None:
            self._seen[name] = (at_ms, count, None)
            if len(self._seen) > MOST_SERIES:
                self._seen.popitem(last=False)
            return None
        was_ms, was, rate = before
        if at_ms - was_ms < self.SHORTEST_MS:
            return rate
        rate = max(0.0, (count - was) * 1000 / (at_ms - was_ms))
        self._seen[name] = (at_ms, count, rate)
        self._seen.move_to_end(name)
        return rate

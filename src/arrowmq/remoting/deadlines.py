"""Time-outs of many waiting requests with a single timer.

A request rarely times out, so what must be cheap is adding and removing. Deadlines are rounded up to ticks; each tick
has a set of those that wait for it, and one timer stands for the earliest tick. A time-out may come one tick late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from arrowmq.clock import Clock, Timer

log = logging.getLogger(__name__)

TICK_S = 0.05


class Deadline:
    """One awaited moment. `expired` is called once unless the deadline is removed before."""

    __slots__ = ("expired", "tick")

    def __init__(self, expired: Callable[[], object], tick: int) -> None:
        self.expired = expired
        self.tick = tick


class Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticks: dict[int, set[Deadline]] = {}
        self._timer: Timer | None = None
        self._timer_tick = 0

    def __len__(self) -> int:
        return sum(map(len, self._ticks.values()))

    def add(self, timeout_s: float, expired: Callable[[], object]) -> Deadline:
        tick = int((self._clock.monotonic() + timeout_s) / TICK_S) + 1
        deadline = Deadline(expired, tick)
        waiting = self._ticks.get(tick)
        if waiting is None:
            self._ticks[tick] = {deadline}
            if self._timer is None or tick < self._timer_tick:
                self._arm(tick)
        else:
            waiting.add(deadline)
        return deadline

    def remove(self, deadline: Deadline) -> None:
        waiting = self._ticks.get(deadline.tick)
        if waiting is not None:
            waiting.discard(deadline)

    def close(self) -> None:
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._clock.call_later(max(0.0, tick * TICK_S - self._clock.monotonic()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        # An empty set stays until its tick has passed: dropping it at once would make a lone request of short life
        # arm a timer of its own each time.
        for tick in sorted(tick for tick in self._ticks if tick * TICK_S <= now + TICK_S / 2):
            for deadline in self._ticks.pop(tick):
                try:
                    deadline.expired()
                except Exception:
                    log.exception("a deadline's callback failed")
        if self._ticks and self._timer is None:
            self._arm(min(self._ticks))

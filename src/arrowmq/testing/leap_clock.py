"""Time that runs like the machine's and can leap ahead: `await clock.advance(3 * 86_400)` is three days in no time.

A leap fires every timer that it passes once, in the order they were due, at the moment of arrival. A task that repeats
every five seconds so runs once in a leap of three days, not fifty thousand times.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from arrowmq.clock import PendingCall, sleep_by_timer

SETTLE_TURNS = 20


class LeapClock:
    """For one event loop; `now_ms` and `monotonic` may be asked from any thread."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._timers: list[tuple[float, int, PendingCall]] = []
        self._sequence = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = 0.0

    @property
    def ahead_s(self) -> float:
        """How far this clock has leapt ahead of the machine's."""
        return self._ahead_s

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> PendingCall:
        timer = PendingCall(callback)
        heapq.heappush(self._timers, (self.monotonic() + max(0.0, delay_s), next(self._sequence), timer))
        self._set_alarm()
        return timer

    async def sleep(self, delay_s: float) -> None:
        await sleep_by_timer(self, delay_s)

    async def advance(self, seconds: float) -> None:
        """Leap, fire what is due, and let what that began come to rest."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds} s")
        self._ahead_s += seconds
        self._fire()
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    def next_due_in_s(self) -> float | None:
        """How long until the next timer, or None if there is none."""
        self._drop_cancelled()
        return max(0.0, self._timers[0][0] - self.monotonic()) if self._timers else None

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)

    def _set_alarm(self) -> None:
        self._drop_cancelled()
        if not self._timers:
            return
        due = self._timers[0][0]
        if self._alarm is not None:
            if due >= self._alarm_due:
                return
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, due - self.monotonic()), self._rang)

    def _rang(self) -> None:
        self._alarm = None
        self._fire()

    def _fire(self) -> None:
        now = self.monotonic()
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._set_alarm()

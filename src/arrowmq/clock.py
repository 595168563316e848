"""Time, handed in: services ask a `Clock`, never the machine, so that tests can move time themselves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time in milliseconds, monotonic time in seconds, and calls that happen later."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer: ...

    async def sleep(self, delay_s: float) -> None: ...


class SystemClock:
    """The machine's time and the running event loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class PendingCall:
    """A timer of a clock that fires its timers itself."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


async def sleep_by_timer(clock: Clock, delay_s: float) -> None:
    """`sleep` for a clock that has only timers."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_later(delay_s, wake)
    try:
        await woken
    finally:
        timer.cancel()


class VirtualClock:
    """Time that moves only when told: `await clock.advance(3 * 86_400)` lets three days of timers fire at once."""

    def __init__(self, start_ms: int | None = None) -> None:
        self._now_s = (time.time_ns() // 1_000_000 if start_ms is None else start_ms) / 1000
        self._sequence = itertools.count()
        self._timers: list[tuple[float, int, PendingCall]] = []

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        timer = PendingCall(callback)
        heapq.heappush(self._timers, (self._now_s + max(0.0, delay_s), next(self._sequence), timer))
        return timer

    async def sleep(self, delay_s: float) -> None:
        await sleep_by_timer(self, delay_s)

    def skip(self, seconds: float) -> None:
        """Let time pass that nobody saw: timers that became due fire with the next `advance`."""
        self._now_s += seconds

    async def advance(self, seconds: float, *, settle_turns: int = 3) -> None:
        """Move time forward, firing each timer at its own moment and letting the loop run in between."""
        target = self._now_s + seconds
        while self._timers and self._timers[0][0] <= target:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now_s = max(self._now_s, due)
            timer.callback()
            for _ in range(settle_turns):
                await asyncio.sleep(0)
        self._now_s = target
        for _ in range(settle_turns):
            await asyncio.sleep(0)

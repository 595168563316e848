"""How long the event loop stands still: a timer that notes how late it is called."""

from __future__ import annotations

from arrowmq.clock import Clock, Timer

PERIOD_S = 0.25


class LoopWatch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None
        self._due = 0.0
        self.longest_s = 0.0

    def start(self) -> None:
        self._due = self._clock.monotonic() + PERIOD_S
        self._timer = self._clock.call_later(PERIOD_S, self._called)

    def _called(self) -> None:
        self.longest_s = max(self.longest_s, self._clock.monotonic() - self._due)
        self.start()

    def take_longest_s(self) -> float:
        """The longest standstill since the last call."""
        longest, self.longest_s = self.longest_s, 0.0
        return longest

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Work that repeats: each task has a name and a period on the broker's clock; a failure is logged and it goes on."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from arrowmq.clock import Clock, Timer

log = logging.getLogger(__name__)

Action = Callable[[], Awaitable[object] | object]


class Background:
    """The repeating tasks of one broker. `every` before or after `start`; `stop` ends all of them and waits."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._tasks: list[_Repeating] = []
        self._started = False

    def every(self, name: str, period_s: float, action: Action, *, first_s: float | None = None) -> None:
        task = _Repeating(self.clock, name, period_s, action, period_s if first_s is None else first_s)
        self._tasks.append(task)
        if self._started:
            task.start()

    def start(self) -> None:
        self._started = True
        for task in self._tasks:
            task.start()

    async def stop(self) -> None:
        self._started = False
        running = [task.stop() for task in self._tasks]
        await asyncio.gather(*(turn for turn in running if turn is not None), return_exceptions=True)


class _Repeating:
    """One task. The next turn is timed from the end of this one, so turns never overlap."""

    def __init__(self, clock: Clock, name: str, period_s: float, action: Action, first_s: float) -> None:
        self.clock, self.name, self.period_s, self.action, self.first_s = clock, name, period_s, action, first_s
        self._timer: Timer | None = None
        self._turn: asyncio.Future[object] | None = None
        self._stopped = True

    def start(self) -> None:
        if self._stopped:
            self._stopped = False
            self._timer = self.clock.call_later(self.first_s, self._run)

    def stop(self) -> asyncio.Future[object] | None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        return self._turn

    def _run(self) -> None:
        try:
            outcome = self.action()
        except Exception:
            log.exception("background task %r failed; it runs again in %s s", self.name, self.period_s)
        else:
            if inspect.isawaitable(outcome):
                self._turn = asyncio.ensure_future(outcome)
                self._turn.add_done_callback(self._finished)
                return
        self._again()

    def _finished(self, turn: asyncio.Future[object]) -> None:
        self._turn = None
        if not turn.cancelled() and (failure := turn.exception()) is not None:
            log.error("background task %r failed; it runs again in %s s", self.name, self.period_s, exc_info=failure)
        self._again()

    def _again(self) -> None:
        if not self._stopped:
            self._timer = self.clock.call_later(self.period_s, self._run)

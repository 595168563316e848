"""Threads for handlers that are plain functions.

A thread cannot be stopped from outside: a handler that exceeds its time keeps its thread until it returns. So there
is a fixed number of them, and work is handed out only when one is free. Handlers that hang for ever so stop the
consumption, loudly, instead of piling up threads or letting messages time out that nobody has looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

log = logging.getLogger("arrowmq.client")

WARN_AFTER_S = 60.0


class HandlerThreads:
    """For one event loop. `one_is_free`, then `run` without an await in between."""

    def __init__(self, count: int, group: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=f"consume-{group}")
        self._count = count
        self._group = group
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_ending = False
        self.busy = 0

    async def one_is_free(self) -> bool:
        """Wait for a thread; False if the consumer ends before."""
        while self.busy >= self._count and not self._is_ending:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                async with asyncio.timeout(WARN_AFTER_S):
                    await turn
            except TimeoutError:
                log.error(
                    "all %d threads of %s are busy for over %g s: its handlers hang, and nothing is consumed until one "
                    "returns",
                    self._count,
                    self._group,
                    WARN_AFTER_S,
                )
        return not self._is_ending

    def run(self, work: Callable[[], object]) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        self.busy += 1
        running = self._pool.submit(work)
        running.add_done_callback(lambda ended: self._ended(loop, ended))
        return asyncio.wrap_future(running)

    def _ended(self, loop: asyncio.AbstractEventLoop, _running: Future[object]) -> None:
        try:
            loop.call_soon_threadsafe(self._freed)
        except RuntimeError:
            log.info("a handler of %s returned after its consumer's event loop had ended", self._group)

    def _freed(self) -> None:
        self.busy -= 1
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def let_waiting_go(self) -> None:
        """The consumer ends: who waits for a thread need not any more."""
        self._is_ending = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        self._waiting.clear()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

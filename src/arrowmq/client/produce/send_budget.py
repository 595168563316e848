"""A bound on what a producer has under way, by count and by bytes: who comes over it waits."""

from __future__ import annotations

import asyncio
from collections import deque

from arrowmq.client.errors import SendTimedOut


class SendBudget:
    def __init__(self, max_count: int, max_bytes: int) -> None:
        if max_count < 1 or max_bytes < 1:
            raise ValueError(f"the bounds of what is in flight must be positive, not {max_count} and {max_bytes} bytes")
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: list[asyncio.Future[None]] = []

    def try_enter(self, size: int) -> bool:
        if self._waiting or not self._has_room(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    def _has_room(self, size: int) -> bool:
        # A body over the whole limit passes alone, else it never would.
        return self.count < self._max_count and (self.bytes + size <= self._max_bytes or self.count == 0)

    async def enter(self, size: int, timeout_s: float, topic: str) -> None:
        """Wait for a turn, first come first served."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # the turn came in the same moment as the end
            elif entry in self._waiting:
                self._waiting.remove(entry)
            if isinstance(error, TimeoutError):
                full = TimeoutError(f"{self.count} messages with {self.bytes} bytes are in flight; nothing got done")
                raise SendTimedOut(topic, ["not sent"], [full], timeout_s * 1000) from error
            raise

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        while self._waiting and self._has_room(self._waiting[0][0]):
            next_size, turn = self._waiting.popleft()
            if turn.done():
                continue
            self.count += 1
            self.bytes += next_size
            turn.set_result(None)
        if not self.count and self._idle:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def drained(self) -> None:
        """Until nothing is under way."""
        while self.count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

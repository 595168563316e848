"""Waiting for what other tasks, threads and processes bring about: on a condition, never for a length of time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

PAUSE_S = 0.01  # between two looks; nothing depends on its length


async def pause() -> None:
    await asyncio.sleep(PAUSE_S)


async def until(condition: Callable[[], object], timeout_s: float | None = None) -> None:
    """`await until(lambda: seen)`; a condition may be a coroutine function. The test's own time-out bounds it too."""
    async with asyncio.timeout(timeout_s):
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            await pause()


def block_until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """The same where no event loop runs."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {timeout_s:g} s"
        time.sleep(PAUSE_S)

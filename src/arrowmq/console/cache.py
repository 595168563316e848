"""Answers of brokers kept for a moment: many pages that ask the same cost one question."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

MOST_ANSWERS = 2048

_T = TypeVar("_T")


class Cache:
    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, key: Hashable, kept_s: float, ask: Callable[[], Awaitable[_T]]) -> _T:
        known = self._answers.get(key)
        now = time.monotonic()
        if known is not None and (not known[1].done() or (now - known[0] < kept_s and known[1].exception() is None)):
            task = known[1]
        else:
            task = asyncio.ensure_future(_awaited(ask))
            # Nobody may be waiting any more when it fails; then the next one asks again.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._answers[key] = (now, task)
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        answer: _T = await asyncio.shield(task)
        return answer

    def forget(self) -> None:
        """After a change, the next look is at the cluster itself."""
        self._answers.clear()


async def _awaited(ask: Callable[[], Awaitable[_T]]) -> _T:
    return await ask()

"""How long requests took until they were answered, and how many wait for their answer now.

One distribution for each request code with each answer to it. What a fast path answers never comes by here: it counts
by itself, and hands its counts in.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from arrowmq.distribution import Distribution

if TYPE_CHECKING:
    from arrowmq.remoting.handlers import Call

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)  # Apache's
SUCCESS, ONEWAY, WRITE_FAILED = "success", "oneway", "write_channel_failed"


class Answered(NamedTuple):
    request_code: int
    response_code: int
    was_suspended: bool  # a pull that waited for a message
    result: str


class AnswerTimes:
    def __init__(self) -> None:
        self.times: dict[Answered, Distribution] = {}
        self.waiting: Counter[int] = Counter()  # by request code; without pulls that wait for a message

    def answered(self, call: Call, response_code: int) -> None:
        command = call.command
        result = ONEWAY if command.flag & 2 else WRITE_FAILED if call.connection.closed else SUCCESS
        # A plain tuple equals the named one; naming it every time would cost more than all the rest.
        key = (command.code, response_code, call.was_suspended, result)
        found = self.times.get(key)  # type: ignore[call-overload]
        if found is None:
            found = self.times[Answered(*key)] = Distribution(BOUNDS_MS)
        found.add(int((time.perf_counter() - call.began) * 1000))

    def of(self, request_codes: frozenset[int]) -> Distribution:
        """How long these took together; without pulls that waited for a message."""
        together = Distribution(BOUNDS_MS)
        for answered, times in self.times.items():
            if answered.request_code in request_codes and not answered.was_suspended:
                together.join(times)
        return together

    def add(self, answered: Answered, elapsed_ms: int, times: int = 1) -> None:
        found = self.times.get(answered)
        if found is None:
            found = self.times[answered] = Distribution(BOUNDS_MS)
        found.add(elapsed_ms, times)

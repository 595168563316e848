"""The log of handlers that failed: each kind of failure with its traceback, but not ten thousand times.

A full disk fails every send, and a log that fills with the same traceback hides what else happens, and fills the disk.
A failure like one of the last seconds is counted, and the count is told with the next one that is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

QUIET_S = 10.0
REMEMBERED = 64


class FailureLog:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: dict[tuple[str, type[Exception]], tuple[float, int]] = {}

    @property
    def remembered(self) -> int:
        """How many kinds of failures."""
        return len(self._last)

    def report(self, request: str, peer: str, error: Exception) -> None:
        key = (request, type(error))
        now = self._monotonic()
        written_at, unwritten = self._last.get(key, (float("-inf"), 0))
        if now - written_at < QUIET_S:
            self._last[key] = (written_at, unwritten + 1)
            return
        self._last.pop(key, None)
        self._last[key] = (now, 0)
        if len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]
        more = f" ({unwritten} more like it since the last one)" if unwritten else ""
        log.error("request failed code=%s peer=%s%s", request, peer, more, exc_info=error)

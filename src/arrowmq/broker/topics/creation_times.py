"""How long it took to create or change topics and groups, as the metrics tell it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arrowmq.distribution import Distribution

BOUNDS_MS = (10, 100, 1000, 3000, 5000)  # Apache's
SUCCESS, FAILURE = "success", "failure"


class CreationTimes:
    def __init__(self) -> None:
        self.topics: dict[tuple[str, bool], Distribution] = {}  # by outcome, and whether it is a topic of the system
        self.groups: dict[str, Distribution] = {}  # by outcome

    @contextmanager
    def of_topic(self, *, is_system: bool) -> Iterator[None]:
        with _timed(lambda outcome, ms: self.topics.setdefault((outcome, is_system), Distribution(BOUNDS_MS)).add(ms)):
            yield

    @contextmanager
    def of_group(self) -> Iterator[None]:
        with _timed(lambda outcome, ms: self.groups.setdefault(outcome, Distribution(BOUNDS_MS)).add(ms)):
            yield


@contextmanager
def _timed(note: Callable[[str, int], None]) -> Iterator[None]:
    began, outcome = time.perf_counter(), FAILURE
    try:
        yield
        outcome = SUCCESS
    finally:
        note(outcome, int((time.perf_counter() - began) * 1000))

"""Work that waits for the disk, outside of the event loop: one named worker a job, which does it step by step.

A step does what there is to do now and returns how long to wait until the next one; None: until somebody wakes the
worker. The disk starts the workers (`Disk.start_worker`), as it is the disk that they wait for: the real one gives each
a thread, a simulated one takes the steps on the simulation's own time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

Step = Callable[[], float | None]
_AFTER_FAILURE_S = 1.0


class Worker(Protocol):
    def wake(self) -> None:
        """Take the next step now; any thread may ask for it."""

    def stop(self) -> None:
        """No step is taken after this returns."""


class ThreadWorker:
    def __init__(self, name: str, step: Step, first_s: float | None = 0.0) -> None:
        self._name = name
        self._step = step
        self._first_s = first_s
        self._condition = threading.Condition()
        self._is_woken = False
        self._stops = False
        self._thread = threading.Thread(target=self._run, name=f"arrowmq-store-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self._stops = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._first_s
        while True:
            with self._condition:
                if not (self._is_woken or self._stops):
                    self._condition.wait(wait_s)
                if self._stops:
                    return
                if wait_s is None and not self._is_woken:
                    continue  # a condition may wake without a reason
                self._is_woken = False
            try:
                wait_s = self._step()
            except Exception:
                log.exception("a step of the worker %s failed", self._name)
                wait_s = _AFTER_FAILURE_S

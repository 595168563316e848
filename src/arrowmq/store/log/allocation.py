"""Preparing the next segment of the log while the one before it fills, by a worker of its own."""

from __future__ import annotations

import logging
import threading

from arrowmq.store.disk import Disk
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.workers import Worker

log = logging.getLogger(__name__)
_RETRY_S = 1.0


class Allocator:
    def __init__(self, commit_log: CommitLog, disk: Disk) -> None:
        self._log = commit_log
        self._disk = disk
        self._lock = threading.Lock()
        self._wanted = -1
        self._worker: Worker | None = None

    def start(self) -> None:
        self._worker = self._disk.start_worker("allocate", self._step, first_s=None)
        self._log.wants_spare = self.ask
        if self._log.segments:
            self.ask()

    def ask(self) -> None:
        """The segment behind the one in use is wanted."""
        with self._lock:
            self._wanted = self._log.tail.start + self._log.tail.size
        if self._worker is not None:
            self._worker.wake()

    def stop(self) -> None:
        self._log.wants_spare = None
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _step(self) -> float | None:
        with self._lock:
            start, self._wanted = self._wanted, -1
        if start < 0:
            return None
        try:
            self._log.create_spare(start)
        except Exception as problem:
            # No space now. The put that needs the segment tries itself and answers its sender; so does this.
            log.warning("the next commit log file cannot be prepared: %s", problem)
            with self._lock:
                self._wanted = start if self._wanted < 0 else self._wanted
            return _RETRY_S
        return None

"""Preparing the next segment of the log while the one before it fills, in a thread of its own."""

from __future__ import annotations

import logging
import threading

from arrowmq.store.log.commitlog import CommitLog

log = logging.getLogger(__name__)
_RETRY_S = 1.0


class Allocator:
    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._wake = threading.Condition()
        self._wanted = -1
        self._stops = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stops = False
        self._thread = threading.Thread(target=self._run, name="arrowmq-store-allocate", daemon=True)
        self._thread.start()
        self._log.wants_spare = self.ask
        if self._log.segments:
            self.ask()

    def ask(self) -> None:
        """The segment behind the one in use is wanted."""
        with self._wake:
            self._wanted = self._log.tail.start + self._log.tail.size
            self._wake.notify()

    def stop(self) -> None:
        self._log.wants_spare = None
        if self._thread is not None:
            with self._wake:
                self._stops = True
                self._wake.notify()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._wanted < 0 and not self._stops:
                    self._wake.wait()
                if self._stops:
                    return
                start, self._wanted = self._wanted, -1
            try:
                self._log.create_spare(start)
            except Exception as problem:
                # No room now. The put that needs the segment tries itself and answers its sender; so does this.
                log.warning("the next commit log file cannot be prepared: %s", problem)
                with self._wake:
                    if self._wanted < 0 and not self._stops:
                        self._wanted = start
                        self._wake.wait(_RETRY_S)

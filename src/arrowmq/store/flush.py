"""Forcing to disk, by a worker of its own: the event loop never waits for it.

SYNC_FLUSH is a group commit: while one fsync runs, the waiters of the next gather. On a slow disk it does not begin at
once either: those who were just answered come again in a moment, and so that each fsync serves all of them instead of
every second one, the next waits for as many bytes as the last one had, but no longer than a part of the time an fsync
takes. ASYNC_FLUSH forces at intervals, if enough pages are dirty. Either way the worker also forces queues and full
index files, and writes the checkpoint with the times of what it forced, never of what was merely written.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from arrowmq.clock import Clock
from arrowmq.store.append.tails import QueueTail
from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.store.index import Index
from arrowmq.store.integrity.checkpoint import Checkpoint
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.positions import Flushed, Positions
from arrowmq.store.queues.table import Queues
from arrowmq.store.workers import Worker

PAGE_BYTES = 4096
_SYNC_INTERVAL_S = 0.01
_SYNC_IDLE_S = 0.1
_AFTER_ERROR_S = 0.5
_GATHER_PART = 0.25  # of the last fsync's time, for those just answered to come again
_GATHER_LEAST_S = 0.0005  # an fsync that takes less than four times this is not worth waiting for
_GATHER_MOST_S = 0.002
_MANY_QUEUES = 256  # from here on the whole file system is forced at once, not file by file
log = logging.getLogger(__name__)


class Loop(Protocol):
    """What of an event loop the worker needs."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle: ...


class Flusher:
    """Moves the flushed position. Without `start` it works in the calling thread, which tools and tests use."""

    def __init__(
        self,
        config: StoreConfig,
        positions: Positions,
        commit_log: CommitLog,
        queues: Queues,
        index: Index,
        checkpoint: Checkpoint,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._config = config
        self._disk = disk
        self._monotonic = clock.monotonic
        self._positions = positions
        positions.wants_flush = self._wanted
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._queues_lock = threading.Lock()
        self._unforced_queues: list[QueueTail] = []  # taken from the log's list, and not on disk yet
        self.error: str | None = None
        self._loop: Loop | None = None
        self._worker: Worker | None = None
        self._is_asked = False  # on the loop: the worker was woken, and its answer has not come back yet
        self._gathering: asyncio.TimerHandle | None = None
        self._gathered_end = 0
        self._last_bytes = 0
        self._last_s = 0.0
        self._force_lock = threading.Lock()
        self._last_thorough = self._last_queues = self._last_queues_thorough = self._monotonic()

    # The loop's side

    def start(self, loop: Loop) -> None:
        self._loop = loop
        self._positions.open()
        self._worker = self._disk.start_worker("flush", self._step, first_s=self._interval_s)

    def stop(self) -> None:
        """End the worker; what it has not forced is forced here."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        self.force_everything()
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._is_asked = False
        self._positions.advanced()
        self._positions.close()

    def _wanted(self) -> None:
        """Somebody waits for a flush."""
        if self._worker is None:
            self.force_log()
            self._positions.advanced()
        else:
            self.ask()

    def ask(self) -> None:
        """Wake the worker, as every append under SYNC_FLUSH does; not while it works or a group gathers."""
        if self._is_asked or self._worker is None:
            return
        if self._gathering is not None:
            if self._log.appended < self._gathered_end:
                return
            self._stop_gathering()
        self._is_asked = True
        self._worker.wake()

    def _gather(self) -> None:
        """An fsync has ended: let those it served come again before the next begins, if that is worth it."""
        if self._gathering is None and self._config.is_sync_flush and self._loop is not None:
            gather_s = min(self._last_s * _GATHER_PART, _GATHER_MOST_S)
            if gather_s >= _GATHER_LEAST_S and self._last_bytes:
                self._gathered_end = self._log.appended + self._last_bytes
                self._gathering = self._loop.call_later(gather_s, self._stop_gathering)

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            if self._log.appended > self._positions.flushed_end:
                self.ask()

    def _resolve(self) -> None:
        """On the loop: a round of the worker has ended."""
        position = self._positions.flushed_end
        self._is_asked = False
        self._gather()
        self._positions.advanced()
        if self._log.appended > position and (self._config.is_sync_flush or self._positions.is_flush_awaited):
            self.ask()

    # The worker's side

    @property
    def _interval_s(self) -> float:
        return _SYNC_INTERVAL_S if self._config.is_sync_flush else self._config.flush_interval_commit_log / 1000

    def _step(self) -> float:
        is_sync = self._config.is_sync_flush
        try:
            self._round(is_sync)
            self.error = None
        except Exception as problem:
            # The disk refused: no waiter is told yes, puts are refused by `error`, and the next round tries again.
            self.error = f"forcing to disk failed: {problem}"
            log.exception("forcing the store to disk failed; trying again")
            return _AFTER_ERROR_S
        is_idle = is_sync and self._positions.flushed_end >= self._log.appended
        return _SYNC_IDLE_S if is_idle else self._interval_s

    def _round(self, is_sync: bool) -> None:
        now = self._monotonic()
        thorough_s = self._config.flush_commit_log_thorough_interval / 1000
        appended, flushed = self._log.appended, self._positions.flushed_end
        dirty_pages = appended // PAGE_BYTES - flushed // PAGE_BYTES
        is_thorough = now - self._last_thorough >= thorough_s
        # Whoever waits for a flush gets it, however little there is to flush.
        someone_waits = self._positions.is_flush_awaited
        if is_sync or is_thorough or someone_waits or dirty_pages >= self._config.flush_commit_log_least_pages:
            is_news = appended > flushed
            if is_news:
                self.force_log()
            if self._loop is not None and (
                someone_waits or self._is_asked or (is_news and self._positions.needs_flush)
            ):
                self._loop.call_soon_threadsafe(self._resolve)
            if is_thorough or is_sync:
                self._last_thorough = now
        if now - self._last_queues >= self._config.flush_interval_consume_queue / 1000:
            self._last_queues = now
            if now - self._last_queues_thorough >= self._config.flush_consume_queue_thorough_interval / 1000:
                self._last_queues_thorough = now
                self.force_queues()
            self._force_full_indexes()
            self._checkpoint.save()

    def force_log(self) -> None:
        """Force every segment between what is forced and what is appended; other threads may call it too."""
        with self._force_lock:
            end, flushed = self._log.appended, self._positions.flushed_end
            newest = self._log.tail.last_store_timestamp
            if end <= flushed:
                return
            began = self._monotonic()
            for segment in self._log.segments_between(flushed, end):
                segment.force()
            self._log.force_names()
            self._last_bytes, self._last_s = end - flushed, self._monotonic() - began
            self._positions.flushed = Flushed(end)
            self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, newest)
            self._checkpoint.log_end = end

    @contextmanager
    def cutting(self, end: int) -> Iterator[None]:
        """While the log is cut to end there: nothing is forced meanwhile, and nothing behind it counts as written."""
        checkpoint = self._checkpoint
        with self._force_lock:
            checkpoint.log_end, checkpoint.boot = min(checkpoint.log_end, end), 0
            checkpoint.save()
            yield
            self._positions.cut(end)
            checkpoint.boot = self._disk.boot()

    def force_queues(self) -> None:
        """Force every queue with new entries; only then the checkpoint may say so. What could not be forced is tried
        again with the next ones. Other threads may call it too."""
        with self._queues_lock:
            newest = self._log.tail.last_store_timestamp
            dirty, self._log.tail.dirty_queues = self._log.tail.dirty_queues, []
            for tail in dirty:
                tail.dirty = False
            self._unforced_queues += dirty
            if len(self._unforced_queues) > _MANY_QUEUES:
                self._queues.force_all()
            else:
                for tail in self._unforced_queues:
                    queue = self._queues.find(tail.topic, tail.queue_id)
                    if queue is not None and queue.tail is tail:
                        queue.force()
            self._unforced_queues = []
            self._checkpoint.logics_msg_timestamp = max(self._checkpoint.logics_msg_timestamp, newest)

    def _force_full_indexes(self) -> None:
        while self._index.full:
            file, end_timestamp = self._index.full[0]
            file.segment.force()
            self._index.force_names()
            self._checkpoint.index_msg_timestamp = end_timestamp
            self._index.full.pop(0)

    def force_everything(self) -> None:
        self.force_log()
        self.force_queues()
        self._force_full_indexes()
        self._index.force()
        self._checkpoint.save()

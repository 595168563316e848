"""What to delete, and when to refuse messages: decided by pure functions of settings, time and disk use.

The commit log's oldest files go first; consume queue and index files follow once nothing in the log is left of what
they point at. The file in use is never deleted.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import DiskUsage
from arrowmq.store.log.segment import Segment

if TYPE_CHECKING:
    from arrowmq.store.message_store import MessageStore

_MANUAL_ROUNDS = 20
_HOUR_MS = 3_600_000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskVerdict:
    """What the use of the disk asks for."""

    is_full: bool | None  # None: leave the disk-full flag as it is
    deletes_expired: bool
    deletes_any: bool


def judge_disk(config: StoreConfig, usage: DiskUsage) -> DiskVerdict:
    """The three ratios: above the first expired files go at any hour, above the second files go even before they
    expire, above the third messages are refused until use is back under the second."""
    percent = usage.percent
    warning = min(max(config.disk_space_warning_level_ratio, 35), 90)
    forcibly = min(max(config.disk_space_clean_forcibly_ratio, 30), 85)
    expired = min(max(config.disk_max_used_space_ratio, 10), 95)
    if percent > warning:
        return DiskVerdict(True, True, True)
    if percent > forcibly:
        return DiskVerdict(None, True, True)
    return DiskVerdict(False, percent > expired, False)


def is_delete_hour(config: StoreConfig, hour: int) -> bool:
    return any(word.strip().isdigit() and int(word) == hour for word in config.delete_when.split(";"))


def count_deletable(
    config: StoreConfig, modified_ms: Sequence[int], now_ms: int, *, deletes_expired: bool, deletes_any: bool
) -> int:
    """How many of the oldest files to delete in this round, given when each was last written, the file in use excluded.

    Files go oldest first, and the first that stays ends it: the log has no holes.
    """
    count = 0
    reserved_ms = config.file_reserved_time * _HOUR_MS
    for modified in modified_ms[: config.delete_file_batch_max]:
        is_expired = modified + reserved_ms <= now_ms
        if not (deletes_any and config.clean_file_forcibly_enable) and not (deletes_expired and is_expired):
            break
        count += 1
    if config.commit_log_max_bytes:
        total = (len(modified_ms) + 1) * config.mapped_file_size_commit_log
        excess = total - config.commit_log_max_bytes
        by_size = -(-excess // config.mapped_file_size_commit_log) if excess > 0 else 0
        count = max(count, min(by_size, len(modified_ms), config.delete_file_batch_max))
    return count


class Retention:
    """Carries the decisions out. What blocks (asking the disk, unlinking large files) is done in a thread; what the
    store's tables must agree on (which files they still have) is done on the loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.disk_full_reason: str | None = None
        self._manual_rounds = 0
        self._stops = threading.Event()
        self._detached: queue.SimpleQueue[list[Segment]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask_now(self) -> None:
        """An operator wants expired files gone now, whatever the hour; it counts for some rounds, as in Apache."""
        self._manual_rounds = _MANUAL_ROUNDS

    def start(self, run_on_loop: Callable[[Callable[[], object]], object]) -> None:
        self._stops.clear()
        self._thread = threading.Thread(
            target=self._rounds, args=(run_on_loop,), name="arrowmq-store-retention", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        if self._thread is not None:
            self._detached.put([])
            self._thread.join()
            self._thread = None

    def _rounds(self, run_on_loop: Callable[[Callable[[], object]], object]) -> None:
        interval_s = self._store.config.clean_resource_interval / 1000
        while not self._stops.wait(interval_s):
            try:
                facts = self._look()
                run_on_loop(lambda facts=facts: self._detached.put(self._detach(facts)))  # type: ignore[misc]
                self._unlink(self._detached.get())
            except (OSError, RuntimeError) as problem:  # a loop that is closing refuses calls
                log.warning("a round of retention failed: %s", problem)

    def run_once(self) -> int:
        """One round in the calling thread; how many commit log files went."""
        before = len(self._store.commit_log.segments)
        self._unlink(self._detach(self._look()))
        return before - len(self._store.commit_log.segments)

    def _look(self) -> tuple[DiskUsage, list[int]]:
        """The use of the disk, and when each file of the log that may go was last written."""
        log_files = self._store.commit_log
        usage = self._store.disk.usage(log_files.folder if log_files.folder.is_dir() else self._store.root)
        candidates = list(log_files.segments)[:-1]
        return usage, [int(segment.path.stat().st_mtime * 1000) for segment in candidates]

    def _detach(self, facts: tuple[DiskUsage, list[int]]) -> list[Segment]:
        """Take out of the tables what is to be deleted; readers that hold views keep the bytes."""
        store = self._store
        usage, modified_ms = facts
        verdict = self.judge(usage)
        now_ms = store.clock.now_ms()
        is_manual = self._manual_rounds > 0
        self._manual_rounds = max(0, self._manual_rounds - 1)
        is_hour = is_delete_hour(store.config, time.localtime(now_ms / 1000).tm_hour)
        count = count_deletable(
            store.config,
            modified_ms[: len(store.commit_log.segments) - 1],
            now_ms,
            deletes_expired=is_hour or is_manual or verdict.deletes_expired,
            deletes_any=verdict.deletes_any,
        )
        detached = [store.commit_log.detach_first() for _ in range(count)]
        if count:
            smallest = store.commit_log.min_offset
            for consume_queue in store.consume_queues:
                detached += consume_queue.detach_expired(smallest)
            detached += store.index.detach_expired(smallest)
            log.info("retention deletes %d commit log files; the log starts at %d", count, smallest)
        return detached

    def _unlink(self, segments: list[Segment]) -> None:
        pause_s = self._store.config.delete_commit_log_files_interval / 1000
        for segment in segments:
            segment.delete()
            if self._thread is threading.current_thread() and segment.path.parent == self._store.commit_log.folder:
                self._stops.wait(pause_s)

    def judge(self, usage: DiskUsage) -> DiskVerdict:
        verdict = judge_disk(self._store.config, usage)
        if verdict.is_full is True:
            self.disk_full_reason = f"the disk is {usage.percent} % full (diskSpaceWarningLevelRatio): free space on it"
        elif verdict.is_full is False:
            self.disk_full_reason = None
        return verdict

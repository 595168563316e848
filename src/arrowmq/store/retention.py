"""What to delete, and when to refuse messages: decided by pure functions of settings, time and disk use.

The commit log's oldest files go first; consume queue and index files follow once nothing in the log is left of what
they point at. The file in use is never deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import DiskUsage
from arrowmq.store.log.segment import Segment
from arrowmq.store.workers import Worker

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
    """Carries the decisions out. What blocks (asking the disk, unlinking large files) is done by a worker; what the
    store's tables must agree on (which files they still have) is done on the loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.disk_full_reason: str | None = None
        self._manual_rounds = 0
        self._run_on_loop: Callable[[Callable[[], object]], object] | None = None
        self._was_asked = False  # in this round: the loop, to detach
        self._is_detaching = False  # and it has not done so yet
        self._detached: list[Segment] = []  # and still to be unlinked
        self._has_kept_counts = False
        self._worker: Worker | None = None

    def ask_now(self) -> None:
        """An operator wants expired files gone now, whatever the hour; it counts for some rounds, as in Apache."""
        self._manual_rounds = _MANUAL_ROUNDS

    @property
    def _interval_s(self) -> float:
        return self._store.config.clean_resource_interval / 1000

    def start(self, run_on_loop: Callable[[Callable[[], object]], object]) -> None:
        self._run_on_loop = run_on_loop
        self._was_asked = self._is_detaching = False
        self._worker = self._store.disk.start_worker("retention", self._step, first_s=self._interval_s)

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        self._unlink(self._detached)

    @property
    def is_unlinking(self) -> bool:
        """Whether files that the tables no longer have are still on disk."""
        return bool(self._detached)

    def _step(self) -> float | None:
        """Look and ask the loop to detach what may go; then unlink that, with a pause after each file of the log."""
        try:
            if self._detached:
                return self._unlink_first()
            if self._is_detaching:
                return None
            if self._was_asked:
                self._was_asked = False
                return self._interval_s
            facts = self._look()
            assert self._run_on_loop is not None
            self._is_detaching = self._was_asked = True
            self._run_on_loop(lambda: self._detach_and_wake(facts))
            return None
        except (OSError, RuntimeError) as problem:  # a loop that is closing refuses calls
            self._is_detaching = self._was_asked = False
            log.warning("a round of retention failed: %s", problem)
            return self._interval_s

    def _unlink_first(self) -> float:
        self._keep_counts()
        segment = self._detached.pop(0)
        segment.delete()
        is_of_log = segment.path.parent == self._store.commit_log.folder
        return self._store.config.delete_commit_log_files_interval / 1000 if is_of_log and self._detached else 0.0

    def _detach_and_wake(self, facts: tuple[DiskUsage, list[int]]) -> None:
        self._detached = self._detach(facts)
        self._is_detaching = False
        if self._worker is not None:
            self._worker.wake()

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
        self._has_kept_counts = False
        if count:
            smallest = store.commit_log.min_offset
            for consume_queue in store.consume_queues:
                detached += consume_queue.detach_expired(smallest)
            detached += store.index.detach_expired(smallest)
            log.info("retention deletes %d commit log files; the log starts at %d", count, smallest)
        return detached

    def _keep_counts(self) -> None:
        """Once a round, before anything goes: how many messages a queue had, only its entries say when the log no
        longer has them. A power loss that takes those as well would have offsets given a second time."""
        if not self._has_kept_counts:
            self._store.force_queues()
            self._has_kept_counts = True

    def _unlink(self, segments: list[Segment]) -> None:
        if segments:
            self._keep_counts()
        while segments:
            segments.pop(0).delete()

    def judge(self, usage: DiskUsage) -> DiskVerdict:
        verdict = judge_disk(self._store.config, usage)
        if verdict.is_full is True:
            self.disk_full_reason = f"the disk is {usage.percent} % full (diskSpaceWarningLevelRatio): free space on it"
        elif verdict.is_full is False:
            self.disk_full_reason = None
        return verdict

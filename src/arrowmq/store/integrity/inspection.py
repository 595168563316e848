"""Looking into a store directory without changing it: ArrowMQ's and Apache's alike.

File sizes are read off the files, so nobody has to know how the broker was configured. An index file tells only its
total size; slots and entries are taken to stand 1 to 4, as they do by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from arrowmq.clock import SystemClock
from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreError
from arrowmq.store.index import Index
from arrowmq.store.integrity.checkpoint import Checkpoint
from arrowmq.store.log.commitlog import CommitLog
from arrowmq.store.log.walk import BLANK, check_record
from arrowmq.store.queues.table import Queues
from arrowmq.wire.records import Record, decode_record


def detect_config(root: Path) -> StoreConfig:
    """The settings a directory was written with, as far as its files tell."""
    if not (root / "commitlog").is_dir():
        raise StoreError(f"{root} is no store: it has no folder `commitlog`")
    config = StoreConfig()
    sizes = {
        "mapped_file_size_commit_log": _first_size((root / "commitlog").iterdir()),
        "mapped_file_size_consume_queue": _first_size((root / "consumequeue").glob("*/*/*")),
        "mapper_file_size_batch_consume_queue": _first_size((root / "batchconsumequeue").glob("*/*/*")),
    }
    found: dict[str, int] = {name: size for name, size in sizes.items() if size}
    index_bytes = _first_size((root / "index").glob("*"))
    if index_bytes and (index_bytes - 40) % 84 == 0:
        found["max_hash_slot_num"] = (index_bytes - 40) // 84
        found["max_index_num"] = 4 * found["max_hash_slot_num"]
    return replace(config, **found)  # type: ignore[arg-type]


def _first_size(paths: Iterator[Path]) -> int:
    sizes = (path.stat().st_size for path in paths if path.name.isdigit() and path.is_file())
    return next((size for size in sizes if size), 0)


@dataclass
class QueueStats:
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass
class StoreStats:
    """What a directory holds, in numbers."""

    segments: int = 0
    log_bytes: int = 0
    min_physical_offset: int = 0
    topics: dict[str, list[QueueStats]] = field(default_factory=dict)
    batch_topics: list[str] = field(default_factory=list)
    index_files: int = 0
    index_entries: int = 0
    is_clean: bool = True

    @property
    def messages(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queues in self.topics.values() for queue in queues)


class StoreView:
    """A store directory opened for looking."""

    def __init__(self, root: Path, config: StoreConfig | None = None) -> None:
        self.root = Path(root)
        self.config = config or detect_config(self.root)
        disk = Disk()
        self.commit_log = CommitLog(disk, self.root / "commitlog", self.config.mapped_file_size_commit_log)
        self.commit_log.load(writable=False)
        self.queues = Queues(disk, self.root / "consumequeue", self.config)
        self.queues.load(thorough=False, writable=False)
        self.index = Index(disk, self.root / "index", self.config, SystemClock())
        self.index.load(writable=False)
        self.is_clean = not (self.root / "abort").exists()
        checkpoint = Checkpoint(self.root / "checkpoint", disk)
        checkpoint.load()
        self.forced_end = checkpoint.log_end  # of the log; 0 if that is not known

    def stats(self) -> StoreStats:
        log = self.commit_log
        found = StoreStats(
            segments=len(log.segments),
            log_bytes=sum(segment.size for segment in log.segments),
            min_physical_offset=log.min_offset,
            index_files=len(self.index.files),
            index_entries=sum(file.header()[5] - 1 for file in self.index.files),
            is_clean=self.is_clean,
        )
        for queue in self.queues:
            numbers = QueueStats(queue.tail.queue_id, queue.min_offset(log.min_offset), queue.tail.next_offset)
            found.topics.setdefault(queue.tail.topic, []).append(numbers)
        batches = self.root / "batchconsumequeue"
        if batches.is_dir():
            found.batch_topics = sorted(path.name for path in batches.iterdir() if path.is_dir())
        return found

    def records(self, start: int | None = None) -> Iterator[Record]:
        """Every record from a place in the log on, up to the end; damaged ones end the segment they are in."""
        for segment in self.commit_log.segments:
            position = max(0, (start or 0) - segment.start)
            while position < segment.size:
                size = check_record(segment.view, position, segment.size, segment.start, 0)
                if size <= BLANK:
                    break
                yield decode_record(segment.view[position : position + size], check_crc=False)
                position += size

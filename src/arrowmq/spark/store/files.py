"""A store directory, read without a broker: which segments the commit log has, and what the consume queues say.

Nothing here writes, locks or recovers: the directory may belong to a running broker, to a dead one, or be a copy.
Consume queue entries come as numpy arrays, so that filters on them cost next to nothing.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from arrowmq.wire import fastjson

#  ConsumeQueue entry, 20 bytes, big endian
#   0  8  physical offset in the commit log
#   8  4  record size
#  12  8  hash of the tag; of a delayed message, the time it is due
ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
FILLER_SIZE = 0x7FFFFFFF  # written before the first entry of a queue that does not start at offset 0
MEMBER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_"  # followed by the broker's name; every broker has that topic


class NotAStore(ValueError):
    """A path without a commit log."""


@dataclass(frozen=True)
class Segment:
    """One file of the commit log: bytes `start` to `start + size` of it."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class StoreDirectory:
    """The files of one broker's store. Accepts the store folder, the folder above it, or the commit log's own."""

    def __init__(self, path: str | Path) -> None:
        given = Path(path).expanduser()
        if not given.exists():
            raise NotAStore(f"{given} does not exist")
        for root in (given, given / "store"):
            if (root / "commitlog").is_dir():
                self.root, self.log_path = root, root / "commitlog"
                break
        else:
            if not _segments(given):
                raise NotAStore(f"{given} holds no commitlog folder with segments; give the store's root folder")
            self.root, self.log_path = given.parent, given

    @cached_property
    def segments(self) -> list[Segment]:
        """The files that hold records; those made in advance, still empty, come last and are left out."""
        found = _segments(self.log_path)
        while len(found) > 1 and _is_unused(found[-1]):
            found.pop()
        return found

    @cached_property
    def min_offset(self) -> int:
        return self.segments[0].start if self.segments else 0

    @cached_property
    def broker_name(self) -> str | None:
        """A store does not say whose it is, but its topic table has a topic named after the broker."""
        identity = self.root / "brokerIdentity"
        if identity.is_file():
            parts = identity.read_text().strip().split("#")
            if len(parts) == 3:
                return parts[1]
        for topic in self.config("topics.json").get("topicConfigTable", {}):
            if topic.startswith(MEMBER_TOPIC):
                return str(topic[len(MEMBER_TOPIC) :])
        return None

    def config(self, name: str) -> dict[str, Any]:
        """A configuration file of the broker, or its backup; empty when there is neither."""
        for path in (self.root / "config" / name, self.root / "config" / f"{name}.bak"):
            if path.is_file() and path.stat().st_size:
                try:
                    found = fastjson.loads(path.read_bytes())
                except ValueError:
                    continue  # torn by a crash: the broker, too, takes the backup then
                if isinstance(found, dict):
                    return found
        return {}

    def queues(self) -> dict[str, list[int]]:
        """The topics that have consume queues, and their queue ids."""
        folder = self.root / "consumequeue"
        if not folder.is_dir():
            return {}
        return {
            topic.name: sorted(int(queue.name) for queue in topic.iterdir() if queue.name.isdigit())
            for topic in sorted(folder.iterdir())
            if topic.is_dir() and any(queue.name.isdigit() for queue in topic.iterdir())
        }

    def has_plain_queues(self, topic: str) -> bool:
        """Whether `topic` can be found through 20-byte entries (batch and RocksDB queues are not such)."""
        return bool(self.queues().get(topic)) and not (self.root / "batchconsumequeue" / topic).is_dir()

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        return QueueFiles(self.root / "consumequeue" / topic / str(queue_id), self.min_offset)

    @cached_property
    def dispatched_end(self) -> int:
        """Where the last record lies that any consume queue knows of ends; 0 without queues."""
        end = 0
        for topic, queue_ids in self.queues().items():
            for queue_id in queue_ids:
                last = self.queue(topic, queue_id).last()
                if last is not None:
                    end = max(end, last)
        return end


class QueueFiles:
    """The consume queue files of one queue."""

    def __init__(self, folder: Path, min_offset: int) -> None:
        self.files = _segments(folder)
        self.min_offset = min_offset

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The first queue offset whose record is still in the commit log, and the one after the last."""
        first, end = 0, 0
        for file in reversed(self.files):
            entries = _read_entries(file)
            used = _used(entries)
            if used:
                end = file.start // ENTRY.itemsize + used
                break
            end = file.start // ENTRY.itemsize
        for file in self.files:
            entries = _read_entries(file)
            entries = entries[: _used(entries)]
            kept = np.flatnonzero((entries["size"] != FILLER_SIZE) & (entries["offset"] >= self.min_offset))
            if kept.size:
                first = file.start // ENTRY.itemsize + int(kept[0])
                return first, max(first, end)
        return end, end

    def last(self) -> int | None:
        """Where the record of the last entry ends in the commit log."""
        for file in reversed(self.files):
            entries = _read_entries(file)
            used = _used(entries)
            if used and entries[used - 1]["size"] != FILLER_SIZE:
                return int(entries[used - 1]["offset"]) + int(entries[used - 1]["size"])
        return None

    def entries(self, start: int, end: int) -> np.ndarray[Any, Any]:
        """The entries of queue offsets `start` to `end`, fillers and unused ones included as they are."""
        pieces = []
        for file in self.files:
            first = file.start // ENTRY.itemsize
            last = file.end // ENTRY.itemsize
            if first < end and last > start:
                pieces.append(_read_entries(file)[max(0, start - first) : end - first])
        return np.concatenate(pieces) if pieces else np.empty(0, ENTRY)


def _segments(folder: Path) -> list[Segment]:
    """Files whose names are twenty digits: the byte each starts at."""
    if not folder.is_dir():
        return []
    found = []
    for entry in os.scandir(folder):
        if len(entry.name) == 20 and entry.name.isdigit() and entry.is_file() and entry.stat().st_size:
            found.append(Segment(entry.path, int(entry.name), entry.stat().st_size))
    return sorted(found, key=lambda segment: segment.start)


def _is_unused(segment: Segment) -> bool:
    with open(segment.path, "rb") as file:
        return not file.read(8).strip(b"\0")


def _read_entries(file: Segment) -> np.ndarray[Any, Any]:
    count = file.size // ENTRY.itemsize
    return np.memmap(file.path, dtype=ENTRY, mode="r", shape=(count,)) if count else np.empty(0, ENTRY)


def _used(entries: np.ndarray[Any, Any]) -> int:
    """How many entries were written: files are made at full size, unused entries are zeros. Found by halving."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle]["size"] > 0:
            low = middle + 1
        else:
            high = middle
    return low


def data_end(segment: Segment) -> int:
    """The position in the file after which there is only a hole; its size where the file system cannot tell."""
    with open(segment.path, "rb") as file:
        end = position = 0
        try:
            while position < segment.size:
                data = os.lseek(file.fileno(), position, os.SEEK_DATA)
                end = position = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        except OSError:
            return end or segment.size
    return min(end, segment.size)


def map_segment(segment: Segment) -> mmap.mmap:
    with open(segment.path, "rb") as file:
        return mmap.mmap(file.fileno(), segment.size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)

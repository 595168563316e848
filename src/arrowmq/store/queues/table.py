"""The table of all consume queues of a store: found on disk at opening, made on the first message of a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from arrowmq.store.config import StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.store.queues.consumequeue import ConsumeQueue
from arrowmq.store.queues.mappings import MappedQueues

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


class Queues:
    """topic -> queue id -> ConsumeQueue."""

    def __init__(self, disk: Disk, folder: Path, config: StoreConfig) -> None:
        self._disk = disk
        self.folder = folder
        self._config = config
        self._delays_ms = config.delay_levels_ms
        self._table: dict[tuple[str, int], ConsumeQueue] = {}
        self.mapped = MappedQueues()

    def load(self, *, thorough: bool, writable: bool = True) -> None:
        """Find every queue and where it ends. Nothing is mapped, no file stays open."""
        if not self.folder.is_dir():
            return
        with os.scandir(self.folder) as topics:
            for topic in topics:
                if not topic.is_dir():
                    continue
                with os.scandir(topic.path) as numbers:
                    for number in numbers:
                        if number.name.isascii() and number.name.isdigit() and number.is_dir():
                            queue = self._add(topic.name, int(number.name))
                            queue.load(thorough=thorough, writable=writable)

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        folder = f"{self.folder}/{topic}/{queue_id}"
        queue = ConsumeQueue(self._disk, folder, topic, queue_id, self._config.queue_file_bytes, self.mapped)
        if topic == SCHEDULE_TOPIC:
            queue.tail.delays_ms = self._delays_ms
        self._table[topic, queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._table.get((topic, queue_id))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; one that is not there yet costs nothing on disk until its first message."""
        return self._table.get((topic, queue_id)) or self._add(topic, queue_id)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    @property
    def max_physical(self) -> int:
        """The end of the newest record any queue has an entry for; 0 if there is none."""
        return max((queue.tail.max_physical for queue in self._table.values()), default=0)

    def force_all(self) -> None:
        """Force every queue's files, in one go."""
        if self.folder.is_dir():
            self._disk.force_all(self.folder)

    def delete_topic(self, topic: str) -> int:
        """Forget a topic's queues and their files, for good; how many there were."""
        count = self._remove_topic(topic)
        folder = self.folder / topic
        if self.folder.is_dir():
            self._disk.force_folder(folder if folder.is_dir() else self.folder)
        return count

    def _remove_topic(self, topic: str) -> int:
        doomed = [key for key in self._table if key[0] == topic]
        for key in doomed:
            self._table.pop(key).destroy()
        folder = self.folder / topic
        if folder.is_dir() and not any(folder.iterdir()):
            self._disk.remove_folder(folder)
        return len(doomed)

    def destroy(self) -> None:
        for topic in {key[0] for key in self._table}:
            self._remove_topic(topic)

    def numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._table):
            found.setdefault(topic, []).append(queue_id)
        return found

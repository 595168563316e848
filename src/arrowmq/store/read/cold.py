"""Reads that wait for the disk, in a thread of their own. Which reads these are is `QueueReader`'s to say.

The thread reads the bytes with plain reads, which brings them into the page cache while the interpreter lock is free;
the loop then serves them from the mapping like any others.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from arrowmq.store.append._tail_plain import ENTRY
from arrowmq.store.queues.consumequeue import ENTRY_BYTES

if TYPE_CHECKING:
    from arrowmq.store.message_store import MessageStore

AHEAD_BYTES = 64 * 1024  # of entries that are read at once: who reads a backlog comes for the next ones soon


class ColdReader:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._thread: ThreadPoolExecutor | None = None
        self.count = 0  # reads that went through the thread

    async def warm(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int) -> None:
        """Bring the queue entries and records of a read into memory."""
        self.count += 1
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="arrowmq-store-cold-read")
        await asyncio.get_running_loop().run_in_executor(
            self._thread, self.read, topic, queue_id, offset, max_count, max_bytes
        )

    def read(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int) -> None:
        """What `warm` does in its thread. Maps nothing: the maps belong to the loop."""
        queue = self._store.consume_queues.find(topic, queue_id)
        if queue is None:
            return
        file = queue.file_at(offset * ENTRY_BYTES)
        if file is None or offset < 0:
            return
        disk = self._store.disk
        try:
            wanted = max_count * ENTRY_BYTES
            entries = disk.read(file.path, offset * ENTRY_BYTES - file.start, max(wanted, AHEAD_BYTES))[:wanted]
            read = 0
            for physical, size, _ in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_BYTES * ENTRY_BYTES]):
                log_segment = self._store.commit_log.segment_at(physical)
                if log_segment is None or not 0 < size <= log_segment.size:
                    continue
                disk.read(log_segment.path, physical - log_segment.start, size)
                read += size
                if read >= max_bytes:
                    return
        except FileNotFoundError:
            return  # retention was faster; the read itself will say so

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

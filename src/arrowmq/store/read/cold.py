"""Reads that would wait for the disk: found out without touching the pages, and waited for in a thread of their own.

The thread reads the bytes with plain reads, which brings them into the page cache while the interpreter lock is free;
the loop then serves them from the mapping like any others.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from arrowmq.store.append._tail_plain import ENTRY
from arrowmq.store.queues.consumequeue import ENTRY_BYTES

if TYPE_CHECKING:
    from arrowmq.store.message_store import MessageStore

_PAGE = mmap.PAGESIZE
HOT_ENTRIES = 200  # of a queue, a page
AHEAD_BYTES = 64 * 1024  # of entries that are read at once: who reads a backlog comes for the next ones soon
HOT_BYTES = 64 << 20  # what was appended last is in the page cache; asking for it would only cost time
_libc = ctypes.CDLL(None, use_errno=True)


def is_resident(view: memoryview, position: int, size: int) -> bool:
    """Whether all pages of a part of a mapped file are in memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(view, position))
    start = address // _PAGE * _PAGE
    length = address + size - start
    pages = -(-length // _PAGE)
    states = (ctypes.c_ubyte * pages)()
    if _libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), states) != 0:
        return True  # not known: then the read must do
    return all(state & 1 for state in states)


class ColdReader:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._thread: ThreadPoolExecutor | None = None
        self.count = 0  # reads that went through the thread

    def is_cold(self, physical_offset: int, size: int) -> bool:
        log = self._store.commit_log
        if physical_offset + HOT_BYTES >= log.appended:
            return False
        segment = log.segment_at(physical_offset)
        if segment is None or size <= 0:
            return False
        position = physical_offset - segment.start
        return not is_resident(segment.view, position, min(size, segment.size - position))

    def has_cold_entry(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the entry of a message would have to be read from disk; those written last are in memory."""
        queue = self._store.consume_queues.find(topic, queue_id)
        if queue is None or not 0 <= offset < queue.tail.next_offset - HOT_ENTRIES:
            return False
        segment = queue.segment_at(offset * ENTRY_BYTES)
        if segment is None:
            return False
        return not is_resident(segment.view, offset * ENTRY_BYTES - segment.start, ENTRY_BYTES)

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

"""Goal: forcing to disk happens in its own thread, many waiters share it, and readers see no more than was promised."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

from writing import SMALL, is_flushed, message, opened

from arrowmq.store import GetStatus, MessageStore
from arrowmq.store.disk import Disk

SYNC = replace(SMALL, flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20)


class CountingDisk(Disk):
    """Counts the forces of the log, lets a test hold them back, and can refuse them."""

    def __init__(self) -> None:
        self.forced = 0
        self.may_force = threading.Event()
        self.may_force.set()
        self.refuses = False
        self.threads: set[str] = set()

    def force(self, path: Path) -> None:
        if path.parent.name == "commitlog":
            self.may_force.wait()
            if self.refuses:
                raise OSError(5, "Input/output error")
            self.forced += 1
            self.threads.add(threading.current_thread().name)
        super().force(path)


async def test_many_waiters_share_one_force(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = opened(tmp_path, SYNC, disk=disk)
    store.start(asyncio.get_running_loop())
    disk.may_force.clear()
    first = store.put(message(b"first"))
    waiting = [asyncio.ensure_future(is_flushed(store, first.end))]
    before = disk.forced
    puts = [store.put(message(b"%d" % number)) for number in range(100)]
    waiting += [asyncio.ensure_future(is_flushed(store, put.end)) for put in puts]
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiting)
    disk.may_force.set()
    assert all(await asyncio.gather(*waiting))
    assert disk.forced - before <= 3
    assert store.flushed_position >= puts[-1].end
    store.close()
    assert "arrowmq-store-flush" in disk.threads


async def test_under_sync_flush_readers_and_listeners_wait_for_the_disk(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = opened(tmp_path, SYNC, disk=disk)
    store.start(asyncio.get_running_loop())
    heard: list[int] = []
    store.add_listener(lambda topic, queue, next_offset, *rest: heard.append(next_offset))
    store.queue("orders", 0).watched = True
    disk.may_force.clear()
    put = store.put(message(b"unforced", keys="k"))
    assert 0 == store.max_offset("orders", 0)
    assert GetStatus.NO_MESSAGE_IN_QUEUE is store.get("orders", 0, 0, 32).status
    assert [] == store.query("orders", "k", 9, 0, 1 << 62)
    assert [] == heard
    disk.may_force.set()
    assert await is_flushed(store, put.end)
    assert 1 == store.get("orders", 0, 0, 32).count
    assert 1 == len(store.query("orders", "k", 9, 0, 1 << 62))
    assert [1] == heard
    store.close()


async def test_a_disk_that_refuses_is_a_timeout_for_the_sender_and_stops_puts(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = opened(tmp_path, replace(SYNC, sync_flush_timeout=200), disk=disk)
    store.start(asyncio.get_running_loop())
    disk.refuses = True
    put = store.put(message())
    assert not await is_flushed(store, put.end)
    assert "forcing to disk failed" in (store.why_not_writable() or "")
    disk.refuses = False
    while store.why_not_writable():
        await is_flushed(store, put.end)
    assert await is_flushed(store, put.end)
    store.close()


async def test_async_flush_shows_messages_at_once_and_forces_them_at_closing(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = opened(tmp_path, SMALL, disk=disk)
    store.start(asyncio.get_running_loop())
    put = store.put(message())
    assert 1 == store.get("orders", 0, 0, 32).count
    store.close()
    assert store.flushed_position == put.end
    assert store.checkpoint.physic_msg_timestamp == store.checkpoint.logics_msg_timestamp == put.store_timestamp


def test_the_checkpoint_keeps_what_is_apaches(tmp_path: Path) -> None:
    """5.5 has a field at 40: with ours there, its broker did not index again what a killed one of ours had left."""
    store = opened(tmp_path)
    store.put(message())
    store.close()
    path = tmp_path / "checkpoint"
    assert bytes(484 - 40) == path.read_bytes()[40:484]
    path.write_bytes(path.read_bytes()[:40] + bytes(range(1, 9)) + path.read_bytes()[48:])
    store = opened(tmp_path)
    store.put(message())
    store.close()
    assert bytes(range(1, 9)) == path.read_bytes()[40:48]


def wait_for_spare(store: MessageStore) -> None:
    while store.commit_log.spare is None:
        os.sched_yield()


async def test_the_next_segment_is_prepared_ahead_and_removed_at_a_clean_stop(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.start(asyncio.get_running_loop())
    for _ in range(20):
        store.put(message(b"x" * 1000))
    await asyncio.to_thread(wait_for_spare, store)
    assert 3 == len(list((tmp_path / "commitlog").iterdir()))
    spare = store.commit_log.spare
    for _ in range(15):
        store.put(message(b"x" * 1000))
    assert spare in store.commit_log.segments
    store.close()
    assert len(store.commit_log.segments) == len(list((tmp_path / "commitlog").iterdir()))
    blocks = (tmp_path / "commitlog" / "00000000000000000000").stat().st_blocks
    assert blocks * 512 >= 16_384


async def test_cold_reads_give_the_same_messages(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(30):
        store.put(message(b"%d" % number * 100))
    got = await store.get_cold("orders", 0, 3, 10)
    assert store.get("orders", 0, 3, 10).body() == got.body()
    assert not store.is_cold(0, 100)
    assert GetStatus.NO_MESSAGE_IN_QUEUE is (await store.get_cold("nothing", 0, 0, 10)).status
    store.close()

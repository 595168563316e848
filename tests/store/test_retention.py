"""Goal: old files go by age, hour, disk use and bytes, queues and index follow, and offsets stay what they were."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, bodies, numbered, opened

from arrowmq.clock import VirtualClock
from arrowmq.store import GetStatus, MessageStore, PutStatus
from arrowmq.store.disk import Disk, DiskUsage
from arrowmq.store.retention import DiskVerdict, count_deletable, is_delete_hour, judge_disk
from waiting import until

HOUR_MS = 3_600_000
NOON_MS = 1_757_419_200_000


def used(percent: int) -> DiskUsage:
    return DiskUsage(percent * 1000, (100 - percent) * 1000)


@pytest.mark.parametrize(
    ("percent", "verdict"),
    [
        (75, DiskVerdict(False, False, False)),
        (76, DiskVerdict(False, True, False)),
        (85, DiskVerdict(False, True, False)),
        (86, DiskVerdict(None, True, True)),
        (90, DiskVerdict(None, True, True)),
        (91, DiskVerdict(True, True, True)),
    ],
)
def test_each_ratio_of_disk_use_adds_to_the_verdict(percent: int, verdict: DiskVerdict) -> None:
    assert verdict == judge_disk(SMALL, used(percent))


def test_use_is_rounded_up_and_ratios_are_kept_in_their_bounds() -> None:
    assert 76 == DiskUsage(75_001, 24_999).percent
    assert judge_disk(replace(SMALL, disk_space_warning_level_ratio=99), used(91)).is_full
    assert not judge_disk(replace(SMALL, disk_max_used_space_ratio=1), used(10)).deletes_expired


def test_files_are_deleted_at_the_hours_that_are_set() -> None:
    assert is_delete_hour(SMALL, 4)
    assert not is_delete_hour(SMALL, 5)
    assert is_delete_hour(replace(SMALL, delete_when="01;13"), 13)


def test_expired_files_go_oldest_first_up_to_the_first_that_stays() -> None:
    ages = [NOON_MS - 80 * HOUR_MS, NOON_MS - 73 * HOUR_MS, NOON_MS - 10 * HOUR_MS, NOON_MS - 75 * HOUR_MS]
    assert 2 == count_deletable(SMALL, ages, NOON_MS, deletes_expired=True, deletes_any=False)
    assert 0 == count_deletable(SMALL, ages, NOON_MS, deletes_expired=False, deletes_any=False)
    assert 4 == count_deletable(SMALL, ages, NOON_MS, deletes_expired=True, deletes_any=True)
    assert 10 == count_deletable(SMALL, [0] * 50, NOON_MS, deletes_expired=True, deletes_any=False)


def test_an_absolute_limit_counts_the_file_in_use_too() -> None:
    config = replace(SMALL, commit_log_max_bytes=3 * 16_384)
    assert 2 == count_deletable(config, [NOON_MS] * 4, NOON_MS, deletes_expired=False, deletes_any=False)
    assert 0 == count_deletable(config, [NOON_MS] * 2, NOON_MS, deletes_expired=False, deletes_any=False)


class SizedDisk(Disk):
    percent = 20

    def usage(self, path: Path) -> DiskUsage:
        return used(self.percent)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[MessageStore, SizedDisk, VirtualClock]:
    disk = SizedDisk()
    clock = VirtualClock()
    store = opened(tmp_path, replace(SMALL, delete_when="99"), disk=disk, clock=clock)
    for number in range(200):
        store.put(numbered(number, queues=2))
    assert len(store.commit_log.segments) >= 4
    return store, disk, clock


def test_a_manual_request_deletes_what_expired_and_queues_and_index_follow(
    filled: tuple[MessageStore, SizedDisk, VirtualClock], tmp_path: Path
) -> None:
    store, _, clock = filled
    assert 0 == store.retention.run_once()
    clock.skip(73 * 3600)
    assert 0 == store.retention.run_once()
    indexes = len(store.index.files)
    store.retention.ask_now()
    held = store.get("orders", 0, 0, 8)
    body = held.body()
    kept = len(store.commit_log.segments)
    assert kept - 1 == store.retention.run_once()
    assert body == held.body()  # a reader that holds the deleted file still reads it
    held.release()
    assert 1 == len(store.commit_log.segments)
    smallest = store.min_offset("orders", 0)
    assert 0 < smallest < 100 == store.max_offset("orders", 0)
    got = store.get("orders", 0, 0, 32)
    assert (GetStatus.OFFSET_TOO_SMALL, smallest) == (got.status, got.next_offset)
    assert store.get("orders", 0, smallest, 1).status is GetStatus.FOUND
    assert len(store.index.files) < indexes
    assert [] == store.query("orders", "k0", 9, 0, 1 << 62)
    assert smallest == store.offset_by_time("orders", 0, 0)
    store.close()
    store = opened(tmp_path)
    assert (smallest, 100) == (store.min_offset("orders", 0), store.max_offset("orders", 0))
    store.close()


def test_a_filling_disk_first_deletes_then_refuses_and_recovers(
    filled: tuple[MessageStore, SizedDisk, VirtualClock],
) -> None:
    store, disk, _ = filled
    disk.percent = 95
    assert store.retention.run_once() > 0
    put = store.put(numbered(1))
    assert PutStatus.SERVICE_NOT_AVAILABLE is put.status
    assert "95 % full" in (put.reason or "")
    disk.percent = 88
    store.retention.run_once()
    assert not store.put(numbered(1)).is_ok
    disk.percent = 80
    store.retention.run_once()
    assert store.put(numbered(1)).is_ok
    store.close()


def test_a_queue_whose_messages_all_expired_keeps_its_count(tmp_path: Path) -> None:
    store = opened(tmp_path, replace(SMALL, commit_log_max_bytes=2 * 16_384))
    for number in range(10):
        store.put(numbered(number, topic="old", queues=1))
    for number in range(200):
        store.put(numbered(number, queues=1))
    while store.retention.run_once():
        pass
    assert (10, 10) == (store.min_offset("old", 0), store.max_offset("old", 0))
    store.close()
    store = opened(tmp_path)
    assert (10, 10) == (store.min_offset("old", 0), store.max_offset("old", 0))
    put = store.put(numbered(1, topic="old", queues=1))
    assert 10 == put.queue_offset
    assert 1 == len(bodies(store, "old"))
    store.close()


async def test_old_files_are_unlinked_by_a_thread_while_the_loop_only_forgets_them(tmp_path: Path) -> None:
    unlinked: list[str] = []

    class NotingDisk(SizedDisk):
        def remove(self, path: Path) -> None:
            unlinked.append(threading.current_thread().name)
            super().remove(path)

    config = replace(
        SMALL, commit_log_max_bytes=2 * 16_384, clean_resource_interval=1, delete_commit_log_files_interval=0
    )
    store = opened(tmp_path, config, disk=NotingDisk())
    for number in range(200):
        store.put(numbered(number, queues=2))
    before = len(list((tmp_path / "commitlog").iterdir()))
    assert before > 3
    store.start(asyncio.get_running_loop())
    await until(lambda: len(store.commit_log.segments) == 2 and not store.retention.is_unlinking)
    await asyncio.to_thread(store.retention.stop)
    assert {"arrowmq-store-retention"} == set(unlinked)
    store.close()
    assert 2 == len(list((tmp_path / "commitlog").iterdir()))

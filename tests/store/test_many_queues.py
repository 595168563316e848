"""More queues than the kernel lets a process map, and what a queue costs before it holds much."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from disks import FullDisk
from writing import SMALL, bodies, message, opened

from arrowmq.store import StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.store.queues.consumequeue import PAGE_BYTES
from arrowmq.store.queues.mappings import MappedQueues, allowed_mappings
from arrowmq.store.read.cold import ColdReader

QUEUES = 40


def test_queues_beyond_the_bound_give_way_and_come_back(tmp_path: Path) -> None:
    """With room for four of forty queues every message is stored, read and found again after a restart."""
    store = opened(tmp_path)
    store.consume_queues.mapped.most = 4
    order = random.Random(7)
    wanted = []
    for number in range(1000):
        body = b"%d" % number
        assert store.put(message(body, queue_id=order.randrange(QUEUES))).is_ok
        wanted.append(body)
        assert len(store.consume_queues.mapped) <= 4
    assert sorted(wanted) == sorted(bodies(store))
    assert 4 == len(store.consume_queues.mapped)
    store.close()
    assert 0 == len(store.consume_queues.mapped)
    store = opened(tmp_path)
    assert sorted(wanted) == sorted(bodies(store))
    store.close()


def test_a_batch_over_a_file_end_is_whole_while_other_queues_take_its_place(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.consume_queues.mapped.most = 1
    for number in range(30):
        batch = [message(b"%d-%d" % (number, place), queue_id=number % 3) for place in range(15)]
        assert store.put_batch(batch).is_ok
    assert 450 == len(bodies(store))
    assert [150, 150, 150] == [store.max_offset("orders", queue_id) for queue_id in range(3)]
    store.close()


def test_a_queue_that_was_emptied_by_recovery_gets_blocks_again_before_it_is_written(tmp_path: Path) -> None:
    """A cut removes files that were filled before; the same places must not be taken for filled later."""
    store = opened(tmp_path)
    ends = [store.put(message(b"%d" % number)).end for number in range(100)]
    queue = store.consume_queues.get("orders", 0)
    assert 5 == len(queue.segments)
    assert 90 == queue.truncate(ends[9])
    for number in range(10, 200):
        assert queue.restore(store.commit_log.tail, number, ends[9] + number * 100, 100, 0)
    assert all(os.stat(segment.path).st_blocks for segment in queue.segments)
    assert 200 == queue.tail.next_offset
    store.close()


def test_a_new_queue_takes_one_page_of_the_disk(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=50, max_index_num=100)
    store = opened(tmp_path, config)
    assert store.put(message()).is_ok
    store.close()
    state = os.stat(tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}")
    assert 6_000_000 == state.st_size
    assert state.st_blocks * 512 <= 2 * PAGE_BYTES


def test_a_disk_that_fills_amid_a_batch_keeps_what_was_reserved_for_it(tmp_path: Path) -> None:
    disk = FullDisk(1 << 30)
    store = opened(tmp_path, disk=disk)
    queue = store.consume_queues.get("orders", 0)
    queue.reserve(30)
    disk.room = 0
    assert store.put_batch([message(b"x" * 20) for _ in range(30)]).is_ok is False  # the log has no room either
    queue.make_room()
    assert queue.tail.limit > 0
    disk.room = 1 << 30
    assert store.put_batch([message(b"x" * 20) for _ in range(30)]).is_ok
    assert 30 == len(bodies(store))
    store.close()


class ForceCounting(Disk):
    def __init__(self) -> None:
        self.files = self.whole = 0

    def force(self, path: Path) -> None:
        self.files += "consumequeue" in path.parts
        super().force(path)

    def force_all(self, path: Path) -> None:
        self.whole += 1
        super().force_all(path)


@pytest.mark.parametrize(("queues", "files", "whole"), [(20, 20, 0), (300, 0, 1)])
def test_many_changed_queues_are_forced_at_once(tmp_path: Path, queues: int, files: int, whole: int) -> None:
    disk = ForceCounting()
    store = opened(tmp_path, disk=disk)
    for queue_id in range(queues):
        assert store.put(message(queue_id=queue_id)).is_ok
    store.close()
    assert (files, whole) == (disk.files, disk.whole)
    again = opened(tmp_path)
    assert queues == len(bodies(again))
    again.close()


def test_the_bound_leaves_room_below_the_kernels(tmp_path: Path) -> None:
    setting = Path("/proc/sys/vm/max_map_count")
    kernel = int(setting.read_text()) if setting.exists() else 65_530
    assert 64 <= allowed_mappings() < kernel


class Counted:
    def __init__(self, mapped: MappedQueues) -> None:
        self.mapped_place = -1
        self._mapped = mapped

    def unmap(self) -> None:
        self._mapped.remove(self)


@pytest.mark.parametrize("seed", range(5))
def test_places_stay_right_whatever_comes_and_goes(seed: int) -> None:
    mapped, chance = MappedQueues(8), random.Random(seed)
    queues = [Counted(mapped) for _ in range(20)]
    for _ in range(2000):
        queue = chance.choice(queues)
        (mapped.add if chance.random() < 0.7 else mapped.remove)(queue)
        held = [each for each in queues if each.mapped_place >= 0]
        assert len(held) == len(mapped) <= 8
        assert sorted(each.mapped_place for each in held) == list(range(len(held)))


def test_an_entry_that_is_not_in_memory_is_found_out_without_touching_it(tmp_path: Path) -> None:
    store = opened(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=50, max_index_num=2000))
    for number in range(500):
        assert store.put(message(b"%d" % number)).is_ok
    got = store.get_if_hot("orders", 0, 0, 8)
    assert got is not None
    assert 8 == got.count
    asked = set()

    def is_resident(view: memoryview, position: int, size: int) -> bool:
        asked.add(position)
        return False

    store.records.residency = is_resident
    assert store.get_if_hot("orders", 0, 7, 8) is None
    assert {140} == asked
    for topic, offset in (("orders", 500), ("orders", -1), ("nothing", 0)):
        outside = store.get_if_hot(topic, 0, offset, 8)
        assert outside is not None
        assert 0 == outside.count
    assert {140} == asked
    store.close()


def test_a_cold_reader_in_its_thread_does_not_change_what_is_mapped(tmp_path: Path) -> None:
    store = opened(tmp_path, SMALL)
    for number in range(50):
        store.put(message(b"%d" % number))
    for queue in store.consume_queues:
        queue.unmap()
    reading = threading.Thread(target=ColdReader(store).read, args=("orders", 0, 0, 32, 1 << 20))
    reading.start()
    reading.join()
    assert 0 == len(store.consume_queues.mapped)
    assert 50 == len(bodies(store))
    store.close()

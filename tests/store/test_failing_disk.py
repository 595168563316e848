"""Goal: an operation that the disk refused is done again later, and nobody believes meanwhile that it was done."""

from __future__ import annotations

import errno
import mmap
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, message, numbered, opened

from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.disk import Disk


class FailingDisk(Disk):
    """Refuses what is named in `failing`, and notes what it did."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.done: list[tuple[str, Path]] = []

    def _do(self, what: str, path: Path) -> None:
        if what in self.failing:
            raise OSError(errno.EIO, "Input/output error", str(path))
        self.done.append((what, path))

    def force(self, path: Path) -> None:
        self._do("force", path)

    def force_folder(self, path: Path) -> None:
        self._do("force_folder", path)

    def remove(self, path: Path) -> None:
        self._do("remove", path)
        super().remove(path)

    def map(self, path: Path, size: int, *, writable: bool = True, scattered: bool = False) -> mmap.mmap:
        self._do("map", path)
        return super().map(path, size, writable=writable, scattered=scattered)

    def write(self, path: Path, data: bytes) -> None:
        if "write" in self.failing:
            path.write_bytes(data[: len(data) // 2])
        self._do("write", path)
        super().write(path, data)


def test_queues_that_could_not_be_forced_are_forced_with_the_next(tmp_path: Path) -> None:
    """They were forgotten, and the checkpoint then said that they were on disk: after a power loss recovery began
    behind them, and acknowledged messages had no entry."""
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk)
    for queue_id in range(3):
        assert store.put(message(b"x", "orders", queue_id)).is_ok
    disk.failing = {"force"}
    with pytest.raises(OSError, match="Input/output"):
        store.force_queues()
    disk.failing = {"force_folder"}
    with pytest.raises(OSError, match="Input/output"):
        store.force_queues()
    assert 0 == store.checkpoint.logics_msg_timestamp
    disk.failing = set()
    disk.done.clear()
    store.force_queues()
    folders = {path.parent for what, path in disk.done if what == "force"}
    assert {tmp_path / "consumequeue" / "orders" / str(queue_id) for queue_id in range(3)} == folders
    assert folders <= {path for what, path in disk.done if what == "force_folder"}
    assert store.checkpoint.logics_msg_timestamp > 0
    store.close()


def test_a_config_file_survives_writes_that_fail_half_way(tmp_path: Path) -> None:
    """A second try put the half of the first in the place of the backup."""
    disk = FailingDisk()
    file = JsonConfigFile(tmp_path / "config" / "topics.json", disk)
    file.persist({"version": 1})
    disk.failing = {"write"}
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            file.persist({"version": 2})
        assert {"version": 1} == JsonConfigFile(file.path).load()
    disk.failing = set()
    file.persist({"version": 3})
    assert {"version": 3} == JsonConfigFile(file.path).load()
    file.path.unlink()
    assert {"version": 1} == JsonConfigFile(file.path).load()


def test_a_folder_whose_name_could_not_be_forced_is_made_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.failing = {"force_folder"}
    with pytest.raises(OSError, match="Input/output"):
        disk.make_lasting_folder(tmp_path / "config" / "more")
    disk.failing = set()
    disk.make_lasting_folder(tmp_path / "config" / "more")
    assert {tmp_path, tmp_path / "config"} <= {path for what, path in disk.done if what == "force_folder"}


def test_retention_takes_no_file_of_the_log_before_the_queues_are_on_disk(tmp_path: Path) -> None:
    """Of a queue whose messages all expired, only its entries say how many there were: a power loss took them, and
    offsets were given a second time."""
    disk = FailingDisk()
    store = opened(tmp_path, replace(SMALL, commit_log_max_bytes=2 * 16_384), disk=disk)
    for number in range(200):
        store.put(numbered(number, queues=2))
    disk.done.clear()
    assert store.retention.run_once() > 0
    removed = [at for at, (what, path) in enumerate(disk.done) if what == "remove" and path.parent.name == "commitlog"]
    forced = [at for at, (what, path) in enumerate(disk.done) if what == "force" and "consumequeue" in path.parts]
    assert forced
    assert max(forced) < min(removed)
    store.close()


def test_a_file_of_the_log_that_could_not_be_mapped_is_taken_with_the_next_message(tmp_path: Path) -> None:
    """It was in the log's list already, and came there a second time: retention, which took the first of the two, took
    the file with all its messages."""
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk)
    for number in range(100):
        disk.failing = {"map"}
        if not store.commit_log.tail.size or store.commit_log.tail.position + 1000 > store.commit_log.tail.size:
            with pytest.raises(OSError, match="Input/output"):
                store.put(message(bytes(1000)))
        disk.failing = set()
        assert store.put(message(bytes(1000), keys=f"k{number}")).is_ok
    starts = [segment.start for segment in store.commit_log.segments]
    assert [number * SMALL.mapped_file_size_commit_log for number in range(len(starts))] == starts
    assert 100 == store.max_offset("orders", 0)
    store.close()
    store = opened(tmp_path)
    assert 100 == store.max_offset("orders", 0)
    assert all(store.query("orders", f"k{number}", 4, 0, 1 << 62) for number in range(100))
    store.close()


@pytest.mark.parametrize("keys", [False, True], ids=["without keys", "with keys"])
def test_a_batch_whose_files_cannot_all_be_mapped_is_not_there_at_all(tmp_path: Path, keys: bool) -> None:
    """The next file of its queue, or of the index, was mapped amid the batch: its first messages were there."""
    disk = FailingDisk()
    config = replace(SMALL, message_index_enable=keys)
    store = opened(tmp_path, config, disk=disk)
    refused = taken = 0
    while refused < 3:
        batch = [message(b"x", keys=f"k{taken + number}" if keys else None) for number in range(15)]
        disk.failing = {"map"}
        try:
            assert store.put_batch(batch).is_ok
            taken += len(batch)
        except OSError:
            refused += 1
            disk.failing = set()
            assert taken == store.max_offset("orders", 0)
            assert store.put_batch(batch).is_ok
            taken += len(batch)
        assert taken == store.max_offset("orders", 0)
    store.close()
    store = opened(tmp_path, config)
    assert taken == store.max_offset("orders", 0)
    assert not keys or all(store.query("orders", f"k{number}", 4, 0, 1 << 62) for number in range(taken))
    store.close()

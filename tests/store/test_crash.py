"""Goal: acknowledged means kept. A writer is killed with -9 amid its work, and nothing it was told is lost."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from writing import SMALL, abandon, bodies, message, numbered, opened

from arrowmq.store.config import SYNC_FLUSH
from arrowmq.store.disk import Disk
from arrowmq.store.log.commitlog import CommitLog

WRITER = """
import asyncio, sys
from pathlib import Path
from writing import SMALL, is_flushed, numbered, opened
from dataclasses import replace

async def main():
    store = opened(Path(sys.argv[1]), replace(SMALL, flush_disk_type=sys.argv[2]))
    store.start(asyncio.get_running_loop())
    first = int(sys.argv[3])
    for number in range(first, first + 100_000):
        if number % 5 == 0:
            put = store.put_batch([numbered(number, queues=1)])
        else:
            put = store.put(numbered(number, queues=1))
        assert put.is_ok, put
        if sys.argv[2] == "SYNC_FLUSH":
            assert await is_flushed(store, put.end)
        print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(folder: Path, flush: str, first: int, count: int) -> int:
    """Start a writer, kill it after it acknowledged so many, and answer the last number it acknowledged."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), flush, str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert writer.stdout is not None
    try:
        for _ in range(count):
            assert writer.stdout.readline()
    finally:
        writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.wait()
    writer.stdout.close()
    return int(rest[-1]) if rest else first + count - 1


def test_an_index_file_whose_creation_was_interrupted_is_no_damage(tmp_path: Path) -> None:
    """A process killed between creating an index file and giving it its size left a store that could not be opened."""
    store = opened(tmp_path)
    for number in range(20):
        assert store.put(numbered(number)).is_ok
    store.close()
    empty = tmp_path / "index" / "20991231235959999"
    empty.touch()
    (tmp_path / "abort").write_text("1")
    store = opened(tmp_path)
    assert not empty.exists()
    assert 20 == len(bodies(store))
    assert store.query("orders", "k7", 32, 0, 1 << 62)
    store.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_writer_loses_nothing_it_was_told(tmp_path: Path, flush: str) -> None:
    first = 0
    for count in (1, 40, 150):
        last = write_until_killed(tmp_path, flush, first, count)
        assert (tmp_path / "abort").exists()
        store = opened(tmp_path, replace(SMALL, flush_disk_type=flush))
        found = bodies(store)
        numbers = [int(body.split(b":")[0]) for body in found]
        assert list(range(len(numbers))) == numbers
        assert numbers[-1] >= last
        assert found == [numbered(number).body for number in numbers]
        for number in (0, last):
            assert 1 == len(store.query("orders", f"k{number}", 32, 0, 1 << 62))
        first = len(numbers)
        store.close()


def test_a_crash_right_after_opening_and_right_after_rolling_is_recovered(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(60):
        store.put(numbered(number))
    store.commit_log.roll()
    abandon(store)
    for _ in range(2):
        store = opened(tmp_path)
        assert 60 == len(bodies(store))
        abandon(store)
    store = opened(tmp_path)
    put = store.put(numbered(60))
    assert put.is_ok
    assert 61 == len(bodies(store))
    assert SYNC_FLUSH != store.config.flush_disk_type
    store.close()


class LateAllocator(Disk):
    """The allocation thread gets to its work while the log, which could not wait for it, maps a file of its own."""

    def __init__(self) -> None:
        self.log: CommitLog | None = None

    def map(self, path: Path, size: int, *, writable: bool = True, scattered: bool = False) -> mmap.mmap:
        mapping = super().map(path, size, writable=writable, scattered=scattered)
        if self.log is not None and path.parent.name == "commitlog":
            late = threading.Thread(target=self.log.create_spare, args=(int(path.name),))
            late.start()
            late.join(timeout=0.1)  # it may have to wait until the log has taken its file
        return mapping


def test_a_file_that_is_in_use_is_not_prepared_once_more(tmp_path: Path) -> None:
    """The file was deleted and made anew under the writer's mapping: what it was told was kept, was nowhere."""
    disk = LateAllocator()
    store = opened(tmp_path, disk=disk)
    store.put(numbered(0))
    disk.log = store.commit_log
    for number in range(1, 120):
        assert store.put(numbered(number)).is_ok
    assert len(store.commit_log.segments) >= 3
    abandon(store)
    store = opened(tmp_path)
    assert 120 == len(bodies(store))
    store.close()


def test_a_cut_record_cannot_come_back_when_the_log_grows_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After losses of power: records behind a damaged one are cut with it. New ones of the same lengths end on their
    old borders: if the old bytes were still there, the next recovery would take them for messages."""
    monkeypatch.setattr("arrowmq.store.disk.Disk.boot", lambda disk: 0)
    store = opened(tmp_path)
    puts = [store.put(numbered(10)) for _ in range(5)]
    abandon(store)
    path = tmp_path / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[puts[1].physical_offset + 90] ^= 1  # in the body of the second
    path.write_bytes(data)
    store = opened(tmp_path)
    assert puts[1].physical_offset == store.appended
    new = store.put(numbered(10))
    assert puts[1].physical_offset == new.physical_offset
    abandon(store)
    store = opened(tmp_path)
    assert new.end == store.appended
    assert 2 == len(bodies(store))
    store.close()


def test_a_full_last_file_stays_full(tmp_path: Path) -> None:
    """A power loss took the file behind a full one. The next clean start let the log end where the full file's blank
    begins, and wrote over it; a second loss of power brought the blank back: what was written there was gone, and what
    came behind it was there. And slaves had the blank."""
    store = opened(tmp_path)
    while len(store.commit_log.segments) < 2:
        assert store.put(message(bytes(3000))).is_ok
    full = store.commit_log.segments[0].end
    behind = store.commit_log.segments[1].path
    store.close()
    behind.unlink()
    for _ in range(2):
        store = opened(tmp_path)
        assert full == store.appended
        store.close()
    store = opened(tmp_path)
    assert full == store.put(message(b"next")).physical_offset
    assert b"next" == bodies(store)[-1]
    store.close()

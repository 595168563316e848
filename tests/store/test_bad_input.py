"""Goal: a directory or disk that is not as it should be gets a clear error, and nothing in it is changed."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import FullDisk
from writing import SMALL, bodies, message, numbered, opened

from arrowmq.store import MessageStore, PutStatus, StoreDamaged, StoreLocked, StoreUnwritable
from arrowmq.store.disk import Disk

SEGMENT = "00000000000000000000"


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture
def closed_store(tmp_path: Path) -> Path:
    store = opened(tmp_path / "store")
    for number in range(50):
        store.put(numbered(number))
    store.close()
    return tmp_path / "store"


def test_a_foreign_file_in_the_log_is_named_and_nothing_changes(closed_store: Path) -> None:
    (closed_store / "commitlog" / "notes.txt").write_text("mine")
    before = fingerprint(closed_store)
    with pytest.raises(StoreDamaged, match=r"notes\.txt does not belong"):
        MessageStore(closed_store, SMALL).open()
    assert before == fingerprint(closed_store)
    (closed_store / "commitlog" / "notes.txt").unlink()
    store = opened(closed_store)
    assert 50 == len(bodies(store))
    store.close()


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/orders/0"])
@pytest.mark.parametrize("size", [1, 399, 16_385])
def test_a_file_of_the_wrong_size_is_named_and_nothing_changes(closed_store: Path, folder: str, size: int) -> None:
    with open(closed_store / folder / SEGMENT, "r+b") as file:
        file.truncate(size)
    before = fingerprint(closed_store)
    with pytest.raises(StoreDamaged, match=f"has {size} bytes"):
        MessageStore(closed_store, SMALL).open()
    assert before == fingerprint(closed_store)


def test_a_missing_file_in_the_middle_is_named_and_nothing_changes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(150):
        store.put(numbered(number))
    store.close()
    (tmp_path / "commitlog" / f"{16_384:020d}").unlink()
    before = fingerprint(tmp_path)
    with pytest.raises(StoreDamaged, match="are missing"):
        MessageStore(tmp_path, SMALL).open()
    assert before == fingerprint(tmp_path)


def test_a_last_file_without_bytes_is_an_interrupted_creation_and_goes(closed_store: Path) -> None:
    last = sorted((closed_store / "commitlog").iterdir())[-1]
    empty = closed_store / "commitlog" / f"{int(last.name) + 16_384:020d}"
    empty.touch()
    store = opened(closed_store)
    assert not empty.exists()
    assert 50 == len(bodies(store))
    store.close()


def test_a_second_store_on_the_directory_is_refused_in_this_and_in_another_process(closed_store: Path) -> None:
    store = opened(closed_store)
    with pytest.raises(StoreLocked, match="already open in this process"):
        MessageStore(closed_store, SMALL).open()
    code = f"""
import sys
from pathlib import Path
from writing import SMALL
from arrowmq.store import MessageStore, StoreLocked
try:
    MessageStore(Path({str(closed_store)!r}), SMALL).open()
except StoreLocked as refusal:
    print(refusal)
"""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert "another broker process works on" in other.stdout
    assert store.put(message()).is_ok
    store.close()
    opened(closed_store).close()


class ReadOnlyDisk(Disk):
    """What the kernel says of a file system mounted read-only; for users who may not mount one."""

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():
            raise self.explain(OSError(errno.EROFS, os.strerror(errno.EROFS)), path)


@pytest.fixture
def small_mount(tmp_path: Path) -> Iterator[Path | None]:
    """A tmpfs of 1 MiB where this user may mount one."""
    folder = tmp_path / "mount"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_directory_is_refused_and_nothing_changes(small_mount: Path | None, tmp_path: Path) -> None:
    root = small_mount or tmp_path / "plain"
    store = opened(root / "store")
    for number in range(20):
        store.put(numbered(number))
    store.close()
    before = fingerprint(root)
    if small_mount is not None:
        subprocess.run(["mount", "-o", "remount,ro", str(small_mount)], check=True)
    else:
        for folder in (root / "store", *(root / "store").rglob("*")):
            folder.chmod(0o555 if folder.is_dir() else 0o444)
    with pytest.raises(StoreUnwritable, match="cannot be written"):
        MessageStore(root / "store", SMALL).open()
    with pytest.raises(StoreUnwritable, match="cannot be written"):
        MessageStore(root / "new", SMALL, disk=None if small_mount else ReadOnlyDisk()).open()
    assert before == fingerprint(root)


def fill(store: MessageStore, count: int) -> tuple[int, str]:
    """Put until refused; how many went in and the reason."""
    for number in range(count):
        put = store.put(numbered(number))
        if not put.is_ok:
            assert PutStatus.SERVICE_NOT_AVAILABLE is put.status
            return number, put.reason or ""
    raise AssertionError("the disk never filled")


@pytest.mark.parametrize("room", range(20_000, 120_000, 4111))
def test_a_full_disk_refuses_messages_and_the_store_goes_on_when_there_is_room(tmp_path: Path, room: int) -> None:
    """Whichever file the disk is full for: nothing is half written, and nothing that was acknowledged is lost."""
    disk = FullDisk(room)
    store = opened(tmp_path, disk=disk)
    stored, reason = fill(store, 10_000)
    assert "no room on the disk" in reason
    assert not store.is_writable
    assert PutStatus.SERVICE_NOT_AVAILABLE is store.put_batch([numbered(number * 3) for number in range(40)]).status
    assert stored == len(bodies(store))
    disk.room = 1 << 30
    assert store.put(numbered(stored)).is_ok
    assert store.is_writable
    for number in range(stored + 1, stored + 50):
        assert store.put(numbered(number)).is_ok
    store.close()
    store = opened(tmp_path)
    wanted = sorted(numbered(number).body for number in range(stored + 50))
    assert wanted == sorted(bodies(store))
    store.close()


def test_a_really_full_file_system_ends_no_process(small_mount: Path | None, tmp_path: Path) -> None:
    if small_mount is None:  # without the right to mount: the limit on file sizes is what the kernel refuses by
        store = opened(tmp_path, disk=FullDisk(200_000))
    else:
        store = opened(small_mount / "store")
        (small_mount / "ballast").write_bytes(bytes(600_000))
    stored, reason = fill(store, 100_000)
    assert "no room on the disk" in reason
    assert stored == len(bodies(store))
    if small_mount is not None:
        (small_mount / "ballast").unlink()
    else:
        store.disk.room = 1 << 30  # type: ignore[attr-defined]
    assert store.put(numbered(stored)).is_ok
    assert stored + 1 == len(bodies(store))
    store.close()


def test_a_store_with_batch_queues_is_refused_and_nothing_changes(closed_store: Path) -> None:
    """Apache refuses to load a topic that has both kinds of queues: writing plain ones beside them would break it."""
    (closed_store / "batchconsumequeue" / "inner" / "0").mkdir(parents=True)
    (closed_store / "batchconsumequeue" / "inner" / "0" / SEGMENT).write_bytes(bytes(46))
    before = fingerprint(closed_store)
    with pytest.raises(StoreDamaged, match=r"BatchCQ \(inner\)"):
        MessageStore(closed_store, SMALL).open()
    assert before == fingerprint(closed_store)

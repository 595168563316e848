"""A disk that loses power: it keeps what was forced, and of the rest what chance leaves.

The store works on real files, natively mapped ones too. Beside them this disk knows what a power loss could not take:

  content   the bytes of a file at the beginning of its last force
  names     what a folder held when it was forced

`cut(target)` writes a folder as it could be found after the power came back. Every page that differs from the forced
one is there as it was forced, as it is now, or torn at its sectors; of the changes of a folder since it was forced, the
first so many have happened; a file may have its old length. Nothing is assumed of the order in which pages or folders
reach the disk. A cut does not disturb the run: many can be taken of one moment.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from arrowmq.store.disk import Disk

PAGE_BYTES = 4096
SECTOR_BYTES = 512


@dataclass(eq=False)
class Inode:
    """A file, whatever its name: where it lies now, and the content that was forced."""

    path: Path | None
    forced: bytes = b""
    last: bytes = b""  # its content when its name was taken away

    def live(self) -> bytes:
        return self.last if self.path is None else self.path.read_bytes()


Change = tuple[str, Inode | None, bool]
"""A name, what it stands for, and whether it is there afterwards."""


@dataclass
class Folder:
    forced: dict[str, Inode | None] = field(default_factory=dict)  # None: a folder
    changes: list[list[Change]] = field(default_factory=list)  # each happens whole or not at all

    def after(self, count: int) -> dict[str, Inode | None]:
        names = dict(self.forced)
        for change in self.changes[:count]:
            for name, what, is_there in change:
                if is_there:
                    names[name] = what
                else:
                    names.pop(name, None)
        return names


class UnforcedDisk(Disk):
    """For looking at what a cut left: nothing of it has to last."""

    def force(self, path: Path) -> None:
        pass

    def force_all(self, path: Path) -> None:
        pass

    def force_folder(self, path: Path) -> None:
        pass

    def boot(self) -> int:
        return 0


class PowerCutDisk(Disk):
    """`root` must exist and be empty, or hold what an earlier cut left, which counts as forced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations = 0
        self.before_operation: Callable[[str], None] | None = None
        self.failing: dict[str, int] = {}  # operation → errno
        self.short_writes = False  # a write that fails has written a part of its bytes
        self._inodes: dict[Path, Inode] = {}
        self._folders: dict[Path, Folder] = {}
        for folder, folders, files in os.walk(root):
            names: dict[str, Inode | None] = dict.fromkeys(folders)
            for name in files:
                path = Path(folder) / name
                names[name] = self._inodes[path] = Inode(path, path.read_bytes())
            self._folders[Path(folder)] = Folder(names)

    def boot(self) -> int:
        """What a cut left lies in a folder of another name."""
        return 1 + zlib.crc32(self.root.name.encode())

    # What is changed

    def _begin(self, operation: str, path: Path) -> None:
        self.operations += 1
        if self.before_operation is not None:
            self.before_operation(operation)
        if operation in self.failing:
            code = self.failing[operation]
            raise self.explain(OSError(code, os.strerror(code)), path)

    def _change(self, path: Path, what: Inode | None, is_there: bool) -> None:
        self._folders.setdefault(path.parent, Folder()).changes.append([(path.name, what, is_there)])

    def _add(self, path: Path) -> Inode:
        inode = self._inodes[path] = Inode(path)
        self._change(path, inode, True)
        return inode

    def make_folder(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        self._begin("make_folder", path)
        super().make_folder(path)
        for folder in reversed(missing):
            self._folders[folder] = Folder()
            self._change(folder, None, True)

    def remove_folder(self, path: Path) -> None:
        self._begin("remove_folder", path)
        super().remove_folder(path)
        self._change(path, None, False)

    def create(self, path: Path, size: int, allocated: int, *, written: bool = False) -> None:
        self._begin("create", path)
        super().create(path, size, allocated, written=written)
        self._add(path)

    def allocate(self, path: Path, offset: int, length: int) -> None:
        self._begin("allocate", path)
        super().allocate(path, offset, length)

    def fill(self, path: Path, offset: int, length: int) -> None:
        self._begin("fill", path)
        super().fill(path, offset, length)

    def write_into(self, path: Path, offset: int, data: memoryview) -> None:
        self._begin("write_into", path)
        super().write_into(path, offset, data)

    def _write_a_part(self, path: Path, data: bytes, offset: int = 0) -> None:
        """A write that fails on the way: the file has some of the bytes, and none of them is forced."""
        if self.short_writes and path.parent.exists():
            self._inodes.get(path) or self._add(path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.pwrite(handle, data[: len(data) // 2], offset)
            os.close(handle)

    def write(self, path: Path, data: bytes) -> None:
        if "write" in self.failing:
            self._write_a_part(path, data)
        self._begin("write", path)
        inode = self._inodes.get(path) or self._add(path)
        super().write(path, data)
        self._begin("write is done", path)
        inode.forced = data

    def overwrite(self, path: Path, data: bytes) -> None:
        if "overwrite" in self.failing:
            self._write_a_part(path, data)
        self._begin("overwrite", path)
        inode = self._inodes.get(path) or self._add(path)
        super().overwrite(path, data)
        self._begin("overwrite is done", path)
        inode.forced = data + inode.forced[len(data) :]

    def replace(self, source: Path, target: Path) -> None:
        self._begin("replace", target)
        self._forget(target)
        super().replace(source, target)
        inode = self._inodes.pop(source)
        inode.path = target
        self._inodes[target] = inode
        assert source.parent == target.parent
        self._folders[target.parent].changes.append([(source.name, inode, False), (target.name, inode, True)])

    def remove(self, path: Path) -> None:
        self._begin("remove", path)
        if path.exists():
            inode = self._forget(path)
            super().remove(path)
            self._change(path, inode, False)

    def _forget(self, path: Path) -> Inode | None:
        inode = self._inodes.pop(path, None)
        if inode is not None:
            inode.last, inode.path = path.read_bytes(), None
        return inode

    def map(self, path: Path, size: int, *, writable: bool = True, scattered: bool = False) -> mmap.mmap:
        self._begin("map", path)
        return super().map(path, size, writable=writable, scattered=scattered)

    # What is forced

    def force(self, path: Path) -> None:
        inode = self._inodes.get(path)
        before = b"" if inode is None else inode.live()
        self._begin("force", path)
        if inode is not None:
            inode.forced = before

    def force_all(self, path: Path) -> None:
        content = {inode: inode.live() for inode in self._inodes.values()}
        changes = {name: len(folder.changes) for name, folder in self._folders.items()}
        self._begin("force_all", path)
        for inode, data in content.items():
            inode.forced = data
        for name, count in changes.items():
            self._settle(name, count)

    def force_folder(self, path: Path) -> None:
        count = len(self._folders[path].changes) if path in self._folders else 0
        self._begin("force_folder", path)
        self._settle(path, count)

    def _settle(self, path: Path, count: int) -> None:
        folder = self._folders.get(path)
        if folder is not None:
            folder.forced = folder.after(count)
            del folder.changes[:count]

    # The cut

    def cut(self, target: Path, chance: random.Random) -> None:
        """Write into `target`, which must not exist, what could be found after a loss of power at this moment."""
        self._restore(self.root, target, chance)

    def _restore(self, source: Path, target: Path, chance: random.Random) -> None:
        target.mkdir()
        folder = self._folders.get(source, Folder())
        for name, inode in folder.after(chance.randint(0, len(folder.changes))).items():
            if inode is None:
                self._restore(source / name, target / name, chance)
            else:
                (target / name).write_bytes(survived(inode.forced, inode.live(), chance))


def survived(forced: bytes, live: bytes, chance: random.Random) -> bytes:
    """Of a file's pages those that were written since it was forced are old, new or torn."""
    if forced == live:
        return live
    size = len(live) if chance.random() < 0.5 else len(forced)
    forced, live = forced.ljust(size, b"\0")[:size], live.ljust(size, b"\0")[:size]
    mood = chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))  # some cuts lose nearly everything, some nearly nothing
    found = bytearray(forced)
    for start in range(0, size, PAGE_BYTES):
        page = slice(start, start + PAGE_BYTES)
        if forced[page] == live[page]:
            continue
        if chance.random() < 0.2:
            for sector in range(start, min(start + PAGE_BYTES, size), SECTOR_BYTES):
                if chance.random() < 0.5:
                    found[sector : sector + SECTOR_BYTES] = live[sector : sector + SECTOR_BYTES]
        elif chance.random() < mood:
            found[page] = live[page]
    return bytes(found)


NO_SPACE = errno.ENOSPC
IO_ERROR = errno.EIO

"""Disks that fail as real ones do."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from arrowmq.store.disk import Disk


class FullDisk(Disk):
    """A disk with so many bytes of room."""

    def __init__(self, room: int) -> None:
        self.room = room

    def _take(self, path: Path, length: int) -> None:
        if length > self.room:
            raise self.explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)
        self.room -= length

    def create(self, path: Path, size: int, allocated: int, *, written: bool = False) -> None:
        self._take(path, allocated)
        super().create(path, size, allocated, written=written)

    def allocate(self, path: Path, offset: int, length: int) -> None:
        self._take(path, length)
        super().allocate(path, offset, length)

    def fill(self, path: Path, offset: int, length: int) -> None:
        self._take(path, length)
        super().fill(path, offset, length)


class HangingDisk(Disk):
    """A disk whose fsync of the log takes as long as a test wants it to."""

    def __init__(self) -> None:
        self._may_force = threading.Event()
        self._may_force.set()

    def hang(self) -> None:
        self._may_force.clear()

    def go_on(self) -> None:
        self._may_force.set()

    def force(self, path: Path) -> None:
        if path.parent.name == "commitlog":
            self._may_force.wait()
        super().force(path)

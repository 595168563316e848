"""Files that follow one another: each is named by the offset it starts at, and all have the same size.

The commit log, the consume queues and the timer log are made of them. A folder is refused, and nothing touched, if it
holds a file that a broker would not have written there: guessing could lose messages.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreDamaged

if TYPE_CHECKING:
    from arrowmq.store.log import _pin_plain as _pin
else:
    _pin = native.load("arrowmq.store.log._pin")

Pin = _pin.Pin
NAME_DIGITS = 20
FETCH_BYTES = 2 * 1024 * 1024  # at once: of more the kernel leaves out a part


def segment_name(start: int) -> str:
    return f"{start:020d}"


class Segment:
    """One file. It is mapped at first use; what still views it keeps it mapped after it is dropped or deleted. Readers
    that stay keep a `Pin` instead, which ends with the mapping."""

    __slots__ = ("_disk", "_map", "_path", "_pin", "_view", "scattered", "size", "start", "writable")

    def __init__(
        self,
        disk: Disk,
        path: Path | str,
        start: int,
        size: int,
        *,
        writable: bool = True,
        scattered: bool = False,
    ) -> None:
        self._path = path
        self.scattered = scattered
        self.start = start
        self.size = size
        self.writable = writable
        self._disk = disk
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._pin: Pin | None = None

    @property
    def path(self) -> Path:
        if isinstance(self._path, str):  # of the many files a store is opened with, few are touched
            self._path = Path(self._path)
        return self._path

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def view(self) -> memoryview:
        view = self._view
        if view is None:
            self._map = self._disk.map(self.path, self.size, writable=self.writable, scattered=self.scattered)
            self._view = view = memoryview(self._map)
        return view

    def map_now(self) -> None:
        """Before work in the middle of which nothing may fail: the kernel may have no more mappings."""
        _ = self.view

    @property
    def is_mapped(self) -> bool:
        return self._view is not None

    @property
    def mapping(self) -> mmap.mmap:
        assert self.view is not None
        assert self._map is not None
        return self._map

    @property
    def pin(self) -> Pin:
        """The mapping for a reader that comes back: it holds until the file is unmapped or taken out of its store."""
        if self._pin is None:
            self._pin = Pin(self.view, self.start)
        return self._pin

    def unpin(self) -> None:
        if self._pin is not None:
            self._pin.drop()
            self._pin = None

    def unmap(self) -> None:
        """Forget the mapping. Views handed out keep it alive until they are released."""
        self.unpin()
        self._view = None
        self._map = None

    def allocate(self, offset: int, length: int) -> None:
        self._disk.allocate(self.path, offset, length)

    def fetch(self, length: int) -> None:
        """Have the kernel read the first bytes, which will soon be needed, without waiting for them."""
        if hasattr(mmap, "MADV_WILLNEED"):
            for begin in range(0, length, FETCH_BYTES):
                self.mapping.madvise(mmap.MADV_WILLNEED, begin, min(FETCH_BYTES, length - begin))

    @contextmanager
    def read_through(self) -> Iterator[None]:
        """Around work that goes over the file from its beginning to its end: there reading ahead is right."""
        if not self.scattered or not hasattr(mmap, "MADV_RANDOM"):
            yield
            return
        self.mapping.madvise(mmap.MADV_NORMAL)
        try:
            yield
        finally:
            self.mapping.madvise(mmap.MADV_RANDOM)

    def force(self) -> None:
        self._disk.force(self.path)

    def delete(self) -> None:
        self.unmap()
        self._disk.remove(self.path)


def list_segments(
    disk: Disk,
    folder: Path | str,
    size: int,
    *,
    writable: bool = True,
    scattered: bool = False,
    rebuildable: bool = False,
) -> list[Segment]:
    """The files of a folder in order, checked as Apache's broker checks them: names, sizes, no gaps.

    A last file without any bytes is one whose creation was interrupted: it is deleted. Of files that can be rebuilt one
    without bytes is what a power loss left of it, and those behind it were not forced either: they go together.
    """
    try:
        with os.scandir(folder) as entries:
            files = sorted((entry.name, entry.stat().st_size) for entry in entries if not entry.is_dir())
    except FileNotFoundError:
        return []
    found: list[Segment] = []
    for name, _ in files:
        path = f"{folder}/{name}"
        if not (name.isascii() and name.isdigit()):
            raise StoreDamaged(f"{path} does not belong into a store: move it elsewhere and start again")
        found.append(Segment(disk, path, int(name), size, writable=writable, scattered=scattered))
    empty = next((number for number, (_, length) in enumerate(files) if length == 0), len(files))
    if writable and (rebuildable or empty == len(files) - 1):
        while len(found) > empty:
            found.pop().delete()
    for number, segment in enumerate(found):
        actual = files[number][1]
        if actual != size:
            raise StoreDamaged(
                f"{segment.path} has {actual} bytes, but files here are configured to have {size}: set the size this "
                "store was written with, or restore the file; nothing was changed"
            )
        if number and segment.start != found[number - 1].start + size:
            raise StoreDamaged(f"files before {segment.path} are missing: restore them")
    return found

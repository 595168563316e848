"""Every touch of the file system, behind one small class, so that a test can hand in a disk that fails or tears.

Files are mapped only over blocks that really exist: writing into a hole of a mapped file on a full disk would end the
process with SIGBUS, so room is taken with `posix_fallocate` first, where a full disk is an ordinary error.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from arrowmq.store.errors import OutOfSpace, StoreLocked, StoreUnwritable
from arrowmq.store.workers import Step, ThreadWorker, Worker

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


_ZEROS = memoryview(bytes(256 * 1024))  # at once: the kernel then takes memory in large pieces, which is cheaper
_LARGEST_LONG = (1 << 63) - 1
_MAP_NORESERVE = 0x4000
_MAP_FIXED = 0x10
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)


def _map_in_place(handle: int, size: int) -> mmap.mmap:
    """A mapping that Python's own class would keep a copy of the file descriptor for: twenty thousand queues would need
    as many. So an empty one is made, which has none, and the file put in its place; it ends like any other."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    placed = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, handle, 0)
    if placed != address:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return mapping


def _write_zeros(handle: int, offset: int, length: int) -> None:
    end = offset + length
    while offset < end:
        offset += os.pwrite(handle, _ZEROS[: end - offset], offset)


def _data_ranges(handle: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        try:
            data = os.lseek(handle, start, os.SEEK_DATA)
        except OSError as problem:
            if problem.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        stop = min(os.lseek(handle, data, os.SEEK_HOLE), end)
        if data < stop:
            yield data, stop
        start = max(stop, data + 1)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Used and still usable bytes of the file system under a path."""

    used: int
    usable: int

    @property
    def percent(self) -> int:
        """As Apache counts it: rounded up, of used + usable."""
        total = self.used + self.usable
        return -(-self.used * 100 // total) if total else 0


class Disk:
    """The real one."""

    def make_folder(self, path: Path) -> None:
        """The folder, with those above it. Its name is on disk once `force_folder` was called for the one above."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def make_lasting_folder(self, path: Path) -> None:
        """The same, and a power loss cannot take away what is made here."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        self.make_folder(path)
        try:
            for folder in missing:
                self.force_folder(folder.parent)
        except OSError:
            for folder in missing:  # or the next call would find it made, and believe that it lasts
                with suppress(OSError):
                    self.remove_folder(folder)
            raise

    def remove_folder(self, path: Path) -> None:
        """An empty one."""
        path.rmdir()

    def create(self, path: Path, size: int, allocated: int, *, written: bool = False) -> None:
        """A new file of `size` bytes, all zero, whose first `allocated` bytes have blocks. All or nothing.

        `written` has the zeros written, as `fill` does."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise self.explain(problem, path) from problem
        try:
            os.ftruncate(handle, size)
            if allocated and written:
                _write_zeros(handle, 0, allocated)
            elif allocated:
                os.posix_fallocate(handle, 0, allocated)
        except OSError as problem:
            os.unlink(path)
            raise self.explain(problem, path) from problem
        finally:
            os.close(handle)

    def allocate(self, path: Path, offset: int, length: int) -> None:
        """Give blocks to a part of a file; what is written there stays."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(handle, offset, length)
            finally:
                os.close(handle)
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def fill(self, path: Path, offset: int, length: int) -> None:
        """Write zeros: the part gets blocks, as by `allocate`, and is in memory. Touching a page of a mapped file that
        is not in memory makes the kernel read ahead, with some disks megabytes, while the loop waits."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _write_zeros(handle, offset, length)
            finally:
                os.close(handle)
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def write_into(self, path: Path, offset: int, data: memoryview) -> None:
        """Bytes at their place in a file that has blocks there; not forced. Who has it mapped sees them at once."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                while data:
                    written = os.pwrite(handle, data, offset)
                    data, offset = data[written:], offset + written
            finally:
                os.close(handle)
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def map(self, path: Path, size: int, *, writable: bool = True, scattered: bool = False) -> mmap.mmap:
        """A mapping of a file. A writable one holds no file descriptor: a broker has one mapping for every queue.
        `scattered`: it is touched here and there, so a page that is not in memory is read alone."""
        try:
            handle = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
            try:
                mapping = _map_in_place(handle, size) if writable else mmap.mmap(handle, size, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)
            if scattered and hasattr(mmap, "MADV_RANDOM"):
                mapping.madvise(mmap.MADV_RANDOM)
            return mapping
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def force(self, path: Path) -> None:
        """Write every dirty page of the file to disk; the interpreter lock is free meanwhile."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # retention, or the deletion of a topic, was faster
            return
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def force_all(self, path: Path) -> None:
        """Write everything dirty of the file system that holds a folder: of thousands of files each alone would have
        the journal written once more."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(handle) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(path))
        finally:
            os.close(handle)

    def force_folder(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """A plain read, for threads that may wait for the disk: the interpreter lock is free meanwhile."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(handle, length, offset)
        finally:
            os.close(handle)

    def read_start(self, path: str, length: int) -> bytes:
        """The first bytes of a file; opening a store asks for those of every queue."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(handle, length, 0)
        finally:
            os.close(handle)

    def read_filled(self, path: str, length: int) -> bytes:
        """A file from its start up to the last byte, within `length`, that may be something else than zero."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ranges = list(_data_ranges(handle, 0, length))
            return os.pread(handle, ranges[-1][1], 0) if ranges else b""
        finally:
            os.close(handle)

    def data_ranges(self, path: Path, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of a file that may hold something else than zeros; holes and untouched blocks are left out."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return list(_data_ranges(handle, start, end))
        finally:
            os.close(handle)

    def write(self, path: Path, data: bytes) -> None:
        """A file with this content, forced to disk; its name is there once the folder is forced too."""
        try:
            with open(path, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def overwrite(self, path: Path, data: bytes) -> None:
        """The first bytes of a file that keeps its length, forced to disk; made where it is not there."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(handle, data, 0)
                os.fdatasync(handle)
            finally:
                os.close(handle)
        except OSError as problem:
            raise self.explain(problem, path) from problem

    def replace(self, source: Path, target: Path) -> None:
        """The file gets another name, in one step; which of the two is on disk is open until the folder is forced."""
        try:
            os.replace(source, target)
        except OSError as problem:
            raise self.explain(problem, target) from problem

    def write_atomically(self, path: Path, data: bytes) -> None:
        """A reader finds the old content or the new one, also after a power loss; once this returns, the new one."""
        self.make_lasting_folder(path.parent)
        temporary = path.with_name(path.name + ".tmp")
        self.write(temporary, data)
        self.replace(temporary, path)
        self.force_folder(path.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def start_worker(self, name: str, step: Step, *, first_s: float | None = 0.0) -> Worker:
        """Have a job done that waits for this disk. Its first step comes after `first_s`; None: when it is woken."""
        return ThreadWorker(name, step, first_s)

    def boot(self) -> int:
        """Which start of the machine this is: until the next, what a killed process wrote is there. 0: not known."""
        try:
            return int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""), 16) & _LARGEST_LONG
        except (OSError, ValueError):
            return 0

    def usage(self, path: Path) -> DiskUsage:
        state = os.statvfs(path)
        return DiskUsage((state.f_blocks - state.f_bfree) * state.f_frsize, state.f_bavail * state.f_frsize)

    def explain(self, problem: OSError, path: Path) -> Exception:
        if problem.errno in _FULL:
            return OutOfSpace(f"no room on the disk for {path}: {problem.strerror}; free space or shorten retention")
        if problem.errno in _FORBIDDEN:
            return StoreUnwritable(f"{path} cannot be written: {problem.strerror}; check its owner, mode and mount")
        return problem


class StoreLock:
    """The `lock` file: a POSIX record lock on its first byte, the one Apache's broker takes: either keeps out both.

    POSIX locks belong to a process: a second store object in the same process would get it too, so those in use here
    are remembered.
    """

    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._handle = -1
        self._identity = (-1, -1)

    def take(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise self._disk.explain(problem, self.path) from problem
        try:
            state = os.fstat(handle)
            identity = (state.st_dev, state.st_ino)
            if identity in StoreLock._held:
                # Closing any handle of the file would drop this process's lock, so this one is left open on purpose.
                handle, _kept = -1, handle
                raise StoreLocked(f"{self.path.parent} is already open in this process")
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            if state.st_size == 0:
                os.pwrite(handle, b"lock", 0)
        except OSError as problem:
            os.close(handle)
            if problem.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(
                    f"another broker process works on {self.path.parent}: stop it, or give each its own directory"
                ) from None
            raise self._disk.explain(problem, self.path) from problem
        self._handle, self._identity = handle, identity
        StoreLock._held.add(identity)

    def release(self) -> None:
        if self._handle >= 0:
            StoreLock._held.discard(self._identity)
            os.close(self._handle)
            self._handle = -1

"""The JSON files under config/, with RocketMQ's rule for surviving a crash while one is written.

Persisting writes a `.tmp`, renames the file to `.bak` and the `.tmp` to the file; in between the `.bak` is there. A
write that fails, on a full disk perhaps, has changed neither. Loading takes the file, or, if that is missing, empty or
cannot be read, the `.bak`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreDamaged
from arrowmq.wire import fastjson
from arrowmq.wire.errors import WireError


class JsonConfigFile:
    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = Path(path)
        self.backup = self.path.with_name(self.path.name + ".bak")
        self.temporary = self.path.with_name(self.path.name + ".tmp")
        self._disk = disk or Disk()
        self._lock = threading.Lock()
        self._asked = self._written = 0

    def load(self) -> dict[str, Any] | None:
        """What the file says; None if neither it nor its backup says anything."""
        for path in (self.path, self.backup):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            if not data.strip():
                continue
            try:
                content = fastjson.loads(data)
            except (WireError, ValueError):
                continue
            if isinstance(content, dict):
                return content
        return None

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """For taking over what `load` gave. A table that is JSON and has something else in the place of a number or a
        table raises `StoreDamaged`: what it said must not be guessed, and as good as none it would be written over."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
            raise StoreDamaged(
                f"{self.path} is damaged: {fault}. Correct it, or put {self.backup.name} in its place, which is older"
            ) from fault

    def persist(self, content: dict[str, Any] | bytes) -> None:
        """Write the file so that at any moment it or its backup is whole."""
        self.writing(content)()

    def writing(self, content: dict[str, Any] | bytes) -> Callable[[], None]:
        """What persists this content, for a thread. It never lands on top of what was asked for later: a task that is
        cancelled leaves its thread behind, and the end of a broker writes the file as well."""
        self._asked += 1
        number = self._asked

        def write() -> None:
            with self._lock:
                if number > self._written:
                    self._write(content if isinstance(content, bytes) else fastjson.dumps(content))
                    self._written = number

        return write

    def _write(self, data: bytes) -> None:
        disk, folder = self._disk, self.path.parent
        disk.make_lasting_folder(folder)
        try:
            disk.write(self.temporary, data)
            if self.path.exists() and self.path.stat().st_size:
                disk.replace(self.path, self.backup)
            disk.replace(self.temporary, self.path)
            disk.force_folder(folder)
        except OSError as problem:
            raise disk.explain(problem, self.path) from problem

"""The JSON files under config/, with RocketMQ's rule for surviving a crash while one is written.

Persisting writes a `.tmp`, renames the file to `.bak` and the `.tmp` to the file; in between the `.bak` is there. A
write that fails, on a full disk perhaps, has changed neither. Loading takes the file, or, if that is missing, empty or
cannot be read, the `.bak`. No crash leaves a file that cannot be read, so one that nothing can replace is no reason to
begin with an empty table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreDamaged
from arrowmq.wire import fastjson
from arrowmq.wire.errors import WireError

log = logging.getLogger(__name__)


class JsonConfigFile:
    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = Path(path)
        self.backup = self.path.with_name(self.path.name + ".bak")
        self.temporary = self.path.with_name(self.path.name + ".tmp")
        self._disk = disk or Disk()
        self._lock = threading.Lock()
        self._asked = self._written = 0

    def load(self) -> dict[str, Any] | None:
        """What the file says, or else its backup; None if there is neither. Raises `StoreDamaged` if there is something
        and it cannot be read."""
        fault: StoreDamaged | None = None
        for path in (self.path, self.backup):
            try:
                content = _table(path)
            except (WireError, ValueError) as problem:
                fault = fault or self._damaged(path, problem)
                continue
            if content is not None:
                if fault is not None:
                    log.error("%s is damaged: what %s says is taken, which is older", self.path, self.backup.name)
                return content
        if fault is not None:
            raise fault
        return None

    def _damaged(self, path: Path, problem: Exception) -> StoreDamaged:
        return StoreDamaged(
            f"{path} is damaged: {problem}. {self.backup.name} has nothing that could replace it: put a copy in its "
            "place, or delete both to begin with an empty table"
        )

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


def _table(path: Path) -> dict[str, Any] | None:
    """What a file says; None if it is not there or empty. Raises `WireError` or `ValueError` if it makes no sense."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if not data.strip():
        return None
    content = fastjson.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it has no table")
    return content

"""The files of a broker as a kill -9 of its process would leave them."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_as_killed(source: Path, target: Path) -> None:
    """Everything as it is at one moment. The caller runs on the broker's loop, so nothing but a thread that writes a
    table can change a file meanwhile; then the copy would mix two moments, which no kill does, and is made again."""
    while True:
        before = _tables(source)
        try:
            shutil.copytree(source, target)
        except shutil.Error:  # a table that is being replaced has no name for a moment
            shutil.rmtree(target)
            continue
        if before == _tables(source):
            return
        shutil.rmtree(target)


def _tables(source: Path) -> list[tuple[str, int, int, int]]:
    found = []
    for path in sorted(source.glob("**/config/**/*")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return found

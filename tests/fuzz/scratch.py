"""Folders for what a fuzzer writes: in memory where that can be. Waiting for a disk would be most of the time."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
GIVEN = "ARROWMQ_FUZZ_FOLDER"  # by who started this process: libFuzzer ends one without leaving it time to tidy up


def folder(name: str) -> Path:
    """A new one, gone with this process."""
    place = os.environ.get(GIVEN) or (MEMORY if os.access(MEMORY, os.W_OK) else None)
    made = Path(tempfile.mkdtemp(prefix=f"arrowmq-fuzz-{name}-", dir=place))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made

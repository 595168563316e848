"""The C programs of this folder, compiled when they are first needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from oracle import toolchain

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "benchmarks"


def program(name: str, *libraries: str) -> Path:
    """The path of a compiled program ("loadgen" or "bare"), linked with these libraries."""
    toolchain.require("cc")
    source = HERE / f"{name}.c"
    content = source.read_bytes() + (HERE / "crc32.h").read_bytes()
    target = BUILD / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".new")
        links = [f"-l{library}" for library in libraries]
        toolchain.run(["cc", "-O2", "-march=native", "-o", str(fresh), str(source), *links], timeout=120)
        fresh.rename(target)
    return target

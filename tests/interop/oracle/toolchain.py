"""The tools that build and run foreign programs (JDK, Maven, Go, Node, Rust), and the folder where their work is kept.

A missing tool is installed where that is possible without asking (root on Debian or Ubuntu); otherwise the run ends
with one sentence that names the package.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# What provides a command on Debian and Ubuntu.
PACKAGES = {
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "go": "golang",
    "node": "nodejs",
    "npm": "npm",
    "cc": "gcc",
    "cargo": "cargo",
    "protoc": "protobuf-compiler",
}


class OracleError(RuntimeError):
    """A tool is missing, a server did not start, or a foreign program failed; the message carries what it printed."""


def home() -> Path:
    """The cache folder of jars, compiled classes, Go modules and npm packages."""
    chosen = os.environ.get("ARROWMQ_ORACLE_HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else cache / "arrowmq-oracle"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require(*commands: str) -> None:
    """Makes sure that these commands can be run."""
    missing = sorted({PACKAGES[command] for command in commands if shutil.which(command) is None})
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise OracleError(f"install these packages first (on Debian and Ubuntu: apt-get install {names})")
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        run(["apt-get", "update"], timeout=600)
        run(install, timeout=1800)


def run(
    command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> str:
    """What a command prints; a failing one raises with the end of it."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env=env,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise OracleError(f"{' '.join(command[:3])} … ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


@contextmanager
def made_once(folder: Path) -> Iterator[Path | None]:
    """A folder of the cache: yields where to make it, or None when it is there.

    It appears under its name only when it is whole, so an interrupted run or two runs at once leave nothing half-made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            yield None
            return
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            yield fresh
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

"""An ArrowMQ server of its own for benchmarks that look at one process and open many files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class OwnServer(NamedTuple):
    pid: int
    namesrv: str
    broker: str


def allow_many_files() -> int:
    """Raises the limit of open files as far as this user may; how far that is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@contextmanager
def own_server(**settings: object) -> Iterator[OwnServer]:
    """NameServer and broker on free ports and an empty store; it says where it is and ends with the block."""
    program = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--log-level", "error"]
    words = ["--namesrv-port", "0", "--port", "0", "--set", "bindAddress=127.0.0.1"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen([*program, "--dir", directory, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            print(line.strip())
            namesrv, broker = (word.rstrip(",") for word in line.split() if word.startswith("127.0.0.1:"))
            yield OwnServer(server.pid, namesrv, broker)
        finally:
            server.terminate()
            server.wait()


def resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""Consoles as people run them: the command, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oracle.ports import free_port


@contextmanager
def console_running(namesrv: str, folder: Path, *words: str) -> Iterator[str]:
    with console_process(namesrv, folder, *words) as (address, _):
        yield address


@contextmanager
def console_process(namesrv: str, folder: Path, *words: str) -> Iterator[tuple[str, int]]:
    """(address, process id) of `arrowmq console` on a free port; it ends with its standard input."""
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "console", "-n", namesrv, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--dir", str(folder), "--stop-with-stdin", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: console at "), line
        yield line.removeprefix("ready: console at ").strip(), process.pid
    finally:
        process.stdin.close()
        process.wait(30)


@contextmanager
def server_running(folder: Path) -> Iterator[tuple[str, int]]:
    """(NameServer, process id) of `arrowmq server` on free ports, with small files."""
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--dir", str(folder)]
    settings = {
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "brokerName": "broker-a",
        "mappedFileSizeCommitLog": str(8 << 20),
        "mappedFileSizeConsumeQueue": str(20 * 2000),
        "metricsExporterType": "DISABLE",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [*command, "--namesrv-port", "0", "--port", "0", "--stop-with-stdin", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: NameServer "), line
        yield line.removeprefix("ready: NameServer ").partition(",")[0], process.pid
    finally:
        process.stdin.close()
        process.wait(60)


@contextmanager
def trio_running(folder: Path) -> Iterator[tuple[str, int]]:
    """(NameServer, process id) of `arrowmq server --brokers 3 --replicas`."""
    namesrv, broker = free_port(), free_port(*range(-2, 23))
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--brokers", "3", "--replicas"]
    command += ["--dir", str(folder / "data"), "--namesrv-port", str(namesrv), "--port", str(broker)]
    settings = ["brokerIP1=127.0.0.1", "controllerIP=127.0.0.1", f"controllerDLegerPeers=n0-127.0.0.1:{free_port()}"]
    command += ["--name", "broker-a", *(part for setting in settings for part in ("--set", setting))]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: "), (folder / "log").read_text()[-2000:]
        yield f"127.0.0.1:{namesrv}", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)

"""`arrowmq server --console`: a page beside the broker, in a process of its own that ends with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from waiting import block_until


def test_a_server_brings_its_console_and_takes_it_along(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--dir", str(tmp_path / "data")]
    ports = ["--namesrv-port", "0", "--port", "0", "--console", "--console-port", "0", "--stop-with-stdin"]
    settings = [
        "--set",
        "brokerIP1=127.0.0.1",
        "--set",
        "bindAddress=127.0.0.1",
        "--set",
        "mappedFileSizeCommitLog=8388608",
    ]
    process = subprocess.Popen(
        [*command, *ports, *settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = line.partition("console at ")[2].split()[0]
        assert httpx.get(address + "/api/overview").json()["brokers"]
    finally:
        process.stdin.close()
        assert 0 == process.wait(60)
    block_until(lambda: not _answers(address))


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=1).status_code > 0
    except httpx.HTTPError:
        return False


def test_a_server_without_a_console_imports_nothing_of_it() -> None:
    program = (
        "import sys, arrowmq.cli.serve.command, arrowmq.cli.serve.running, arrowmq.server; print(sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "starlette" not in loaded
    assert "jinja2" not in loaded
    assert "arrowmq.console" not in loaded

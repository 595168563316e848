"""h2spec, the conformance suite of HTTP/2, against the proxy's port."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from oracle import arrow, toolchain
from oracle.ports import HOST, broker_port, free_port

pytestmark = pytest.mark.interop


def h2spec() -> Path:
    toolchain.require("go")
    folder = toolchain.home() / "h2spec"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            fresh.mkdir(parents=True)
            toolchain.run(["go", "mod", "init", "h2spec"], 60, folder=fresh)
            toolchain.run(["go", "get", "github.com/summerwind/h2spec/cmd/h2spec@latest"], 300, folder=fresh)
            toolchain.run(["go", "build", "-o", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec"], 600, folder=fresh)
    return folder / "h2spec"


def test_every_case_passes(tmp_path: Path) -> None:
    port = free_port()
    with arrow.server(tmp_path / "server", free_port(), broker_port(), proxy_port=port):
        command = [str(h2spec()), "-h", HOST, "-p", str(port), "-o", "5"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False).stdout
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    assert found is not None, said[-2000:]
    assert (True, 0, 0) == (int(found[1]) >= 145, int(found[3]), int(found[4])), said[-4000:]

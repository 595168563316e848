"""A server of ours in a process of its own, which can be killed and started again; and a way to wait."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

READY = re.compile(r"ready: (?:NameServer ([\d.]+:\d+), )?broker (\S+) at ([\d.]+:\d+)")


class Server:
    """`arrowmq server` on free ports, or with `joins` a broker of another's cluster; the same ports after a restart."""

    def __init__(self, folder: Path, *settings: str, joins: str = "", name: str = "broker-a") -> None:
        self.folder = folder
        self.store = folder / "data"
        self._joins = joins
        self._settings = ("brokerIP1=127.0.0.1", f"brokerName={name}", *settings)
        self._process: subprocess.Popen[str] | None = None
        self._ports = ("0", "0")
        self.namesrv = ""
        self.broker = ""

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self) -> None:
        command = [sys.executable, "-c", "from arrowmq.cli import main; main()"]
        command += ["broker", "-n", self._joins] if self._joins else ["server", "--namesrv-port", self._ports[0]]
        command += ["--dir", str(self.store), "--port", self._ports[1], "--log-level", "warning"]
        command += [part for setting in self._settings for part in ("--set", setting)]
        with (self.folder / "server.err").open("a") as errors:
            self._process = subprocess.Popen(
                [*command, "--stop-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = READY.match(line)
        if match is None:
            raise AssertionError(
                f"the server did not start: {line!r} {(self.folder / 'server.err').read_text()[-2000:]}"
            )
        self.namesrv, self.broker = match[1] or self._joins, match[3]
        self._ports = (self.namesrv.split(":")[1], self.broker.split(":")[1])
        # What it says later must not fill the pipe.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)
            if process.stdin is not None:
                process.stdin.close()


class Kept:
    """Starts a server again whenever somebody killed it, and says its new process id."""

    def __init__(self, server: Server, started: Callable[[int], None]) -> None:
        self.starts = 0
        self._server = server
        self._started = started
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Kept:
        self._started(self._server.pid)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_ending.set()
        self._thread.join(60)

    def _keep(self) -> None:
        while not self._is_ending.wait(0.02):
            process = self._server._process
            if process is not None and process.poll() is not None:
                self.starts += 1
                self._server.start()
                self._started(self._server.pid)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Until the condition holds. The pause only keeps a busy machine free; nothing depends on its length."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s} s still not: {what}")
        pause.wait(0.02)

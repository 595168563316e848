"""Commands over Spark as processes of their own, which can be killed with all that they have started."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ARROWMQ = (sys.executable, "-c", "from arrowmq.cli import main; main()")


class Running:
    """A command in a session of its own: driver, Java and Python workers are found by that."""

    def __init__(self, folder: Path, *command: str, cwd: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        # Java runs for seconds: time spent on making itself faster would not come back.
        quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **quick}
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                cwd=cwd,
                env=environment,
            )
        atexit.register(self.kill)  # nothing outlives the program that started it

    def interrupt_when(self, condition: Callable[[], bool]) -> bool:
        """Waits for the condition, then does what Ctrl-C does."""
        self._wait(condition, 600)
        was_running = self.process.poll() is None
        if was_running:
            os.killpg(self.process.pid, signal.SIGINT)
        return was_running

    def kill_when(self, condition: Callable[[], bool], *, delay_s: float = 0.0, timeout_s: float = 600) -> bool:
        """Waits for the condition, then kills everything; whether it came to that before the command ended."""
        self._wait(condition, timeout_s)
        if delay_s:
            threading.Event().wait(delay_s)
        was_running = self.process.poll() is None
        self.kill()
        return was_running

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and not condition():
            assert time.monotonic() < deadline, f"never came to the point: {self.err.read_text()[-2000:]}"
            pause.wait(0.005)

    def members(self) -> list[int]:
        """Which processes of the session there are."""
        return _session_members(self.process.pid)

    def kill(self) -> None:
        """SIGKILL to every process of the session, again until none is left: Java may just be starting another."""
        while members := self.members():
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.wait(30)
        atexit.unregister(self.kill)

    def finish(self, timeout_s: float = 600) -> str:
        """What a command that succeeds has printed."""
        try:
            code = self.process.wait(timeout_s)
        finally:
            self.kill()
        assert 0 == code, f"ended with {code}: {self.out.read_text()[-1000:]} {self.err.read_text()[-3000:]}"
        return self.out.read_text()


def pipeline(folder: Path, *arguments: str) -> Running:
    """`arrowmq pipeline …`"""
    return Running(folder, *ARROWMQ, "pipeline", *arguments)


def _session_members(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(after_name[3]) == session and after_name[0] != "Z":
            found.append(int(entry.name))
    return found

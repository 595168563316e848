"""One server process, ours or Apache's: started until it says that it is ready, stopped cleanly, or killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from oracle.ports import HOST
from oracle.toolchain import OracleError


class Server:
    """A server process: started on entering the context, ended (SIGTERM, hence cleanly) on leaving it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        port: int,
        ready: str,
        env: Mapping[str, str],
        logs: tuple[Path, str] | None = None,
        host: str = HOST,
    ) -> None:
        """Ready when it listens and says `ready`; with `logs`, when it has also written that text into that file."""
        self.name, self.folder, self.port, self.host = name, folder, port, host
        self.command = list(command)
        self.output = folder / f"{name}.out"
        self._ready, self._env, self._logs = ready, dict(env), logs
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise OracleError(f"{self.name} is not running")
        return self._process.pid

    def launch(self) -> int:
        """Starts the process without waiting; gives the place in its output where this run begins."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as out:
            begin = out.tell()
            self._process = subprocess.Popen(
                self.command, stdout=out, stderr=subprocess.STDOUT, env=self._env, cwd=self.folder
            )
        return begin

    def start(self, timeout: float = 120) -> Server:
        logged = _size(self._logs[0]) if self._logs else 0
        begin = self.launch()
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while not (
            self._ready in _read(self.output, begin) and _listens(self.host, self.port) and self._has_logged(logged)
        ):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise OracleError(f"{self.name} did not start:\n{_read(self.output, begin)[-4000:]}")
            time.sleep(0.01)
        return self

    def _has_logged(self, begin: int) -> bool:
        return self._logs is None or self._logs[1] in _read(self._logs[0], begin)

    def stop(self, timeout: float = 60) -> None:
        """Ends the server as an operator would; a broker then leaves no abort file."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Ends the server as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL, 10)

    def _end(self, how: signal.Signals, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise OracleError(f"{self.name} did not end within {timeout} s:\n{_read(self.output)[-4000:]}") from None

    def cpu_seconds(self) -> float:
        """The processor time that the process and its children have used so far."""
        return sum(_cpu_seconds(pid) for pid in family(self.pid))

    def memory_kib(self) -> dict[str, int]:
        """Resident and anonymous ("own") memory of the process and its children."""
        total = {"rss": 0, "anonymous": 0}
        for pid in family(self.pid):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                if name.lower() in total:
                    total[name.lower()] += int(rest.split()[0])
        return total

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family(int(child)))]


def _cpu_seconds(pid: int) -> float:
    """By the clock of its processor time, to the nanosecond; `stat` counts in hundredths of a second. Linux makes the
    number of that clock from the process's id (clock_getcpuclockid)."""
    return time.clock_gettime(~pid << 3 | 2)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _read(file: Path, begin: int = 0) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as content:
        content.seek(begin)
        return content.read().decode(errors="replace")

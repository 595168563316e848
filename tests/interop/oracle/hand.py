"""A hand: a small program around one foreign client, moved by lines of JSON on its standard input.

The hands of Java, Go and Node understand the same deeds (as far as their client has them), so one scene can be played
by each. A deed that waits (for messages, for queues) waits inside the hand, with a time limit.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from oracle.toolchain import OracleError

LONGEST_DEED_S = 300
HandOf = Callable[[str], "Hand"]  # a flavour's hand


class Refusal(Exception):
    """The client said no: the class of its error, the response code where there was one, and its words."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind} {code}: {message}")
        self.kind, self.code, self.message = kind, code, message


class Hand:
    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=dict(env), cwd=folder
            )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._next = 0
        self._reader = threading.Thread(target=self._read, name=f"hand {name}", daemon=True)
        self._reader.start()

    @property
    def flavour(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_java(self) -> bool:
        return self.name.startswith("java")

    def begin(self, deed: str, /, **values: Any) -> Future[Any]:
        """Starts a deed; the future holds what came of it."""
        future: Future[Any] = Future()
        with self._lock:
            if self._process.poll() is not None:
                raise OracleError(f"the hand {self.name} has ended:\n{self._errors()}")
            self._next += 1
            self._waiting[self._next] = future
            line = json.dumps({"id": self._next, "do": deed, **values}) + "\n"
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        return future

    def do(self, deed: str, /, **values: Any) -> Any:
        return self.begin(deed, **values).result(LONGEST_DEED_S)

    def end(self) -> None:
        """The program leaves as it would at the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Ends the program without a word to anybody (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith(b"{"):  # some libraries write their log here
                continue
            said = json.loads(line)
            with self._lock:
                future = self._waiting.pop(said["id"])
            if (error := said.get("error")) is not None:
                future.set_exception(Refusal(error["kind"], error.get("code"), error["message"]))
            else:
                future.set_result(said.get("result"))
        with self._lock:
            for future in self._waiting.values():
                future.set_exception(OracleError(f"the hand {self.name} ended before it answered"))
            self._waiting.clear()

    def _errors(self) -> str:
        # A hand of one test may be asked after that test's folder is gone.
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else "(its log is gone)"

    def __enter__(self) -> Hand:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

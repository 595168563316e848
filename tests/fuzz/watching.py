"""One target in a process of its own, watched: what the fuzzer says of it, and how much memory it takes meanwhile.

libFuzzer's own `rss` is the most there ever was, and starting takes much; whether memory grows shows in what is
resident once the corpus is read (its line INITED) and later. AddressSanitizer keeps what was freed for a while, and the
fuzzer its corpus: that fills up and stays, so what counts is how much comes in the second half of the time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import scratch

MOST_GROWTH_MIB = 100
PAGES_IN_MIB = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 1.0
PROGRESS = re.compile(r"#\d+\s+(INITED|NEW|REDUCE|pulse|RELOAD|DONE)\b(?:.*\bcov: (\d+) ft: (\d+))?")
INPUTS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


@dataclass
class Run:
    target: str
    inputs: int = 0
    coverage_at_start: str = "-"
    coverage: str = "-"  # places reached, and features: how often, in powers of two
    resident_mib: list[int] = field(default_factory=list)  # once the corpus is read
    seconds: float = 0.0
    fault: str = ""

    @property
    def memory_mib(self) -> tuple[int, int, int] | None:
        """At the start, at half of the time, and at the end."""
        found = self.resident_mib
        return (found[0], found[len(found) // 2], found[-1]) if found else None

    @property
    def grown_mib(self) -> int:
        """In the second half."""
        return self.memory_mib[2] - self.memory_mib[1] if self.memory_mib else 0

    def hear(self, line: str) -> bool:
        """Whether it says that the corpus is read."""
        if found := INPUTS.match(line):
            self.inputs = int(found[1])
        progress = PROGRESS.match(line)
        if progress and progress[2]:
            self.coverage = f"{progress[2]} / {progress[3]}"
            if progress[1] == "INITED":
                self.coverage_at_start = self.coverage
        return bool(progress and progress[1] == "INITED")

    def judge(self, returncode: int) -> None:
        if returncode and not self.fault:
            self.fault = f"ended with {returncode}"
        if self.grown_mib > MOST_GROWTH_MIB and not self.fault:
            self.fault = f"memory grew by {self.grown_mib} MiB"


def watched(target: str, words: Sequence[str], most_seconds: float) -> Run:
    """Ends with the process; its lines are printed as they come."""
    run, began, folder = Run(target), time.monotonic(), scratch.folder("target")
    environment = {**os.environ, scratch.GIVEN: str(folder)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", env=environment
    ) as process:
        is_ready, is_over = threading.Event(), threading.Event()
        watcher = threading.Thread(target=_watch, args=(run, process, began + most_seconds, is_ready, is_over))
        watcher.start()
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            if run.hear(line):
                is_ready.set()
        is_over.set()
        watcher.join()
    shutil.rmtree(folder, ignore_errors=True)
    run.seconds = time.monotonic() - began
    run.judge(process.returncode)
    return run


def _watch(
    run: Run, process: subprocess.Popen[str], ends: float, is_ready: threading.Event, is_over: threading.Event
) -> None:
    while not is_over.wait(SAMPLE_SECONDS):
        if time.monotonic() > ends:
            run.fault = "did not end"
            process.kill()
            return
        if is_ready.is_set():
            with suppress(OSError):
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
                run.resident_mib += [pages // PAGES_IN_MIB] if pages else []  # none left: it is just ending


def table(runs: Iterable[Run]) -> str:
    lines = [
        "| target | inputs | coverage at start | at the end | MiB at the start | halfway | at the end | seconds | |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for run in runs:
        memory = [f"{mib:,}" for mib in run.memory_mib] if run.memory_mib else ["-"] * 3
        cells = [run.target, f"{run.inputs:,}", run.coverage_at_start, run.coverage, *memory, f"{run.seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} | {run.fault} |")
    return "\n".join(lines)

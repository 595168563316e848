"""`python -m benchmarks.pauses [--seconds S] [--stacks]`: the longest time the broker's loop was held up under load.

Inside the broker's process a timer is due every millisecond; how late it comes is how long nothing else could be
served. The load is 64 connections with 32 sends in flight each over small segments, so that flushes, new segments and
index files come often; then one send in flight each beside readers of a backlog that was thrown out of the page cache,
so that every read waits for the disk.

A pause contains what one loop iteration serves (up to 2,048 messages) and the time in which the machine ran something
else, which on a busy one is most of it. The broker's own is the longest pause in which the host took nothing from this
machine (`steal` of /proc/stat), less the time for which the kernel ran another process instead (the thread's
schedstat). `--stacks` writes where the loop was in pauses of more than 25 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from oracle.process import Server

from benchmarks import loads, report, systems
from benchmarks.__main__ import RESULTS, say
from benchmarks.loads import QUEUES
from benchmarks.memory import touch_free_memory

STEP_S = 0.001
LONG_S = 0.025
SEGMENT_BYTES = 128 << 20
BACKLOG = 200_000


class Taken:
    """What the machine has taken from the calling thread so far."""

    def __init__(self) -> None:
        self._machine = os.open("/proc/stat", os.O_RDONLY)
        self._thread = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def now(self) -> tuple[int, float]:
        """Ticks (10 ms) that the host gave to others, seconds that the thread waited for a processor."""
        steal = int(os.pread(self._machine, 200, 0).split(maxsplit=9)[8])
        return steal, int(os.pread(self._thread, 100, 0).split()[1]) / 1e9


class Watch:
    """Runs in the broker's loop: how late the timer came, by phase."""

    def __init__(self, target: Path, stacks: TextIO | None) -> None:
        self.target = target
        self.late: list[tuple[float, float, float]] = []  # how much, CPU, and the part that is the broker's own
        self.faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        self.loop = asyncio.get_running_loop()
        self.loop.add_signal_handler(signal.SIGUSR1, self.report)
        self.taken = Taken()
        self.begin()
        if stacks is not None:
            threading.Thread(target=self.look, args=(stacks, threading.get_ident()), daemon=True).start()
        self.tick()

    def look(self, stacks: TextIO, loop_thread: int) -> None:
        """In a thread: write where the loop is when it is late. A pause that keeps the interpreter lock is not seen."""
        while True:
            time.sleep(LONG_S / 2)
            late = time.perf_counter() - self.last
            if late > LONG_S:
                stack = traceback.format_stack(sys._current_frames()[loop_thread])
                stacks.write(f"{late * 1e3:.0f} ms\n{''.join(stack[-6:])}\n")
                stacks.flush()

    def begin(self) -> None:
        self.steal, self.waited_s = self.taken.now()
        self.last, self.used = time.perf_counter(), time.thread_time()

    def tick(self) -> None:
        late_s, used_s = max(0.0, time.perf_counter() - self.last - STEP_S), time.thread_time() - self.used
        steal, waited_s = self.taken.now()
        own_s = 0.0 if steal != self.steal else max(0.0, late_s - (waited_s - self.waited_s))
        self.late.append((late_s, used_s, own_s))
        self.begin()
        self.loop.call_later(STEP_S, self.tick)

    def report(self) -> None:
        """One line of figures since the last report."""
        late, self.late = self.late, []
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        by_length = sorted(late)
        count = len(by_length)
        longest, cpu, _ = by_length[-1] if by_length else (0.0, 0.0, 0.0)
        figures = {
            "ticks": count,
            "p50_ms": by_length[count // 2][0] * 1e3,
            "p99_ms": by_length[count * 99 // 100][0] * 1e3,
            "p999_ms": by_length[count * 999 // 1000][0] * 1e3,
            "longest_ms": longest * 1e3,
            "longest_cpu_ms": cpu * 1e3,
            "longest_own_ms": max((own for _, _, own in late), default=0.0) * 1e3,
            "disk_faults": faults - self.faults,
        }
        self.faults = faults
        with self.target.open("a") as file:
            file.write(json.dumps(figures) + "\n")
        self.begin()  # what the report took is no pause of the broker


def serve(target: Path, words: list[str]) -> None:
    """`arrowmq server` with a watch in its loop."""
    from arrowmq.cli import main as command
    from arrowmq.server import Node

    stacks = open(os.environ["PAUSE_STACKS"], "w") if "PAUSE_STACKS" in os.environ else None  # noqa: SIM115
    start = Node.start

    async def started(self: Node) -> None:
        await start(self)
        Watch(target, stacks)

    Node.start = started  # type: ignore[method-assign]
    sys.argv = ["arrowmq", *words]
    command()


class Watched(systems.ArrowMQ):
    name = "watched"

    def __init__(self, figures: Path, **config: Any) -> None:
        self.figures = figures
        super().__init__(**config)

    def _broker(self) -> Server:
        server = super()._broker()
        words = server.command[server.command.index("server") :]
        server.command = [sys.executable, "-m", "benchmarks.pauses", "--serve", str(self.figures), *words]
        server._env["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parents[1]), server._env["PYTHONPATH"]))
        return server

    def reported(self) -> dict[str, float]:
        """The figures since the last call."""
        before = self.figures.read_text().count("\n") if self.figures.exists() else 0
        os.kill(self.broker.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while not self.figures.exists() or self.figures.read_text().count("\n") == before:
            if time.monotonic() > deadline:
                raise RuntimeError("the broker's loop did not report for 30 s")
            time.sleep(0.05)
        found: dict[str, float] = json.loads(self.figures.read_text().splitlines()[-1])
        return found


class Bystander:
    """A process that waits a millisecond over and over: what its longest wait is, the machine causes."""

    PROGRAM = """
import sys, threading, time
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
longest_s = 0.0
while not ended.is_set():
    before_s = time.monotonic()
    time.sleep(0.001)
    longest_s = max(longest_s, time.monotonic() - before_s - 0.001)
print(longest_s * 1000)
"""

    def __enter__(self) -> Bystander:
        self.longest_ms = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.longest_ms = float(self._process.communicate(timeout=30)[0])


def evict(folder: Path) -> None:
    """Throw the store's files out of the page cache; nobody may have them mapped."""
    subprocess.run(["sync", "-f", str(folder)], check=True)
    for path in (*folder.rglob("commitlog/*"), *folder.rglob("consumequeue/*/*/*")):
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def measure(system: Watched, seconds: float) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}

    def keep(phase: str, rate: float) -> None:
        found[phase] = {**system.reported(), "rate": rate}
        say(f"{phase}: " + ", ".join(f"{name} {value:,.2f}" for name, value in found[phase].items()))

    touch_free_memory()
    system.start()
    with closing(system.asker()) as asker:
        for topic in ("Backlog", "Load"):
            asker.create_topic(topic, QUEUES)
    time.sleep(2)
    keep("at rest", 0)
    loads.raw_send(system, "Load", seconds=1)
    system.reported()
    keep("sends", loads.raw_send(system, "Load", seconds=seconds)["rate"])
    loads.raw_send(system, "Backlog", count=BACKLOG)
    loads.raw_send(system, "Load", count=BACKLOG)  # what was written last is taken to be in memory
    system.broker.stop()
    evict(system.folder)
    system.broker.start()
    loads.raw_send(system, "Load", seconds=1)
    system.reported()
    pulled: dict[str, float] = {}
    reader = threading.Thread(target=lambda: pulled.update(loads.raw_pull(system, "Backlog", BACKLOG)))
    reader.start()
    rate = loads.raw_send(system, "Load", connections=64, inflight=1, seconds=seconds)["rate"]
    reader.join()
    keep("sends beside reads from the disk", rate)
    say(f"read {pulled['messages']:,.0f} messages at {pulled['rate']:,.0f} a second")
    return found


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pauses")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--stacks", action="store_true", help="write where the loop was in long pauses")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if options.stacks:
        os.environ["PAUSE_STACKS"] = str(RESULTS / "pauses-stacks.txt")
    with tempfile.TemporaryDirectory() as folder:
        system = Watched(Path(folder) / "figures", mappedFileSizeCommitLog=SEGMENT_BYTES)
        try:
            found = measure(system, options.seconds)
        except RuntimeError:
            print(system.broker.output.read_text()[-3000:], file=sys.stderr)  # why the broker went away, if it did
            raise
        finally:
            system.stop()
    names = ("p50_ms", "p99_ms", "p999_ms", "longest_ms", "longest_cpu_ms", "longest_own_ms", "disk_faults")
    titles = "p50 ms | p99 ms | p99.9 ms | longest ms | its CPU ms | longest of its own, ms | waits for the disk"
    lines = [f"| load | messages/s | {titles} |", "|---|---:|" + "---:|" * len(names)]
    for phase, figures in found.items():
        lines.append(f"| {phase} | {figures['rate']:,.0f} | " + " | ".join(f"{figures[n]:.2f}" for n in names) + " |")
    about = ", ".join(f"{key} {value}" for key, value in report.machine().items())
    text = "\n".join(["# Pauses of the loop", "", about, "", *lines, ""])
    (RESULTS / time.strftime("pauses-%Y%m%d-%H%M%S.md")).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

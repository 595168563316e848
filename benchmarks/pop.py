"""What pop costs: rate and broker CPU a message, end-to-end latency, and memory and pauses with many in flight.

    python -m benchmarks.pop [--java] [--on arrowmq] [--messages N] [--in-flight N] [--rounds N] [--as-it-is]

Each system in turn (ArrowMQ, Apache's broker), in one run. A raw generator in C (`popgen.c`) warms it up; a backlog
is popped 32 at a time and acknowledged in batches, then one at a time with single acks; then messages are sent at a
steady rate to consumers that long-poll. With --java the Java client pops the backlog as well, after rounds that warm it
up. A window begins when the backlog is on the disk and the broker is at rest; figures are medians of the rounds.

Last, many messages are popped and left: at a broker of ours with a timer in its loop, which says how long the loop was
held up (`pauses.py`), and how much memory of its own the process has taken for each message. What counts is the longest
pause that is the broker's own; beside it stand the longest by the clock, which contains what the machine gave to
others, and that of a timer in a process that does nothing else.
The table that is printed is kept in bench-results/pop.md. Free memory is touched first, as `memory.py` says, but not
with --as-it-is; `--messages 0` leaves all but the last part out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import java

from benchmarks import native, report
from benchmarks.loads import CLIENT_JVM
from benchmarks.memory import touch_free_memory
from benchmarks.pauses import Bystander, Watched
from benchmarks.pending import anonymous_kib
from benchmarks.silent_connections import cpu_s
from benchmarks.systems import Apache, ArrowMQ, System

BROKER, TOPIC, GROUP = "broker-a", "pop_bench", "pop_bench_group"
QUEUES, BODY_BYTES = 4, 1024
WORKERS, HOLDERS, CONSUMERS = 16, 4, 4
RATE, LATENCY_S = 2_000, 10
REST_CPU, REST_STEP_S, LONGEST_REST_S = 0.03, 0.5, 30.0
HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "bench-results"

Figures = dict[str, list[float]]  # by name, one a round


@dataclass(frozen=True, slots=True)
class Goal:
    figure: str
    title: str
    unit: str
    times: float = 0.0  # so many times Apache's, above 1; below 1 at most this part of it
    at_most: float = 0.0  # or this limit
    worst: bool = False  # the largest of the rounds counts, not their median

    def judged(self, ours: float, theirs: float | None) -> tuple[str, str, bool | None]:
        """The ratio, the goal, and whether it is met; None where there is nothing to compare with."""
        if self.at_most:
            return "—", f"<= {self.at_most:g}", ours <= self.at_most
        if theirs is None or not ours or not theirs:
            return "—", "", None
        ratio = ours / theirs
        if not self.times:
            return f"{ratio:.2f}", "", None
        if self.times > 1:
            return f"{ratio:.2f}", f">= {self.times:g}", ratio >= self.times
        return f"1/{1 / ratio:.1f}", f"<= 1/{1 / self.times:g}", ratio <= self.times


def _pair(key: str, title: str) -> list[Goal]:
    return [
        Goal(f"{key} rate", f"{title}: rate", "msg/s", times=3),
        Goal(f"{key} cpu", f"{title}: broker CPU a message", "µs", times=1 / 8),
    ]


GOALS = [
    *_pair("raw 32", "pop of 32 and batch ack, raw generator"),
    *_pair("raw 1", "pop of 1 and ack, raw generator"),
    *_pair("java 32", "pop of 32 and batch ack, Java client"),
    Goal("java 32 client cpu", "of which the client itself used, a message", "µs"),
    *_pair("java 1", "pop of 1 and ack, Java client"),
    Goal("java 1 client cpu", "of which the client itself used, a message", "µs"),
    Goal("latency p50", f"send to arrival at {RATE:,} msg/s, long polling: p50", "ms", times=1),
    Goal("latency p99", f"send to arrival at {RATE:,} msg/s, long polling: p99", "ms", times=1 / 2),
    *(
        goal
        for at_once in (32, 1)
        for goal in (
            Goal(
                f"held {at_once} bytes", f"in flight, popped {at_once} at once: own memory each", "bytes", at_most=300
            ),
            Goal(
                f"held {at_once} own",
                f"popped {at_once} at once: longest pause of its own",
                "ms",
                at_most=20,
                worst=True,
            ),
            Goal(f"held {at_once} pause", "longest pause by the clock", "ms"),
            Goal(f"held {at_once} idle", "longest pause of an idle process meanwhile", "ms"),
        )
    ),
]


class Load:
    def __init__(self, system: System, figures: Figures) -> None:
        self.system = system
        self.figures = figures

    def create_topic(self, topic: str) -> None:
        with closing(self.system.asker()) as asker:
            asker.create_topic(topic, QUEUES)

    def fill(self, count: int, topic: str = TOPIC, body: int = BODY_BYTES) -> None:
        self.run("fill", body, WORKERS, count, topic)
        self.rest()

    def rest(self) -> None:
        """Until what was sent is on the disk, and the broker has nothing left to do for it."""
        subprocess.run(["sync", "-f", str(self.system.folder)], check=True)
        deadline = time.monotonic() + LONGEST_REST_S
        while time.monotonic() < deadline:
            used_s = cpu_s(self.system.broker.pid)
            time.sleep(REST_STEP_S)
            if cpu_s(self.system.broker.pid) - used_s <= REST_CPU * REST_STEP_S:
                return

    def run(self, mode: str, number: int, workers: int, amount: int, topic: str = TOPIC) -> list[float]:
        command = [str(native.program("popgen")), "127.0.0.1", str(self.system.port), topic, GROUP, mode]
        command += [str(number), str(workers), str(amount)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
        return [float(word) for word in ended.stdout.split()]

    def say(self, text: str) -> None:
        print(f"{self.system.name:8} {text}", flush=True)

    def keep(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)

    @contextmanager
    def window(self, key: str) -> Iterator[list[float]]:
        """Keeps rate and CPU; the block appends how many messages it took and in how many seconds."""
        done: list[float] = []
        used_s = cpu_s(self.system.broker.pid)
        yield done
        taken, seconds = done[:2]
        cpu_us = (cpu_s(self.system.broker.pid) - used_s) / max(1, taken) * 1e6
        self.keep(f"{key} rate", taken / seconds)
        self.keep(f"{key} cpu", cpu_us)
        self.say(f"{key:>7}: {taken / seconds:9,.0f} msg/s, {cpu_us:7.1f} us broker CPU a message")

    def warm_up(self, count: int) -> None:
        for at_once, part in ((32, 2), (1, 8)):
            self.run("fill", BODY_BYTES, WORKERS, count // part)
            self.run("drain", at_once, WORKERS, count // part)

    def drain(self, count: int, at_once: int) -> None:
        self.fill(count)
        with self.window(f"raw {at_once}") as done:
            done += self.run("drain", at_once, WORKERS, count)

    def latency(self) -> None:
        self.rest()
        _, _, median, most, longest = self.run("latency", RATE, CONSUMERS, LATENCY_S)
        self.keep("latency p50", median / 1e3)
        self.keep("latency p99", most / 1e3)
        self.say(f"latency: p50 {median / 1e3:.2f} ms, p99 {most / 1e3:.2f} ms, longest {longest / 1e3:.1f} ms")

    def java(self, count: int, rounds: int) -> None:
        """Apache's Java client with direct pop calls by as many threads; the first rounds warm it up."""
        classpath = java.compiled([HERE / "java" / "PopLoad.java"])
        arguments = [self.system.namesrv, self.system.address, BROKER, TOPIC, GROUP, str(WORKERS)]
        folder = self.system.folder / "java"
        command, env = java.command("PopLoad", arguments, folder, classpath=classpath, options=CLIENT_JVM)
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None

            def round_of(at_once: int, amount: int) -> list[float]:
                print(at_once, amount, file=client.stdin, flush=True)
                line = client.stdout.readline()
                if not line:
                    raise RuntimeError(f"PopLoad ended with {client.wait()}")
                return [float(word) for word in line.split()]

            for at_once, amount, to_warm_up in ((32, count, 2), (1, count // 8, 1)):
                for number in range(to_warm_up + rounds):
                    self.fill(amount)
                    if number < to_warm_up:
                        round_of(at_once, amount)
                        continue
                    used_s = cpu_s(client.pid)
                    with self.window(f"java {at_once}") as done:
                        done += round_of(at_once, amount)
                    self.keep(f"java {at_once} client cpu", (cpu_s(client.pid) - used_s) / done[0] * 1e6)
            client.stdin.close()


def measure(system: System, options: argparse.Namespace, figures: Figures) -> None:
    load = Load(system, figures)
    load.create_topic(TOPIC)
    load.warm_up(options.messages)
    for _ in range(options.rounds):
        load.drain(options.messages, 32)
        load.drain(options.messages // 4, 1)
    load.latency()
    if options.java:
        load.java(options.messages, options.rounds)


def hold(system: Watched, count: int, figures: Figures) -> None:
    """Pop many messages and leave them."""
    load = Load(system, figures)
    for at_once in (32, 1):
        topic = f"{TOPIC}_hold_{at_once}"
        load.create_topic(topic)
        load.run("fill", 1, WORKERS, 1000, topic)
        load.run("hold", at_once, HOLDERS, 1000, topic)
        load.fill(count, topic, 1)
        before = anonymous_kib(system.broker.pid)
        system.reported()
        with Bystander() as bystander:
            taken, seconds, median, most, longest = load.run("hold", at_once, HOLDERS, count, topic)
            load.rest()  # and what the loop does now and then, with so many in flight
            time.sleep(6)
            pauses = system.reported()
        bytes_each = (anonymous_kib(system.broker.pid) - before) * 1024 / max(1, taken)
        load.keep(f"held {at_once} bytes", bytes_each)
        load.keep(f"held {at_once} pause", pauses["longest_ms"])
        load.keep(f"held {at_once} own", pauses["longest_own_ms"])
        load.keep(f"held {at_once} idle", bystander.longest_ms)
        load.say(
            f"{taken:,.0f} in flight, popped {at_once} at once in {seconds:.0f} s: {bytes_each:.0f} bytes of own "
            f"memory each; longest pause of the loop {pauses['longest_own_ms']:.1f} ms of its own, by the clock "
            f"{pauses['longest_ms']:.1f} ms (an idle process: {bystander.longest_ms:.1f} ms); another "
            f"request meanwhile: p50 {median / 1e3:.2f} ms, "
            f"p99 {most / 1e3:.2f} ms, longest {longest / 1e3:.1f} ms"
        )


def table(found: dict[str, Figures]) -> list[str]:
    lines = ["| | unit | ArrowMQ | Apache 5.5.0 | ratio | goal | met |", "|---|---|---:|---:|---:|---|---|"]
    ours, theirs = found.get("arrowmq", {}), found.get("apache", {})
    for goal in GOALS:
        if goal.figure not in ours and goal.figure not in theirs:
            continue
        of_rounds = max if goal.worst else statistics.median
        own = of_rounds(ours[goal.figure]) if goal.figure in ours else None
        peer = statistics.median(theirs[goal.figure]) if goal.figure in theirs else None
        ratio, aim, met = ("—", "", None) if own is None else goal.judged(own, peer)
        cells = [text_of(own), text_of(peer), ratio, aim, {True: "yes", False: "**no**", None: "—"}[met]]
        lines.append(f"| {' | '.join([goal.title, goal.unit, *cells])} |")
    return lines


def text_of(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def keep(found: dict[str, Figures], about: dict[str, Any], options: argparse.Namespace) -> str:
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    settings = (
        f"Messages of {BODY_BYTES} bytes, {QUEUES} queues, {WORKERS} connections, medians of {options.rounds} rounds."
    )
    text = "\n".join(["# Pops and acks beside the Apache broker", "", facts, "", settings, "", *table(found), ""])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pop.md").write_text(text)
    (RESULTS / "pop.json").write_text(
        json.dumps({"machine": about, "options": vars(options), "figures": found}, indent=1)
    )
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=("arrowmq", "apache"), action="append")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=1_000_000, help="0: leave that out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java", action="store_true", help="the Java client as well")
    parser.add_argument("--as-it-is", action="store_true", help="with free memory as the machine has it")
    options = parser.parse_args()
    about = report.machine()
    found: dict[str, Figures] = {}
    for kind in (ArrowMQ, Apache):
        if (options.on and kind.name not in options.on) or not options.messages:
            continue
        if not options.as_it_is:
            touch_free_memory()
        name = {"brokerName": BROKER} if kind is Apache else {}
        with kind(brokerFastFailureEnable=False, **name) as system:
            measure(system, options, found.setdefault(kind.name, {}))
    if options.in_flight and "arrowmq" in (options.on or ["arrowmq"]):
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder, Watched(Path(folder) / "figures") as watched:
                hold(watched, options.in_flight, found.setdefault("arrowmq", {}))
    print(keep(found, about, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What pop costs: rate and broker CPU a message, end-to-end latency, and memory and pauses with many in flight.

    python -m benchmarks.pop [--on arrowmq] [--messages N] [--in-flight N] [--java]

Each system in turn (ArrowMQ, Apache's broker), in one run. A raw generator in C (`popgen.c`) warms it up; a backlog
is popped 32 at a time and acknowledged in batches, then one at a time with single acks; then messages are sent at a
steady rate to consumers that long-poll; then many messages are popped and left, while another connection asks something
every millisecond, and the memory of the process is looked at. With --java the Java client pops the backlog as well.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from oracle import java

from benchmarks import native
from benchmarks.silent_connections import cpu_s
from benchmarks.systems import Apache, ArrowMQ, System

BROKER, TOPIC, GROUP = "broker-a", "pop_bench", "pop_bench_group"
QUEUES, BODY_BYTES = 4, 1024
WORKERS, CONSUMERS = 16, 4
RATE, LATENCY_S = 2_000, 10
HERE = Path(__file__).resolve().parent


class Load:
    def __init__(self, system: System) -> None:
        self.system = system
        self.asker = system.asker()

    def fill(self, count: int, topic: str = TOPIC, body: int = BODY_BYTES) -> None:
        self._run("fill", body, WORKERS, count, topic)

    def _run(self, mode: str, number: int, workers: int, amount: int, topic: str = TOPIC) -> list[float]:
        command = [str(native.program("popgen")), "127.0.0.1", str(self.system.port), topic, GROUP, mode]
        command += [str(number), str(workers), str(amount)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
        return [float(word) for word in ended.stdout.split()]

    def say(self, text: str) -> None:
        print(f"{self.system.name:8} {text}", flush=True)

    def drain(self, count: int, at_once: int, *, is_warm_up: bool = False) -> None:
        self.fill(count)
        used_s = cpu_s(self.system.broker.pid)
        taken, seconds, *_ = self._run("drain", at_once, WORKERS, count)
        cpu_us = (cpu_s(self.system.broker.pid) - used_s) / max(1, taken) * 1e6
        if not is_warm_up:
            self.say(f"pop {at_once:2} + ack: {taken / seconds:9,.0f} msg/s, {cpu_us:7.1f} us broker CPU a message")

    def latency(self) -> None:
        used_s = cpu_s(self.system.broker.pid)
        taken, _, median, most, longest = self._run("latency", RATE, CONSUMERS, LATENCY_S)
        cpu_us = (cpu_s(self.system.broker.pid) - used_s) / max(1, taken) * 1e6
        self.say(
            f"latency at {RATE:,}/s with long polling: p50 {median / 1e3:.2f} ms, p99 {most / 1e3:.2f} ms, "
            f"longest {longest / 1e3:.1f} ms; {cpu_us:.1f} us broker CPU a message"
        )

    def hold(self, count: int, at_once: int) -> None:
        topic = f"{TOPIC}_hold_{at_once}"
        self.asker.create_topic(topic, QUEUES)
        self.fill(count, topic, 1)
        before = own_kib(self.system.broker.pid)
        taken, seconds, median, most, longest = self._run("hold", at_once, WORKERS, count, topic)
        grown = (own_kib(self.system.broker.pid) - before) * 1024
        self.say(
            f"{taken:,.0f} in flight, popped {at_once} at once in {seconds:.0f} s: {grown / max(1, taken):.0f} bytes "
            f"of own memory each; another request meanwhile: p50 {median / 1e3:.2f} ms, p99 {most / 1e3:.2f} ms, "
            f"longest {longest / 1e3:.1f} ms"
        )

    def java(self, count: int) -> None:
        """Apache's Java client with direct pop calls, the same number of threads."""
        classpath = java.compiled([HERE / "java" / "PopLoad.java"])
        for at_once, amount in ((32, count), (1, count // 8)):
            self.fill(amount)
            arguments = [self.system.namesrv, self.system.address, BROKER, TOPIC, GROUP]
            arguments += [str(at_once), str(WORKERS), str(amount)]
            command, env = java.command("PopLoad", arguments, self.system.folder / "java", classpath=classpath)
            used_s = cpu_s(self.system.broker.pid)
            ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
            if ended.returncode:
                raise RuntimeError(f"PopLoad: {ended.stderr[-2000:]}")
            taken, seconds = (float(word) for word in ended.stdout.split()[-2:])
            cpu_us = (cpu_s(self.system.broker.pid) - used_s) / max(1, taken) * 1e6
            rate = taken / seconds
            self.say(f"Java client, pop {at_once:2} + ack: {rate:9,.0f} msg/s, {cpu_us:7.1f} us broker CPU a message")


def own_kib(pid: int) -> int:
    """Anonymous memory of a process: not the mapped files."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not tell how much memory a process has of its own")


def measure(system: System, messages: int, in_flight: int, *, with_java: bool) -> None:
    load = Load(system)
    load.asker.create_topic(TOPIC, QUEUES)
    load.drain(messages // 2, 32, is_warm_up=True)
    load.drain(messages // 8, 1, is_warm_up=True)
    load.drain(messages, 32)
    load.drain(messages // 4, 1)
    load.latency()
    if with_java:
        load.java(messages)
    if in_flight:
        load.hold(in_flight, 32)
        load.hold(in_flight // 5, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=("arrowmq", "apache"), action="append")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=1_000_000)
    parser.add_argument("--java", action="store_true", help="the Java client as well")
    options = parser.parse_args()
    for kind in (ArrowMQ, Apache):
        if options.on and kind.name not in options.on:
            continue
        name = {"brokerName": BROKER} if kind is Apache else {}
        system = kind(brokerFastFailureEnable=False, **name)
        try:
            system.start()
            measure(system, options.messages, options.in_flight, with_java=options.java)
        finally:
            system.stop()


if __name__ == "__main__":
    main()

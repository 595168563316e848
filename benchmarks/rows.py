"""The rows of the table: one piece of work each, with the goal that it is held against."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import ClassVar

from benchmarks import loads
from benchmarks.asking import GET_ROUTE, Asker
from benchmarks.loads import QUEUES, Metrics, Pace
from benchmarks.memory import touch_free_memory
from benchmarks.systems import System


@dataclass(frozen=True)
class Goal:
    """What the ratio of ArrowMQ's figure to the peer's must be: at least or at most this; neither is for comparison."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    peer: str = "apache"

    def met(self, ratio: float) -> bool | None:
        if self.at_least is None and self.at_most is None:
            return None
        return ratio >= self.at_least if self.at_least is not None else ratio <= (self.at_most or 0)

    def __str__(self) -> str:
        if self.at_least is None and self.at_most is None:
            return f"beside {self.peer}"
        bound = f">= {self.at_least:g}x" if self.at_least is not None else f"<= {self.at_most:.3g}x"
        return f"{self.metric} {bound}" + ("" if self.peer == "apache" else f" of {self.peer}")


class Row(ABC):
    """One piece of work, on a broker that is set to `flush`. Rows with the same `shared` need the same one.

    `times` a round each system is measured: more often where single figures differ so much that a median of three
    says little."""

    title: ClassVar[str]
    goals: ClassVar[tuple[Goal, ...]]
    flush: ClassVar[str] = "ASYNC_FLUSH"
    shared: ClassVar[str] = ""
    times: ClassVar[int] = 1
    systems: ClassVar[tuple[str, ...]] = ("arrowmq", "apache")

    @abstractmethod
    def measure(self, system: System, pace: Pace) -> Metrics:
        """The figures of this work on a running system."""


class JavaSend(Row):
    """Apache's benchmark Producer."""

    program: ClassVar[str] = "Producer"
    threads: ClassVar[int] = 16
    size: ClassVar[int] = 1024
    batch: ClassVar[int] = 1
    json_headers: ClassVar[bool] = False

    def measure(self, system: System, pace: Pace) -> Metrics:
        topic = type(self).__name__
        arguments = ["-t", topic, "-w", str(self.threads), "-s", str(self.size)]
        if self.batch > 1:
            arguments += ["-b", str(self.batch)]
        with closing(system.asker()) as asker:
            asker.create_topic(topic, QUEUES)
            with loads.java_program(self.program, system, *arguments, json_headers=self.json_headers):
                return loads.window(system, lambda: asker.stored(topic, QUEUES), pace)


class Send16(JavaSend):
    title = "Java Producer, 16 threads, 1 KiB, sync"
    times = 3  # client and broker wake each other all the time: single rates differ by a half, on both sides
    goals = (Goal("rate", at_least=3), Goal("cpu_us", at_most=1 / 8))


class Send64(JavaSend):
    title = "Java Producer, 64 threads, 1 KiB, sync"
    threads = 64
    goals = (Goal("rate", at_least=1.8), Goal("cpu_us", at_most=1 / 5))


class Send16Json(JavaSend):
    title = "Java Producer, 16 threads, 1 KiB, JSON headers"
    json_headers = True
    goals = (Goal("rate", at_least=2.5), Goal("cpu_us", at_most=1 / 6))


class Batch16(JavaSend):
    title = "Java BatchProducer, 16 threads, 32 x 128 B"
    program, size, batch = "BatchProducer", 128, 32
    goals = (Goal("rate", at_least=2), Goal("cpu_us", at_most=1 / 8))


class SyncFlush64(JavaSend):
    title = "SYNC_FLUSH, Java Producer, 64 threads, 1 KiB"
    threads = 64
    flush = "SYNC_FLUSH"
    goals = (Goal("rate", at_least=1.5),)


class RawSend(Row):
    title = "raw generator, 64 connections, 32 in flight each, 1 KiB"
    goals = (Goal("rate", at_least=6), Goal("cpu_us", at_most=3, peer="bare"))
    systems = ("arrowmq", "apache", "bare")

    def measure(self, system: System, pace: Pace) -> Metrics:
        topic = type(self).__name__
        if system.name != "bare":
            with closing(system.asker()) as asker:
                asker.create_topic(topic, QUEUES)
        # 2,048 requests at once overrun the Apache broker while it is cold: it refuses some until it is warm.
        if system.name == "apache":
            loads.raw_send(system, topic, connections=16, inflight=4, seconds=pace.warm_s)
        else:
            loads.raw_send(system, topic, seconds=1)
        if pace.prepares_memory:
            touch_free_memory()
        return loads.raw_send(system, topic, count=pace.raw)


class RawPull(Row):
    title = "pulling a backlog of 1 KiB messages, raw generator, 8 queues"
    goals = (Goal("rate", at_least=3), Goal("cpu_us", at_most=1 / 10), Goal("cpu_us", peer="bare"))
    systems = ("arrowmq", "apache", "bare")
    shared = "backlog"

    def measure(self, system: System, pace: Pace) -> Metrics:
        topic = "Backlog"
        if system.name == "bare":
            loads.raw_send(system, topic, connections=8, inflight=8, count=pace.backlog)
            backlog = pace.backlog
        else:
            backlog = self._fill(system, topic, pace)
        loads.raw_pull(system, topic, backlog // 10)
        return loads.raw_pull(system, topic, backlog)

    def _fill(self, system: System, topic: str, pace: Pace) -> int:
        with closing(system.asker()) as asker:
            asker.create_topic(topic, QUEUES)
            # Queue by queue as many: the generator goes round, and sends again what a busy broker refused.
            while (missing := pace.backlog - asker.stored(topic, QUEUES)) > 0:
                loads.raw_send(system, topic, connections=8, inflight=8, count=max(missing, 1000))
            return min(asker.stored_in(topic, queue) for queue in range(QUEUES)) * QUEUES


class JavaPush(Row):
    """Apache's benchmark Consumer on the backlog that RawPull left; the middle of the way is measured."""

    title = "Java push consumer on that backlog"
    goals = (Goal("rate", at_least=1), Goal("cpu_us", at_most=1 / 8))
    shared = RawPull.shared

    def measure(self, system: System, pace: Pace) -> Metrics:
        topic, group = "Backlog", "bench_push"
        with closing(system.asker()) as asker:
            total = asker.stored(topic, QUEUES)

            def reached(part: float) -> tuple[float, float, int]:
                deadline = time.monotonic() + 300
                while (place := asker.consumed(group, topic, QUEUES)) < total * part:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"the consumer stands at {place} of {total}")
                    time.sleep(0.25)  # to ask costs the broker something, too
                return time.monotonic(), system.broker.cpu_seconds(), place

            with loads.java_program("Consumer", system, "-t", topic, "-g", group, "-p", "false"):
                began, cpu, first = reached(0.05)
                ended, cpu_after, last = reached(0.9)
        return loads.metrics(last - first, ended - began, cpu_after - cpu)


class Latency(Row):
    title = "end-to-end latency at 2,000 msg/s, 1 KiB"
    goals = tuple(Goal(metric, at_most=1) for metric in ("p50_ms", "p99_ms", "p999_ms"))

    def measure(self, system: System, pace: Pace) -> Metrics:
        topic = type(self).__name__
        with closing(system.asker()) as asker:
            asker.create_topic(topic, QUEUES)
        said, _ = loads.raw(system, "latency", topic, 2000, 1024, pace.warm_s + pace.window_s)
        return {name: said[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")}


class IdleMemory(Row):
    title = "own (anonymous) memory, idle"
    goals = (Goal("anonymous_mib", at_most=1 / 6),)

    def measure(self, system: System, pace: Pace) -> Metrics:
        memory = system.broker.memory_kib()
        return {"anonymous_mib": memory["anonymous"] / 1024, "rss_mib": memory["rss"] / 1024}


class LoadedMemory(IdleMemory):
    title = "own (anonymous) memory, after the load"
    shared = RawPull.shared


class IdleConnections(Row):
    title = "idle CPU with 1,000 connections"
    goals = (Goal("cpu_ms_per_s", at_most=1 / 5),)
    connections: ClassVar[int] = 1000

    def measure(self, system: System, pace: Pace) -> Metrics:
        host, _, port = system.address.rpartition(":")
        with ExitStack() as stack:
            for _ in range(self.connections):
                stack.enter_context(socket.create_connection((host, int(port)), 10))
            time.sleep(pace.settle_s)
            began, cpu = time.monotonic(), system.broker.cpu_seconds()
            time.sleep(pace.window_s)
            spent, lasted = system.broker.cpu_seconds() - cpu, time.monotonic() - began
        return {"cpu_ms_per_s": max(spent, 0.001) / lasted * 1000}


class StartUp(Row):
    """From the start of the broker's process to the first message sent and pulled; on a visit of its own."""

    title = "start to first message consumed"
    goals = (Goal("seconds", at_most=1 / 8),)
    flush = "START"

    def measure(self, system: System, pace: Pace) -> Metrics:
        system.prepare()
        began = time.monotonic()
        starting = system.broker
        starting.launch()
        while not _first_message(system):
            if time.monotonic() - began > 120:
                raise RuntimeError(f"{system.name} took no message for 120 s")
            time.sleep(0.005)
        return {"seconds": time.monotonic() - began}


def _first_message(system: System) -> bool:
    try:
        with closing(Asker(system.namesrv, 2)) as names:
            if names.ask(GET_ROUTE, topic="TBW102")[0] != 0:
                return False
        with closing(Asker(system.address, 2)) as broker:
            return broker.send("First", b"first") == 0 and bool(broker.pull("First", 0))
    except OSError:
        return False


#: What writes so much that it shows whether the host had handed out the memory before.
UNPREPARED_ROWS: tuple[type[Row], ...] = (Send64, Batch16)

ROWS: tuple[type[Row], ...] = (
    IdleMemory,
    IdleConnections,
    Latency,
    Send16,
    Send64,
    Send16Json,
    Batch16,
    RawSend,
    RawPull,
    JavaPush,
    LoadedMemory,
    SyncFlush64,
    StartUp,
)

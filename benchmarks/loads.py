"""The clients that drive a broker: Apache's own benchmark programs, unmodified, and the raw load generator."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import java

from benchmarks import native
from benchmarks.memory import touch_free_memory
from benchmarks.systems import System

PACKAGE = "org.apache.rocketmq.example.benchmark"
# The client must not be the limit for want of memory; the machine's own choice of collector otherwise.
CLIENT_JVM = ("-Xms512m", "-Xmx2g")
QUEUES = 8
Metrics = dict[str, float]


@dataclass(frozen=True)
class Pace:
    """How long things take: warm-up and window of a measurement, and how large a backlog is."""

    warm_s: float
    window_s: float
    backlog: int
    rounds: int
    raw: int  # messages of the raw generator
    settle_s: float  # until a broker is idle that has just started: a Java program still compiles itself
    prepares_memory: bool = True  # free memory is touched before a measurement (memory.py); else it is as found


FULL = Pace(warm_s=12, window_s=8, backlog=1_000_000, rounds=3, raw=1_500_000, settle_s=20)
QUICK = Pace(warm_s=7, window_s=4, backlog=400_000, rounds=1, raw=500_000, settle_s=8)


@contextmanager
def java_program(name: str, system: System, *arguments: str, json_headers: bool = False) -> Iterator[None]:
    """One of Apache's benchmark programs, running until the block ends."""
    main, before = f"{PACKAGE}.{name}", list[str]()
    classpath = java.jars()
    if json_headers:
        classpath = java.compiled([Path(__file__).resolve().parent / "java" / "JsonFirst.java"])
        main, before = "JsonFirst", [main]
    with _running(main, system, *before, "-n", system.namesrv, *arguments, classpath=classpath):
        yield


@contextmanager
def paced_producer(system: System, topic: str, threads: int, size: int, rate: int) -> Iterator[None]:
    """A Java producer that sends at a steady rate, running until the block ends."""
    classpath = java.compiled([Path(__file__).resolve().parent / "java" / "PacedProducer.java"])
    words = ("-n", system.namesrv, "-t", topic, "-w", threads, "-s", size, "-r", rate)
    with _running("PacedProducer", system, *map(str, words), classpath=classpath):
        yield


@contextmanager
def _running(main: str, system: System, *arguments: str, classpath: str) -> Iterator[None]:
    folder = system.folder / "client"
    folder.mkdir(exist_ok=True)
    command, env = java.command(main, list(arguments), folder, classpath=classpath, options=CLIENT_JVM)
    log = folder / f"{main.rpartition('.')[2]}.out"
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{main} ended early:\n{log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()


def window(system: System, count: Callable[[], int], pace: Pace) -> Metrics:
    """Rate and broker CPU over the window, after the warm-up; `count` says how many messages there were so far."""
    deadline = time.monotonic() + 60
    while count() == 0:
        if time.monotonic() > deadline:
            raise RuntimeError("no message came within 60 s")
        time.sleep(0.1)
    time.sleep(pace.warm_s)
    if pace.prepares_memory:
        touch_free_memory()
    time.sleep(1)
    began, cpu, messages = time.monotonic(), system.broker.cpu_seconds(), count()
    time.sleep(pace.window_s)
    ended, cpu_after, messages_after = time.monotonic(), system.broker.cpu_seconds(), count()
    return metrics(messages_after - messages, ended - began, cpu_after - cpu)


def metrics(messages: int, seconds: float, cpu_s: float) -> Metrics:
    return {"rate": messages / seconds, "cpu_us": cpu_s / max(messages, 1) * 1e6, "messages": messages}


def raw(system: System, *arguments: object, **environment: str) -> tuple[dict[str, Any], float]:
    """Runs the load generator; gives what it says and the CPU seconds that the broker used meanwhile."""
    mode, *rest = arguments
    host, _, port = system.address.rpartition(":")
    command = [str(native.program("loadgen")), str(mode), host, port, *map(str, rest)]
    before = system.broker.cpu_seconds()
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
    after = system.broker.cpu_seconds()
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said, after - before


def raw_send(
    system: System,
    topic: str,
    *,
    connections: int = 64,
    inflight: int = 32,
    size: int = 1024,
    seconds: float = 0,
    count: int = 0,
    header: str = "binary",
    batch: int = 1,
    topics: int = 1,
) -> Metrics:
    words = ("send", topic, QUEUES, connections, inflight, size, seconds, count, header, batch)
    said, cpu = raw(system, *words, LOADGEN_TOPICS=str(topics))
    return {**metrics(said["sent"], said["seconds"], cpu), "refused": said["failed"]}


def raw_pull(system: System, topic: str, count: int, *, most: int = 32, header: str = "binary") -> Metrics:
    said, cpu = raw(system, "pull", topic, QUEUES, most, count, header)
    return metrics(said["pulled"], said["seconds"], cpu)

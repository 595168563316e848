"""`python -m benchmarks.replicas [--systems NAME …] [--parts PART …]`: what a slave costs, our pair and Apache's.

One pair after the other in fresh folders, with the same load: Apache's own benchmark Producer (64 threads) and the raw
generator (64 connections, 8 in flight each), messages of 1 KiB.

  async     ASYNC_MASTER with a slave: CPU a message of both
  adds      of ours, what the slave adds to its master's CPU a message: the same process without it, with it and without
            it again, at the same rate of messages. Driven as hard as it can, a broker alone takes more messages at a
            time, each for less, and the difference would count against the slave
  lag       of the same pair, at 2,000 messages a second: how long the slave's queue lags behind the master's
  sync      SYNC_MASTER, inSyncReplicas=2: rate
  catch-up  a slave that has nothing of several GiB: bytes a second, beside a plain copy of the files over loopback.
            Apache's master gives an empty slave its last file alone, so there the slave has a first message, and was
            away while the rest was written
  ten       ten slaves at once (of ours): CPU a message of the master and of each

Run it alone on the machine; the table that it ends with goes to bench-results/replicas.md.
"""

from __future__ import annotations

import argparse
import bisect
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from oracle import apache, arrow
from oracle.java import Value
from oracle.ports import broker_port
from oracle.process import Server

from benchmarks import loads
from benchmarks.__main__ import RESULTS, say
from benchmarks.asking import Asker
from benchmarks.loads import QUEUES, Metrics, metrics
from benchmarks.memory import touch_free_memory
from benchmarks.systems import APACHE_JVM, SYSTEMS, System

MASTER: dict[str, Value] = {"slaveReadEnable": True}
SYNC: dict[str, Value] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
APACHE_ONLY: dict[str, Value] = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30_000}
TOPIC, ONE_QUEUE = "Replicated", "OneQueue"
RUNTIME_INFO = 28
RATE = 2000
# What our pair carries easily beside its client on two cores: some 60 % of what it takes at most.
JAVA_RATE, RAW_RATE = 16_000, 80_000
LARGE = 16_384
Found = dict[str, Metrics]
Measure = Callable[[list[Server]], Metrics]


def slave_of(system: System, number: int = 1) -> Server:
    config: dict[str, Value] = {"brokerRole": "SLAVE", "brokerId": number, "slaveReadEnable": True}
    folder, port = system.folder / f"slave{number}", broker_port()
    if system.name == "apache":
        return apache.broker(
            folder,
            port,
            system.namesrv,
            None,
            options=APACHE_JVM,
            **{**APACHE_ONLY, **config, "brokerName": "broker-a"},
        )
    return arrow.broker(folder, port, system.namesrv, **config)


def end_of(asker: Asker) -> int:
    """Where a broker's log ends."""
    code, _, body = asker.ask(RUNTIME_INFO)
    while code:  # under load Apache's broker may have no time for it
        time.sleep(0.2)
        code, _, body = asker.ask(RUNTIME_INFO)
    return int(json.loads(body)["table"]["commitLogMaxOffset"])


def caught_up(master: Server, slave: Server, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    with closing(Asker(master.address)) as ours, closing(Asker(slave.address)) as theirs:
        while end_of(theirs) < end_of(ours):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the slave at {slave.address} does not catch up")
            time.sleep(0.05)


class Cost:
    """CPU seconds of a master and its slaves, over a while."""

    def __init__(self, system: System, slaves: list[Server]) -> None:
        self._servers = [system.broker, *slaves]
        self._before = [server.cpu_seconds() for server in self._servers]
        self._began = time.monotonic()

    def of(self, messages: int, seconds: float | None = None) -> Metrics:
        took = seconds or time.monotonic() - self._began
        master, *slaves = (server.cpu_seconds() - cpu for server, cpu in zip(self._servers, self._before, strict=True))
        found = metrics(messages, took, master)
        if slaves:
            found["slave_cpu_us"] = statistics.mean(slaves) / max(1, messages) * 1e6
        return found


def raw(system: System, slaves: list[Server], seconds: float, inflight: int = 8, rate: int = 0) -> Metrics:
    touch_free_memory()
    environment = {"LOADGEN_RATE": str(rate)} if rate else {}
    cost = Cost(system, slaves)
    words = ("send", TOPIC, QUEUES, 64, inflight, 1024, seconds, 0, "binary", 1)
    said, _ = loads.raw(system, *words, **environment)
    for slave in slaves:
        caught_up(system.broker, slave)
    return {**cost.of(said["sent"], said["seconds"]), "failed": said["failed"]}


@contextmanager
def java(system: System, warm_s: float, seconds: float, rate: int = 0) -> Iterator[Measure]:
    """Apache's Producer, or one with a rate, warm; the block measures while it runs."""
    load = (
        loads.paced_producer(system, TOPIC, 64, 1024, rate)
        if rate
        else loads.java_program("Producer", system, "-t", TOPIC, "-w", "64", "-s", "1024")
    )
    with closing(system.asker()) as asker, load:
        first = asker.stored(TOPIC, QUEUES)
        while asker.stored(TOPIC, QUEUES) == first:
            time.sleep(0.05)
        time.sleep(warm_s)

        def measure(slaves: list[Server]) -> Metrics:
            touch_free_memory()
            time.sleep(1)
            cost, before = Cost(system, slaves), asker.stored(TOPIC, QUEUES)
            time.sleep(seconds)
            return cost.of(asker.stored(TOPIC, QUEUES) - before)

        yield measure


def added(system: System, measure: Measure) -> Metrics:
    """What a slave adds to its master, which is the same process all the while."""
    slave = slave_of(system)
    before = measure([])
    slave.start()
    try:
        caught_up(system.broker, slave)
        found = measure([slave])
    finally:
        slave.kill()
    after = measure([])
    alone = {f"alone_{key}": (before[key] + after[key]) / 2 for key in ("rate", "cpu_us")}
    return {**found, **alone, "added": found["cpu_us"] / alone["alone_cpu_us"] - 1}


def lag(system: System, slave: Server, seconds: float) -> Metrics:
    """For how long the master has had what the slave lacks, each time that the slave is asked for its queue's end."""
    sizes: tuple[list[tuple[int, float]], list[tuple[int, float]]] = [], []
    is_over = threading.Event()

    def watch(address: str, seen: list[tuple[int, float]]) -> None:
        with closing(Asker(address)) as asker:
            while not is_over.is_set():
                seen.append((asker.stored_in(ONE_QUEUE, 0), time.monotonic()))
                time.sleep(0.001)

    addresses = (system.broker.address, slave.address)
    watchers = [threading.Thread(target=watch, args=pair) for pair in zip(addresses, sizes, strict=True)]
    for watcher in watchers:
        watcher.start()
    loads.raw(system, "latency", ONE_QUEUE, RATE, 1024, seconds)
    is_over.set()
    for watcher in watchers:
        watcher.join()
    master = sizes[0]
    samples = []
    for has, at in sizes[1]:
        place = bisect.bisect_right(master, (has, float("inf")))  # the first time that it was seen with more
        if has and place < len(master):
            samples.append(max(0.0, at - master[place][1]) * 1000)
    samples.sort()
    return {"p50_ms": statistics.median(samples), "p99_ms": samples[int(len(samples) * 0.99)], "samples": len(samples)}


def plain_copy(files: list[Path], target: Path) -> float:
    """Bytes a second of the same files through a socket on loopback into a file: what `cp` over the network takes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def receive() -> None:
            connection, _ = listener.accept()
            buffer = memoryview(bytearray(1 << 20))
            with connection, target.open("wb") as out:
                while count := connection.recv_into(buffer):
                    out.write(buffer[:count])

        receiver = threading.Thread(target=receive)
        receiver.start()
        began, total = time.monotonic(), 0
        with socket.create_connection(listener.getsockname()) as sender:
            for path in files:
                with path.open("rb") as file:
                    total += sender.sendfile(file)
        receiver.join()
    target.unlink()
    return total / (time.monotonic() - began)


def catch_up(system: System, gibibytes: float) -> Metrics:
    slave = slave_of(system)
    with closing(system.asker()) as asker:
        asker.create_topic(TOPIC, QUEUES)
        loads.raw(system, "send", TOPIC, QUEUES, 1, 1, LARGE, 0, 8, "binary", 1)
        if system.name == "apache":
            slave.start()
            try:
                caught_up(system.broker, slave)
            finally:
                slave.kill()
        while (total := end_of(asker)) < gibibytes * (1 << 30):
            count = min(20_000, int((gibibytes * (1 << 30) - total) / LARGE) + 1)
            loads.raw(system, "send", TOPIC, QUEUES, 64, 8, LARGE, 0, count, "binary", 1)
    logs = sorted((system.folder / "commitlog").iterdir()) if system.name == "arrowmq" else []
    plain = [plain_copy(logs, system.folder / "copied")] if logs else []
    touch_free_memory()
    # From the first bytes to the last: neither the start of the process counts nor how soon it finds its master.
    seen: list[tuple[float, int]] = []
    slave.start()
    try:
        with closing(Asker(slave.address)) as asker:
            while not seen or seen[-1][1] < total:
                seen.append((time.monotonic(), end_of(asker)))
                time.sleep(0.05)
        cpu = slave.cpu_seconds()
    finally:
        slave.kill()
    began, first = next((sample for sample in reversed(seen) if sample[1] < total // 100), seen[0])
    found = {"bytes": total, "bytes_per_s": (total - first) / (seen[-1][0] - began), "slave_cpu_s": cpu}
    if logs:  # before and after: the disk may still be busy with what was written
        found["plain_copy_bytes_per_s"] = max(*plain, plain_copy(logs, system.folder / "copied"))
    return found


@contextmanager
def pair(name: str, slaves: int, /, **config: Value) -> Iterator[tuple[System, list[Server]]]:
    extra = APACHE_ONLY if name == "apache" else {}
    with SYSTEMS[name](**{**MASTER, **extra, **config}) as system:
        running = []
        try:
            for number in range(slaves):
                running.append(slave_of(system, number + 1).start())
            with closing(system.asker()) as asker:
                for topic, queues in ((TOPIC, QUEUES), (ONE_QUEUE, 1)):
                    asker.create_topic(topic, queues)
            yield system, running
        finally:
            for slave in running:
                slave.kill()


def measure(name: str, warm_s: float, seconds: float, gibibytes: float, parts: list[str]) -> Found:
    found: Found = {}

    def record(label: str, result: Metrics) -> None:
        found[label] = result
        say(f"{name:8} {label:11} " + json.dumps({key: round(value, 2) for key, value in result.items()}))

    if "async" in parts:
        with pair(name, 1) as (system, running):
            with java(system, warm_s, seconds) as measure_java:
                record("async java", measure_java(running))
            raw(system, running, seconds)
            record("async raw", raw(system, running, seconds))
            if "lag" in parts:
                record("lag", lag(system, running[0], seconds))
    if "adds" in parts and name == "arrowmq":
        with pair(name, 0) as (system, _):
            with java(system, warm_s, seconds, JAVA_RATE) as measure_java:
                record("adds java", added(system, measure_java))
            record("adds raw", added(system, lambda slaves: raw(system, slaves, seconds, rate=RAW_RATE)))
    if "sync" in parts:
        with pair(name, 1, **SYNC) as (system, running), java(system, warm_s, seconds) as measure_java:
            record("sync java", measure_java(running))
    if "catch-up" in parts:
        with pair(name, 0) as (system, _):
            record("catch-up", catch_up(system, gibibytes))
    if "ten" in parts and name == "arrowmq":
        with pair(name, 10) as (system, running):
            raw(system, running, seconds)
            record("ten raw", raw(system, running, seconds))
    return found


PARTS = ["async", "adds", "lag", "sync", "catch-up", "ten"]

# What is measured, of which part and by which name, and what our figure may be at most or must be at least, in parts of
# Apache's.
BESIDE_APACHE = (
    ("ASYNC_MASTER with a slave, Java: master, µs CPU a message", "async java", "cpu_us", "<=", 0.125),
    ("the same: slave", "async java", "slave_cpu_us", "<=", 0.125),
    ("ASYNC_MASTER with a slave, raw: master", "async raw", "cpu_us", "<=", 0.125),
    ("the same: slave", "async raw", "slave_cpu_us", "<=", 0.125),
    ("SYNC_MASTER, inSyncReplicas=2, Java: messages a second", "sync java", "rate", ">=", 2.5),
    ("lag at 2,000 messages a second, p99, ms", "lag", "p99_ms", "<=", 0.5),
    ("a slave that lacks 4 GiB, MB a second", "catch-up", "bytes_per_s", ">=", 3.0),
)


def is_met(ratio: float, relation: str, goal: float) -> str:
    return "yes" if (ratio <= goal if relation == "<=" else ratio >= goal) else "**no**"


def shown(value: float, metric: str) -> str:
    if metric == "bytes_per_s":
        value /= 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(found: dict[str, Found]) -> str:
    """Every figure that was measured, with its goal."""
    lines = ["| | ArrowMQ | Apache 5.5.0 | | goal | met |", "|---|---:|---:|---:|---|---|"]
    ours, theirs = found.get("arrowmq", {}), found.get("apache", {})
    for label, part, metric, relation, goal in BESIDE_APACHE:
        if part not in ours:
            continue
        mine = ours[part][metric]
        other = theirs.get(part, {}).get(metric)
        judged = "— | | |"
        if other is not None:
            judged = f"{mine / other:.3f} | {relation} {goal:g} | {is_met(mine / other, relation, goal)} |"
        lines.append(f"| {label} | {shown(mine, metric)} | {'—' if other is None else shown(other, metric)} | {judged}")
    for load, rate in (("java", JAVA_RATE), ("raw", RAW_RATE)):
        if metrics_of := ours.get(f"adds {load}"):
            lines.append(
                f"| what a slave adds to our master, {load}, at {metrics_of['rate']:,.0f} a second of {rate:,} wanted: "
                f"{metrics_of['alone_cpu_us']:.2f} alone | {metrics_of['cpu_us']:.2f} | | {metrics_of['added']:+.0%} | "
                f"<= +33 % | {is_met(metrics_of['added'], '<=', 1 / 3)} |"
            )
    if copied := ours.get("catch-up"):
        ratio = copied["bytes_per_s"] / copied["plain_copy_bytes_per_s"]
        lines.append(
            f"| the copy of 4 GiB beside a plain copy of the files over loopback, "
            f"{shown(copied['plain_copy_bytes_per_s'], 'bytes_per_s')} MB a second | "
            f"{shown(copied['bytes_per_s'], 'bytes_per_s')} | | {ratio:.2f} | >= 0.6 | {is_met(ratio, '>=', 0.6)} |"
        )
    if ten := ours.get("ten raw"):
        lines.append(
            "| ten slaves at once, raw: master, and each slave | "
            f"{ten['cpu_us']:.2f}, {ten['slave_cpu_us']:.2f} | | | | |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm", type=float, default=10, help="seconds of load before a pair is measured")
    parser.add_argument("--seconds", type=float, default=6, help="of each measurement")
    parser.add_argument("--gibibytes", type=float, default=4, help="that a slave catches up with")
    parser.add_argument("--systems", nargs="+", choices=["arrowmq", "apache"], default=["arrowmq", "apache"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    found = {
        name: measure(name, options.warm, options.seconds, options.gibibytes, options.parts) for name in options.systems
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "replicas.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "replicas.md").write_text(table(found) + "\n")
    say(table(found))


if __name__ == "__main__":
    main()

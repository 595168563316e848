"""`python -m benchmarks.replicas [--seconds S] [--systems NAME …]`: what a slave costs, on our pair and on Apache's.

Master and slave of each kind, one pair after the other in fresh folders, with the same raw generator:

  alone     the master without a slave: what the next line is held against
  async     ASYNC_MASTER with a slave: CPU a message of both
  sync      SYNC_MASTER, inSyncReplicas=2, 64 connections: rate
  lag       2,000 messages a second: how far behind the slave is, sampled every 10 ms
  catch-up  an empty slave that joins: bytes a second, beside a plain copy of the files over loopback
  ten       ten slaves at once: CPU a message of the master

Run it alone on the machine; what it prints goes to benchmarks/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracle import apache, arrow
from oracle.java import Value
from oracle.ports import broker_port
from oracle.process import Server

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import KVTable
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from benchmarks import loads
from benchmarks.__main__ import RESULTS, say
from benchmarks.loads import QUEUES, metrics
from benchmarks.systems import APACHE_JVM, SYSTEMS, System

MASTER: dict[str, Value] = {"slaveReadEnable": True}
APACHE_ONLY: dict[str, Value] = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30_000}
TOPIC = "BenchmarkTest"


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


def end_of(server: Server) -> int:
    async def ask() -> int:
        client = RemotingClient()
        try:
            answer = await client.invoke(server.address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 10)
            return int(fastjson.loads(answer.body, type=KVTable).table["commitLogMaxOffset"])
        finally:
            await client.close()

    return asyncio.run(ask())


def caught_up(master: Server, slave: Server, timeout_s: float = 300) -> float:
    """Seconds until the slave has all that the master has."""
    began = time.monotonic()
    while end_of(slave) < end_of(master):
        if time.monotonic() - began > timeout_s:
            raise RuntimeError("the slave does not catch up")
        time.sleep(0.05)
    return time.monotonic() - began


def send(
    system: System, seconds: float, slaves: list[Server], connections: int = 64, inflight: int = 8
) -> dict[str, float]:
    """A load, with the rate and the CPU a message of master and slaves."""
    words = (TOPIC, QUEUES, 64, inflight, 1024, seconds, 0, "binary", 1)
    before = [slave.cpu_seconds() for slave in slaves]
    said, cpu = loads.raw(system, "send", *words)
    found = metrics(said["sent"], said["seconds"], cpu)
    for slave in slaves:
        caught_up(system.broker, slave)
    for number, slave in enumerate(slaves):
        found[f"slave{number + 1}_cpu_us"] = (slave.cpu_seconds() - before[number]) / max(1, said["sent"]) * 1e6
    found["failed"] = said["failed"]
    return found


def lag(system: System, slave: Server, seconds: float) -> dict[str, float]:
    """How many bytes the slave is behind at 2,000 messages a second, as milliseconds of that load."""
    samples: list[float] = []
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.is_set():
            behind = max(0, end_of(system.broker) - end_of(slave))
            samples.append(behind / (2000 * 1300) * 1000)
            time.sleep(0.01)

    watcher = threading.Thread(target=sample)
    watcher.start()
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        loads.raw(system, "send", TOPIC, QUEUES, 8, 1, 1024, 0, 200, "binary", 1)
        sent += 200
        time.sleep(max(0.0, sent / 2000 - (time.monotonic() - began)))
    is_over.set()
    watcher.join()
    samples.sort()
    return {"p50_ms": statistics.median(samples), "p99_ms": samples[int(len(samples) * 0.99)]}


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


def measure(name: str, seconds: float, gibibytes: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = SYSTEMS[name]
    extra = APACHE_ONLY if name == "apache" else {}

    def with_pair(label: str, role: dict[str, Value], slaves: int, work: Callable[[System, list[Server]], Any]) -> None:
        with kind(**{**MASTER, **extra, **role}) as system:
            running = [slave_of(system, number + 1).start() for number in range(slaves)]
            try:
                found[label] = work(system, running)
                say(f"{name:8} {label:9} {json.dumps(found[label])}")
            finally:
                for slave in running:
                    slave.kill()

    def warm(system: System, slaves: list[Server]) -> dict[str, float]:
        send(system, seconds, slaves)
        return send(system, seconds, slaves)

    def one_each(system: System, slaves: list[Server]) -> dict[str, float]:
        send(system, seconds, slaves, 1)
        return send(system, seconds, slaves, 1)

    def lagging(system: System, slaves: list[Server]) -> dict[str, float]:
        send(system, seconds, slaves)
        return lag(system, slaves[0], seconds)

    sync: dict[str, Value] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    with_pair("alone", {}, 0, warm)
    with_pair("async", {}, 1, warm)
    with_pair(
        "sync",
        sync,
        1,
        lambda system, slaves: (send(system, seconds, slaves, 64, 1), send(system, seconds, slaves, 64, 1))[1],
    )
    with_pair("lag", {}, 1, lambda system, slaves: (send(system, seconds, slaves), lag(system, slaves[0], seconds))[1])

    def late(system: System, slaves: list[Server]) -> dict[str, float]:
        while end_of(system.broker) < gibibytes * (1 << 30):
            loads.raw(system, "send", TOPIC, QUEUES, 64, 8, 16_384, 0, 20_000, "binary", 1)
        total = end_of(system.broker)
        slave = slave_of(system, 1)
        began = time.monotonic()
        slave.start()
        try:
            caught_up(system.broker, slave)
            took = time.monotonic() - began
            cpu = slave.cpu_seconds()
        finally:
            slave.kill()
        logs = sorted((system.folder / "commitlog").iterdir()) if name == "arrowmq" else []
        bare = plain_copy(logs, system.folder / "copied") if logs else 0.0
        return {"bytes": total, "bytes_per_s": total / took, "slave_cpu_s": cpu, "plain_copy_bytes_per_s": bare}

    # Apache's master sends a new slave its last file alone: one file holds all of it.
    one_file: dict[str, Value] = {}
    if name == "apache":
        one_file["mappedFileSizeCommitLog"] = int((gibibytes + 1) * (1 << 30)) & ~4095
    with_pair("catch-up", one_file, 0, late)
    with_pair("ten", {}, 10 if name == "arrowmq" else 0, warm)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="of each load")
    parser.add_argument("--gibibytes", type=float, default=4, help="that an empty slave copies")
    parser.add_argument("--systems", nargs="+", choices=["arrowmq", "apache"], default=["arrowmq", "apache"])
    options = parser.parse_args()
    found = {name: measure(name, options.seconds, options.gibibytes) for name in options.systems}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "replicas.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

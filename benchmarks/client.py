"""`python -m benchmarks.client [--quick] [--loads one,16]`: ArrowMQ's client beside Java's and rocketmq-python-client.

All three send to and consume from the same Apache broker, in one run (the PyPI package through Apache's proxy).
Counted are messages a second and the CPU time of the client's own process a message. Before a load counts for anybody,
it is run once, so that no client pays for a broker whose code is not compiled yet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from oracle import apache, java
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

import arrowmq
from benchmarks.systems import APACHE_JVM

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "bench-results"
PYPI_PACKAGE = "rocketmq-python-client==5.1.2"


@dataclass(frozen=True)
class Load:
    name: str
    title: str
    body_bytes: int
    weight: float  # of the messages asked for
    clients: tuple[str, ...] = ("arrowmq", "java", "pypi")


LOADS = (
    Load("one", "send, one by one, 1 KiB", 1024, 0.2),
    Load("16", "send, 16 in flight, 1 KiB", 1024, 1),
    Load("256", "send, 256 in flight, 1 KiB", 1024, 1),
    Load("batch", "send, batches of 32, 128 B", 128, 4, ("arrowmq", "java")),
    Load("auto", "send, gathered by the client, 128 B", 128, 2, ("arrowmq", "java")),
    Load("consume", "consume a backlog, 1 KiB", 1024, 2),
)
#: The PyPI client is so much slower that equal numbers would take minutes.
PYPI_SHARE = 0.05


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, str]]:
    """The Apache NameServer, broker and proxy; gives the addresses of the NameServer and of the proxy."""
    names = apache.namesrv(folder / "namesrv", free_port())
    master = apache.broker(folder / "broker", broker_port(), names.address, options=APACHE_JVM)
    with names, master, proxy(folder / "proxy", free_port(1), names.address) as door:
        yield names.address, door.address


def proxy(folder: Path, port: int, namesrv: str) -> Server:
    """Apache's gRPC door in front of the broker."""
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": namesrv,
        "grpcServerPort": port,
        "remotingListenPort": port + 1,
        "localServeAddr": HOST,
    }
    path = folder / "conf" / "rmq-proxy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))
    command, env = java.command(
        f"{apache.PACKAGE}.proxy.ProxyStartup",
        ["-pm", "cluster", "-pc", str(path)],
        folder,
        classpath=java.jars(),
        options=APACHE_JVM,
    )
    return Server("proxy", command, folder, port=port, ready="startup successfully", env=env)


def pypi_python() -> Path:
    """An environment with the package that is compared to, made once."""
    folder = HERE.parent / "build" / PYPI_PACKAGE
    python = folder / "bin" / "python"
    if (folder / "whole").exists():
        return python
    venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PYPI_PACKAGE]
    subprocess.run(install, check=True, capture_output=True)
    (folder / "whole").touch()
    return python


async def prepare(namesrv: str, topic: str, messages: int, body_bytes: int) -> None:
    """A topic, with a backlog for a load that consumes."""
    async with (
        arrowmq.Admin(namesrv, request_timeout_s=30) as admin,
        arrowmq.Producer(namesrv, timeout_s=60, request_timeout_s=30) as producer,
    ):
        await admin.create_topic(topic, queues=8, attributes={"message.type": "NORMAL"})
        await admin.create_group(f"client_load_{topic}")
        body = bytes(body_bytes)
        for _ in range(0, messages, 64):
            await producer.send_batch([arrowmq.Message(topic, body) for _ in range(64)])


class Clients:
    """How each client is run: a command that prints one line of JSON."""

    def __init__(self, folder: Path, namesrv: str, door: str) -> None:
        self._folder, self._namesrv, self._door = folder, namesrv, door

    def command(self, client: str, topic: str, load: Load, messages: int) -> tuple[list[str], dict[str, str]]:
        # Java needs its warm-up to be compiled; a fifth more than it measures is plenty.
        warm_up = max(messages, 20_000) if client == "java" else max(messages // 5, 256)
        arguments = [topic, load.name, str(messages), str(load.body_bytes), str(warm_up)]
        if client == "arrowmq":
            return [sys.executable, "-m", "benchmarks.client_load", self._namesrv, *arguments], dict(os.environ)
        if client == "java":
            classpath = java.compiled([HERE / "java" / "ClientLoad.java"])
            folder = self._folder / "java"
            folder.mkdir(exist_ok=True)
            options = ("-Xms512m", "-Xmx1g")
            return java.command("ClientLoad", [self._namesrv, *arguments], folder, classpath=classpath, options=options)
        return [str(pypi_python()), str(HERE / "pypi_load.py"), self._door, *arguments], dict(os.environ)

    def run(self, client: str, load: Load, messages: int) -> dict[str, float]:
        messages = max(512, int(messages * load.weight * (PYPI_SHARE if client == "pypi" else 1)) // 512 * 512)
        topic = f"load_{client}_{load.name}_{time.monotonic_ns()}"
        asyncio.run(prepare(self._namesrv, topic, messages + 64 if load.name == "consume" else 0, load.body_bytes))
        command, env = self.command(client, topic, load, messages)
        done = subprocess.run(command, env=env, cwd=HERE.parent, capture_output=True, text=True, timeout=600)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{client} failed at {load.title}: {done.stdout[-500:]} {done.stderr[-2000:]}")
        used = json.loads(lines[-1])
        return {
            "messages_per_s": used["messages"] / used["seconds"],
            "cpu_us_per_message": used["cpu_s"] / used["messages"] * 1e6,
        }


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [
        "| load | client | messages/s | client CPU µs/message | ArrowMQ's rate is | ArrowMQ's CPU is |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for load in LOADS:
        by_client = results.get(load.name, {})
        ours = by_client.get("arrowmq")
        for client, used in by_client.items():
            row = f"| {load.title} | {client} | {used['messages_per_s']:,.0f} | {used['cpu_us_per_message']:,.1f} |"
            if ours is None or used is ours:
                rows.append(f"{row} | |")
                continue
            faster = ours["messages_per_s"] / used["messages_per_s"]
            cheaper = used["cpu_us_per_message"] / ours["cpu_us_per_message"]
            rows.append(f"{row} {faster:,.1f} x | 1/{cheaper:,.1f} |")
    return "\n".join(rows)


def measure(
    clients: Clients, loads: Sequence[Load], messages: int, rounds: int, say: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in range(rounds):
        for load in loads:
            if not number:
                clients.run("arrowmq", load, messages)
            for client in load.clients:
                try:
                    used = clients.run(client, load, messages)
                except RuntimeError as problem:
                    say(f"FAILED: {problem}")
                    continue
                runs.setdefault(load.name, {}).setdefault(client, []).append(used)
                say(f"{load.title}: {client} {used['messages_per_s']:,.0f}/s {used['cpu_us_per_message']:,.1f} µs")
    return {
        load: {
            client: {key: median(each[key] for each in used) for key in used[0]} for client, used in by_client.items()
        }
        for load, by_client in runs.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--messages", type=int, help="of a load of weight 1")
    parser.add_argument("--rounds", type=int, help="of which the medians count")
    parser.add_argument("--loads", help="only these, of " + ",".join(load.name for load in LOADS))
    options = parser.parse_args()
    wanted = options.loads.split(",") if options.loads else [load.name for load in LOADS]
    loads = [load for load in LOADS if load.name in wanted]
    if len(loads) != len(wanted):
        parser.error(f"unknown loads in {options.loads}")
    rounds = options.rounds or (1 if options.quick else 3)
    messages = options.messages or (10_240 if options.quick else 51_200)

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="bench-client-") as folder, servers(Path(folder)) as (namesrv, door):
        results = measure(Clients(Path(folder), namesrv, door), loads, messages, rounds, say)
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / "client.json"
    if options.loads and kept.exists():  # a part of a longer run: the other rows stay
        results = json.loads(kept.read_text()) | results
    kept.write_text(json.dumps(results, indent=1))
    (RESULTS / "client.md").write_text(table(results) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.proxy [--seconds S] [--systems NAME …] [--idle N] [--no-java]`: gRPC beside Apache's proxy.

Both have proxy and broker in one process, in fresh folders one after the other, with the same clients:

  raw   `grpc_load`, a Go program that knows of RocketMQ only its messages; 32 workers on four connections
  Java  RocketMQ's own client of the 5.x line (`java5`), 16 threads

A send is one message of 1 KiB, a receive asks for 32 messages and acknowledges each by a call of its own, as the
official clients do, or (raw) all by one. Each is warmed up for as long as it is measured (the Java client, which has to
compile itself, twice as long), then rate and CPU of the whole process count; of the Java client the median of three,
each a process of its own; memory at the end, and the time to start. Then N Telemetry streams are opened, each on a
connection of its own, and left idle. The table with its goals is printed and goes to `bench-results/proxy.md`, the
figures to `proxy.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from oracle import apache, arrow, grpc5, java, toolchain
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from arrowmq.client.admin import Admin
from benchmarks.report import machine

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "grpc_load"
JAVA_SOURCE = HERE / "java5" / "GrpcLoad.java"
RESULTS = HERE.parent / "bench-results"
JAVA_THREADS, JAVA_ROUNDS = 16, 3
OVERSHOOT = 32 * 32  # that the workers of a receive may take beyond what they are told
LEAST_MESSAGES = 20 * OVERSHOOT
Figures = dict[str, Any]
TOPIC = "bench"
GROUP = "bench-group"
IDLE_S = 10.0


def generator() -> Path:
    toolchain.require("go")
    content = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    folder = toolchain.home() / f"grpc-load-{hashlib.sha256(content).hexdigest()[:12]}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(SOURCE, fresh)
            toolchain.run(["go", "mod", "tidy"], 600, folder=fresh)
            toolchain.run(["go", "build", "-o", "load", "."], 900, folder=fresh)
    return folder / "load"


def apache_local(folder: Path, namesrv: str, port: int, proxy_port: int) -> Server:
    """Apache's proxy with a broker inside."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    broker = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": HOST,
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": folder / "store",
        "autoCreateTopicEnable": False,
    }
    (folder / "broker.conf").write_text("".join(f"{key}={java.text(value)}\n" for key, value in broker.items()))
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": proxy_port,
        "remotingListenPort": free_port(),
        "namesrvAddr": namesrv,
        "proxyMode": "LOCAL",
    }
    (folder / "rmq-proxy.json").write_text(json.dumps(proxy))
    files = ["-bc", str(folder / "broker.conf"), "-pc", str(folder / "rmq-proxy.json")]
    command, env = java.command(
        f"{apache.PACKAGE}.proxy.ProxyStartup",
        ["-pm", "local", "-n", namesrv, *files],
        folder,
        classpath=java.jars(),
        options=("-Xms1g", "-Xmx2g"),
        properties={"com.rocketmq.proxy.configPath": folder / "rmq-proxy.json"},
    )
    return Server("apache-proxy", command, folder, port=proxy_port, ready="startup successfully", env=env)


def load(address: str, *arguments: str, seconds: float) -> dict[str, Any]:
    command = [str(generator()), "-address", address, "-seconds", str(seconds), *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    if said.returncode:
        raise RuntimeError(f"the generator failed: {said.stderr}")
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def measure(server: Server, address: str, *arguments: str, seconds: float) -> Figures:
    before = server.cpu_seconds()
    found = load(address, *arguments, seconds=seconds)
    spent = server.cpu_seconds() - before
    if not found["messages"]:
        raise RuntimeError(f"nothing was done: {found['failures']}")
    done = found["messages"]
    figures = {"rate": done / max(found["seconds"], 1e-9), "cpu_us": spent / done * 1e6, "p99_ms": found["p99_ms"]}
    return {**figures, "messages": found["messages"], "failures": found["failures"]}


async def create(namesrv: str) -> None:
    """Topic and group; Apache's broker may need a while after its start until it is registered."""
    async with Admin(namesrv) as admin:
        for _ in range(300):
            if (await admin.cluster_info()).broker_addr_table:
                break
            await asyncio.sleep(0.2)
        await admin.create_topic(TOPIC, queues=8, attributes={"message.type": "NORMAL"})
        for group in (GROUP, f"{GROUP}-java"):
            await admin.create_group(group)


def idle(server: Server, address: str, count: int) -> dict[str, float]:
    """Memory a stream, and the share of a core that all of them take while nothing happens."""
    before = server.memory_kib()["anonymous"]
    command = [str(generator()), "-address", address, "-mode", "idle", "-count", str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "open":
            raise RuntimeError("the idle streams could not be opened")
        grown = server.memory_kib()["anonymous"] - before
        used = server.cpu_seconds()
        time.sleep(IDLE_S)
        return {"kib": grown / count, "cpu_percent": (server.cpu_seconds() - used) / IDLE_S * 100}
    finally:
        process.communicate("\n", timeout=60)


def java_classes() -> str:
    """The class path of the Java client with its load."""
    jars = grpc5.java_classes()
    folder = toolchain.home() / f"grpc-load-java-{hashlib.sha256(JAVA_SOURCE.read_bytes()).hexdigest()[:12]}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            fresh.mkdir()
            toolchain.run(["javac", "-nowarn", "-d", str(fresh), "-cp", jars, str(JAVA_SOURCE)], 300)
    return f"{folder}:{jars}"


def measure_java(server: Server, address: str, mode: str, folder: Path, seconds: float) -> Figures:
    command, env = java.command(
        "GrpcLoad",
        [address, mode, str(2 * seconds), str(seconds), str(JAVA_THREADS)],
        folder,
        classpath=java_classes(),
        options=("-Xmx512m",),
    )
    before, used = server.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3 * seconds + 90, check=False)
    spent, own = server.cpu_seconds() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line for line in said.stdout.splitlines() if line.startswith('{"messages"')]
    if not lines:
        raise RuntimeError(f"the Java client failed: {said.stdout[-1000:]} {said.stderr[-1000:]}")
    found = json.loads(lines[-1])
    if found["failed"] > found["messages"] / 1000:
        raise RuntimeError(f"{found['failed']} calls of the Java client failed: {found['failure']}")
    client_s = own.ru_utime + own.ru_stime - used.ru_utime - used.ru_stime
    messages = max(found["messages"], 1)
    return {
        "rate": found["rate"],
        "cpu_us": spent / messages * 1e6,
        "client_us": client_s / messages * 1e6,
        "messages": found["messages"],
    }


def run(name: str, seconds: float, idle_streams: int, *, with_java: bool) -> dict[str, Figures]:
    """All figures of one system, by what was done."""
    with tempfile.TemporaryDirectory() as folder:
        namesrv_port, port, proxy_port = free_port(), broker_port(), free_port()
        namesrv, address = f"{HOST}:{namesrv_port}", f"{HOST}:{proxy_port}"
        root = Path(folder)
        names = None
        if name == "apache":
            names = apache.namesrv(root / "n", namesrv_port).start()
            server = apache_local(root / "p", namesrv, port, proxy_port)
        else:
            server = arrow.server(root / "a", namesrv_port, port, proxy_port=proxy_port, autoCreateTopicEnable=False)
        try:
            began = time.monotonic()
            server.start()
            found: dict[str, Figures] = {"start": {"seconds": time.monotonic() - began}}
            asyncio.run(create(namesrv))
            time.sleep(2)  # Apache's broker registers a new topic a little later
            for group in (GROUP, f"{GROUP}-java"):  # so that both begin before the first message
                load(address, "-mode", "receive", "-group", group, "-workers", "1", seconds=1)
            warm = measure(server, address, "-mode", "send", seconds=seconds)
            found["send one, raw"] = measure(server, address, "-mode", "send", seconds=seconds)
            show(name, found, "send one, raw")
            sent = warm["messages"] + found["send one, raw"]["messages"]
            while sent < LEAST_MESSAGES:  # a slow machine
                sent += load(address, "-mode", "send", seconds=seconds)["messages"]
            share = str(int((sent - 4 * OVERSHOOT) / 4 * 0.9))
            for what, more in (("receive 32 and ack each, raw", []), ("receive 32 and ack all, raw", ["-together"])):
                arguments = ["-mode", "receive", "-messages", share, *more]
                measure(server, address, *arguments, seconds=seconds)
                found[what] = measure(server, address, *arguments, seconds=seconds)
                show(name, found, what)
            if with_java:
                for mode, what in (("send", "send one, Java"), ("receive", "receive 32 and ack each, Java")):
                    rounds = []
                    for _ in range(JAVA_ROUNDS):
                        rounds.append(measure_java(server, address, mode, root / "java", seconds))
                        show(name, {what: rounds[-1]}, what)
                    found[what] = {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}
            found["memory"] = {"mib": server.memory_kib()["anonymous"] / 1024}
            if idle_streams:
                found["idle streams"] = idle(server, address, idle_streams)
            print(f"{name:8} {found['start']} {found['memory']} {found.get('idle streams', '')}", flush=True)
            return found
        finally:
            server.stop()
            if names is not None:
                names.stop()


def show(name: str, all_found: dict[str, Figures], what: str) -> None:
    found = all_found[what]
    figures = f"{found['rate']:9,.0f} messages/s {found['cpu_us']:8.1f} µs CPU a message ({found['messages']} messages)"
    if "client_us" in found:
        figures += f", the client {found['client_us']:.1f} µs"
    print(f"{name:8} {what:30} {figures} {found.get('failures') or ''}", flush=True)


#: What was done, which figure of it, and the largest or smallest ratio of ours to Apache's; 0: only shown
GOALS = [
    ("send one, raw", "rate", ">=", 3),
    ("send one, raw", "cpu_us", "<=", 1 / 5),
    ("receive 32 and ack each, raw", "rate", ">=", 3),
    ("receive 32 and ack each, raw", "cpu_us", "<=", 1 / 5),
    ("receive 32 and ack all, raw", "rate", ">=", 3),
    ("receive 32 and ack all, raw", "cpu_us", "<=", 1 / 5),
    ("send one, Java", "rate", ">=", 3),
    ("send one, Java", "cpu_us", "<=", 1 / 5),
    ("send one, Java", "client_us", "", 0),
    ("receive 32 and ack each, Java", "rate", ">=", 3),
    ("receive 32 and ack each, Java", "cpu_us", "<=", 1 / 5),
    ("receive 32 and ack each, Java", "client_us", "", 0),
    ("memory", "mib", "<=", 1 / 8),
    ("start", "seconds", "<=", 1 / 8),
]
NAMES = {
    "rate": "messages/s",
    "cpu_us": "µs CPU a message",
    "client_us": "µs CPU of the client a message, with its start",
    "mib": "MiB of its own",
    "seconds": "s",
}
IDLE_KIB = 20.0


def table(found: dict[str, dict[str, Figures]]) -> str:
    lines = ["| work | figure | ArrowMQ | Apache | ratio | goal | met |", "|---|---|---:|---:|---:|---|---|"]
    own, other = found.get("arrowmq", {}), found.get("apache", {})
    for what, figure, sign, goal in GOALS:
        ours, theirs = (each.get(what, {}).get(figure) for each in (own, other))
        aim = "" if not goal else f"{sign} {goal:g}" if goal >= 1 else f"{sign} 1/{1 / goal:g}"
        cells = [f"{value:,.2f}" if value is not None else "—" for value in (ours, theirs)]
        ratio = ours / theirs if ours is not None and theirs else None
        met = (
            "—"
            if ratio is None or not goal
            else "yes"
            if (ratio >= goal if sign == ">=" else ratio <= goal)
            else "**no**"
        )
        lines.append(
            f"| {what} | {NAMES[figure]} | {cells[0]} | {cells[1]} | {'—' if ratio is None else f'{ratio:.3f}'} "
            f"| {aim} | {met} |"
        )
    ours, theirs = (each.get("idle streams", {}).get("kib") for each in (own, other))
    if ours is not None:
        beside = f"{theirs:.1f}" if theirs is not None else "—"
        met = "yes" if ours <= IDLE_KIB else "**no**"
        lines.append(f"| idle Telemetry streams | KiB each | {ours:.1f} | {beside} | | <= {IDLE_KIB:g} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--systems", nargs="+", default=["arrowmq", "apache"], choices=["arrowmq", "apache"])
    parser.add_argument("--idle", type=int, default=5000, metavar="N", help="open N idle Telemetry streams at the end")
    parser.add_argument("--no-java", action="store_true", help="without the Java client")
    given = parser.parse_args()
    generator()
    if not given.no_java:
        java_classes()
    found = {name: run(name, given.seconds, given.idle, with_java=not given.no_java) for name in given.systems}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "proxy.json").write_text(json.dumps({"machine": machine(), "figures": found}, indent=1))
    (RESULTS / "proxy.md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()

"""`python -m benchmarks.proxy [--seconds S] [--systems NAME …] [--idle N]`: gRPC beside Apache's local proxy.

Both have proxy and broker in one process, in fresh folders one after the other, with the same generator: `grpc_load`,
a Go program that knows of RocketMQ only its messages. A send is one message of 1 KiB, a receive asks for 32 messages
and acknowledges each by a call of its own, as the official clients do, or all by one; 32 workers on four connections.
Each is warmed up for as long as it is measured, then rate and CPU of the whole process count; memory at the end, and
the time to start. `--idle N` opens N Telemetry streams, each on its own connection, and says what they cost.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from oracle import apache, arrow, java, toolchain
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from arrowmq.client.admin import Admin

SOURCE = Path(__file__).resolve().parent / "grpc_load"
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


def measure(server: Server, address: str, *arguments: str, seconds: float) -> dict[str, float]:
    before = server.cpu_seconds()
    found = load(address, *arguments, seconds=seconds)
    spent = server.cpu_seconds() - before
    done = max(found["messages"], 1)
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
        await admin.create_group(GROUP)


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


def run(name: str, seconds: float, idle_streams: int) -> None:
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
            started = time.monotonic() - began
            asyncio.run(create(namesrv))
            time.sleep(2)  # Apache's broker registers a new topic a little later
            warm = measure(server, address, "-mode", "send", seconds=seconds)
            sent = measure(server, address, "-mode", "send", seconds=seconds)
            show(name, "send one", sent)
            share = str(int((warm["messages"] + sent["messages"]) / 4 * 0.9))
            for what, more in (("receive 32, ack each", []), ("receive 32, ack all", ["-together"])):
                arguments = ["-mode", "receive", "-messages", share, *more]
                measure(server, address, *arguments, seconds=seconds)
                show(name, what, measure(server, address, *arguments, seconds=seconds))
            memory = server.memory_kib()
            print(
                f"{name:8} start {started:.2f} s, memory of its own {memory['anonymous'] / 1024:.0f} MiB",
                flush=True,
            )
            if idle_streams:
                cost = idle(server, address, idle_streams)
                print(
                    f"{name:8} {idle_streams} idle streams: {cost['kib']:.1f} KiB each, {cost['cpu_percent']:.1f} % CPU"
                )
        finally:
            server.stop()
            if names is not None:
                names.stop()


def show(name: str, what: str, found: dict[str, Any]) -> None:
    figures = f"{found['rate']:9,.0f} messages/s {found['cpu_us']:8.1f} µs CPU a message  p99 {found['p99_ms']:.1f} ms"
    print(f"{name:8} {what:21} {figures}  ({found['messages']} messages) {found['failures'] or ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--systems", nargs="+", default=["arrowmq", "apache"], choices=["arrowmq", "apache"])
    parser.add_argument("--idle", type=int, default=0, metavar="N", help="open N idle Telemetry streams at the end")
    given = parser.parse_args()
    for name in given.systems:
        run(name, given.seconds, given.idle)


if __name__ == "__main__":
    main()

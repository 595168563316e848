"""`python -m benchmarks.proxy [--seconds S] [--systems NAME …]`: gRPC calls, ours beside Apache's local proxy.

Both have proxy and broker in one process, in fresh folders one after the other, with the same generator: ghz, a Go
program that knows nothing of RocketMQ. A send is one message of 1 KiB, 32 calls at a time; a receive asks for 32
messages, which are not acknowledged. Each is warmed up for as long as it is measured, then rate and CPU of the whole
process count; memory at the end, and the time to start.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from oracle import apache, arrow, java, toolchain
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from arrowmq.client.admin import Admin

SERVICE = "apache.rocketmq.v2.MessagingService"
CONCURRENCY = 32
TOPIC = "bench"


def ghz() -> Path:
    toolchain.require("go")
    folder = toolchain.home() / "ghz"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            fresh.mkdir(parents=True)
            toolchain.run(["go", "mod", "init", "ghz"], 60, folder=fresh)
            toolchain.run(["go", "get", "github.com/bojand/ghz/cmd/ghz@v0.121.0"], 300, folder=fresh)
            toolchain.run(["go", "build", "-o", "ghz", "github.com/bojand/ghz/cmd/ghz"], 600, folder=fresh)
    return folder / "ghz"


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
    arguments = [
        "-pm",
        "local",
        "-n",
        namesrv,
        "-bc",
        str(folder / "broker.conf"),
        "-pc",
        str(folder / "rmq-proxy.json"),
    ]
    command, env = java.command(
        f"{apache.PACKAGE}.proxy.ProxyStartup",
        arguments,
        folder,
        classpath=java.jars(),
        options=("-Xms1g", "-Xmx2g"),
        properties={"com.rocketmq.proxy.configPath": folder / "rmq-proxy.json"},
    )
    return Server("apache-proxy", command, folder, port=proxy_port, ready="startup successfully", env=env)


def call(address: str, method: str, data: dict[str, Any], seconds: float, count: int = 0) -> dict[str, Any]:
    metadata = {"x-mq-client-id": "bench", "x-mq-language": "JAVA", "x-mq-client-version": "5.2.0"}
    command = [
        str(ghz()),
        "--insecure",
        "--call",
        f"{SERVICE}.{method}",
        "-d",
        json.dumps(data),
        "-m",
        json.dumps(metadata),
    ]
    command += [
        "-c",
        str(CONCURRENCY),
        "--connections",
        "4",
        "-z",
        f"{seconds}s",
        "-O",
        "json",
        "--timeout",
        "20s",
        address,
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def send_data() -> dict[str, Any]:
    system = {
        "messageId": "01{{newUUID}}",
        "messageType": "NORMAL",
        "bodyEncoding": "IDENTITY",
        "bornTimestamp": "2026-01-01T00:00:00Z",
        "bornHost": "bench",
    }
    body = base64.b64encode(bytes(1024)).decode()
    return {"messages": [{"topic": {"name": TOPIC}, "systemProperties": system, "body": body}]}


def receive_data() -> dict[str, Any]:
    return {
        "group": {"name": "bench-group"},
        "messageQueue": {"topic": {"name": TOPIC}, "broker": {"name": "broker-a"}},
        "filterExpression": {"type": "TAG", "expression": "*"},
        "batchSize": 32,
        "invisibleDuration": "3600s",
        "longPollingTimeout": "5s",
    }


def measure(
    server: Server, address: str, method: str, data: dict[str, Any], seconds: float, count: int = 0
) -> dict[str, float]:
    warm = call(address, method, data, seconds, count)["statusCodeDistribution"].get("OK", 0)
    before, began = server.cpu_seconds(), time.monotonic()
    found = call(address, method, data, seconds, count)
    spent, took = server.cpu_seconds() - before, time.monotonic() - began
    done = found["statusCodeDistribution"].get("OK", 0)
    figures = {"rate": done / took, "cpu_us": spent / max(done, 1) * 1e6, "p99_ms": _percentile(found, 99)}
    return {**figures, "calls": warm + done}


def _percentile(found: dict[str, Any], percentage: int) -> float:
    for each in found.get("latencyDistribution") or ():
        if each["percentage"] == percentage:
            return float(each["latency"]) / 1e6
    return 0.0


async def create(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=8, attributes={"message.type": "NORMAL"})
        await admin.create_group("bench-group")


def run(name: str, seconds: float) -> dict[str, Any]:
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
            found: dict[str, Any] = {"start_s": started}
            found["send"] = measure(server, address, "SendMessage", send_data(), seconds)
            # As many as there are messages for: a receive that finds none waits.
            rounds = max(CONCURRENCY, int(found["send"]["calls"] / 32 * 0.45))
            found["receive"] = measure(server, address, "ReceiveMessage", receive_data(), seconds, rounds)
            found["memory_mib"] = server.memory_kib()["anonymous"] / 1024
            return found
        finally:
            server.stop()
            if names is not None:
                names.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--systems", nargs="+", default=["arrowmq", "apache"], choices=["arrowmq", "apache"])
    given = parser.parse_args()
    for name in given.systems:
        found = run(name, given.seconds)
        for what in ("send", "receive"):
            each = found[what]
            figures = f"{each['rate']:9,.0f}/s {each['cpu_us']:8.1f} µs CPU a call  p99 {each['p99_ms']:.1f} ms"
            print(f"{name:8} {what:8} {figures}")
        print(f"{name:8} start {found['start_s']:.2f} s, memory of its own {found['memory_mib']:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()

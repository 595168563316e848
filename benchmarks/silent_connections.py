"""What connections that say nothing cost a server, and whether its other clients notice.

    python -m benchmarks.silent_connections [COUNT]

Starts `arrowmq server`, measures the time of route queries, opens COUNT (10,000) connections on its ports that send
nothing, measures again, and states memory a connection and CPU at rest.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frame import Command

QUERIES = 2000
REST_S = 5.0


def resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def query_times_ms(client: RemotingClient, address: str) -> list[float]:
    times = []
    for _ in range(QUERIES):
        started = time.perf_counter()
        answer = await client.invoke(
            address, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}), 10
        )
        assert answer.code == 0
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)


def show(what: str, times: list[float]) -> None:
    print(f"{what:<28} p50 {times[len(times) // 2]:.3f} ms   p99 {times[len(times) * 99 // 100]:.3f} ms")


async def measure(pid: int, ports: list[int], count: int) -> None:
    client = RemotingClient()
    address = f"127.0.0.1:{ports[0]}"
    show("route query, alone", await query_times_ms(client, address))
    before = resident_kib(pid)
    writers = []
    started = time.perf_counter()
    for number in range(count):
        # Each source address has 28,000 ports; several keep 10,000 connections away from that limit.
        source = (f"127.0.0.{2 + number % 4}", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", ports[number % len(ports)], local_addr=source)
        writers.append(writer)
    print(f"{count} connections opened in {time.perf_counter() - started:.1f} s")
    show("route query, beside them", await query_times_ms(client, address))
    grown = resident_kib(pid) - before
    print(f"server grew by {grown} KiB: {grown / count:.2f} KiB a connection")
    used = cpu_s(pid)
    await asyncio.sleep(REST_S)
    print(f"server CPU at rest: {(cpu_s(pid) - used) / REST_S * 100:.1f} %")
    for writer in writers:
        writer.close()
    await client.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if count + 100 > hard:
        sys.exit(f"{count} connections need more than the {hard} open files that this user may have")
    with tempfile.TemporaryDirectory() as directory:
        words = ["server", "--dir", directory, "--namesrv-port", "0", "--port", "0", "--set", "bindAddress=127.0.0.1"]
        server = subprocess.Popen(
            [sys.executable, "-c", "from arrowmq.cli import main; main()", *words, "--log-level", "error"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            print(line.strip())
            ports = [int(word.rpartition(":")[2].rstrip(",")) for word in line.split() if word.startswith("127.0.0.1:")]
            asyncio.run(measure(server.pid, ports, count))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()

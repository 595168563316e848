"""What connections that say nothing cost a server, and whether its other clients notice.

    python -m benchmarks.silent_connections [COUNT]

Starts `arrowmq server`, measures the time of route queries, opens COUNT (10,000) connections on its ports that send
nothing, measures again, and states memory a connection and CPU at rest.
"""

from __future__ import annotations

import asyncio
import sys
import time

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from benchmarks.own_server import allow_many_files, cpu_s, own_server, resident_kib

QUERIES = 2000
REST_S = 5.0


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
    most = allow_many_files()
    if count + 100 > most:
        sys.exit(f"{count} connections need more than the {most} open files that this user may have")
    with own_server() as server:
        ports = [int(address.rpartition(":")[2]) for address in (server.namesrv, server.broker)]
        asyncio.run(measure(server.pid, ports, count))


if __name__ == "__main__":
    main()

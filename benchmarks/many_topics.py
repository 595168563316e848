"""1,000 clients and 5,000 topics of 4 queues on one server: do routes, heartbeats and sends keep working, at what cost?

    python -m benchmarks.many_topics [CLIENTS [TOPICS]]

Starts `arrowmq server`, creates the topics as mqadmin does, connects the clients, and lets each of them send a
heartbeat, ask for routes and send messages; states times and the server's memory at each step.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Iterable

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from benchmarks.own_server import allow_many_files, cpu_s, own_server, resident_kib

QUEUES = 4
AT_ONCE = 64
REST_S = 35.0  # one whole registration falls into it


async def timed(what: str, pid: int, calls: Iterable[Awaitable[Command]]) -> None:
    """Run the calls, some at a time; every one must succeed."""
    gate = asyncio.Semaphore(AT_ONCE)
    times: list[float] = []

    async def one(call: Awaitable[Command]) -> None:
        async with gate:
            started = time.perf_counter()
            answer = await call
            times.append((time.perf_counter() - started) * 1000)
        if answer.code != 0:
            raise RuntimeError(f"{what}: code {answer.code}: {answer.remark}")

    began, used = time.perf_counter(), cpu_s(pid)
    await asyncio.gather(*map(one, calls))
    seconds = time.perf_counter() - began
    times.sort()
    each_us = (cpu_s(pid) - used) / len(times) * 1e6
    print(
        f"{what:<22} {len(times):>6} in {seconds:6.2f} s   p50 {times[len(times) // 2]:7.2f} ms"
        f"   p99 {times[len(times) * 99 // 100]:7.2f} ms   server CPU {each_us:6.0f} µs each"
        f"   RSS {resident_kib(pid) // 1024} MiB"
    )


def create(topic: str) -> Command:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def heartbeat(number: int, topic: str) -> Command:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": f"group-{number % 100}",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    producer = {"groupName": f"producer-{number % 100}"}
    body = {"clientID": f"client-{number}", "consumerDataSet": [consumer], "producerDataSet": [producer]}
    return Command.request(RequestCode.HEART_BEAT, None, fastjson.dumps(body))


def send(topic: str, queue: int) -> Command:
    fields = {"a": "producers", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue), "f": "0"}
    fields |= {"g": str(time.time_ns() // 1_000_000), "h": "0", "i": "", "j": "0", "k": "false"}
    return Command.request(RequestCode.SEND_MESSAGE_V2, fields, bytes(256))


async def measure(pid: int, namesrv: str, broker: str, client_count: int, topic_count: int) -> None:
    topics = [f"topic-{number}" for number in range(topic_count)]
    clients = [RemotingClient() for _ in range(client_count)]
    print(f"at the start            RSS {resident_kib(pid) // 1024} MiB")
    await timed("topics created", pid, (clients[0].invoke(broker, create(topic), 60) for topic in topics))
    await timed(
        "heartbeats",
        pid,
        (c.invoke(broker, heartbeat(n, topics[n % topic_count]), 60) for n, c in enumerate(clients)),
    )
    route = RequestCode.GET_ROUTEINFO_BY_TOPIC
    await timed(
        "routes, every topic",
        pid,
        (
            clients[n % client_count].invoke(namesrv, Command.request(route, {"topic": topic}), 60)
            for n, topic in enumerate(topics)
        ),
    )
    await timed(
        "sends, every queue",
        pid,
        (
            clients[n % client_count].invoke(broker, send(topics[n // QUEUES], n % QUEUES), 60)
            for n in range(topic_count * QUEUES)
        ),
    )
    used = cpu_s(pid)
    await asyncio.sleep(REST_S)
    await timed(
        "heartbeats, later", pid, (c.invoke(broker, heartbeat(n, topics[0]), 60) for n, c in enumerate(clients))
    )
    print(f"server CPU over {REST_S:g} s of rest: {(cpu_s(pid) - used) / REST_S * 100:.1f} %")
    for client in clients:
        await client.close()


def main() -> None:
    client_count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    topic_count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    allow_many_files()
    # Small queue files: 20,000 queues of Apache's 6 MB would be 120 GB of address space and of disk.
    with own_server(mappedFileSizeConsumeQueue=4000, mappedFileSizeCommitLog=67108864) as server:
        asyncio.run(measure(server.pid, server.namesrv, server.broker, client_count, topic_count))


if __name__ == "__main__":
    main()

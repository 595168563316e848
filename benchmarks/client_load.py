"""ArrowMQ's client at one load: `python -m benchmarks.client_load NAMESRV TOPIC LOAD MESSAGES BODY_BYTES WARM_UP`.

Prints one line of JSON: messages, seconds and CPU seconds of this process, after a warm-up that is not counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

import arrowmq


def report(messages: int, wall: float, cpu: float) -> None:
    used = {"messages": messages, "seconds": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print(json.dumps(used), flush=True)


async def workers(send: Callable[[], Awaitable[object]], messages: int, count: int) -> None:
    async def work() -> None:
        for _ in range(messages // count):
            await send()

    await asyncio.gather(*(work() for _ in range(count)))


async def produce(namesrv: str, topic: str, load: str, messages: int, body: bytes, warm_up: int) -> None:
    async with arrowmq.Producer(namesrv, timeout_s=60, request_timeout_s=30, batching=load == "auto") as producer:

        async def run(count: int) -> None:
            if load == "batch":
                for _ in range(count // 32):
                    await producer.send_batch([arrowmq.Message(topic, body) for _ in range(32)])
            else:
                in_flight = {"one": 1, "16": 16, "256": 256, "auto": 256}[load]
                await workers(lambda: producer.send(topic, body), count, in_flight)

        await run(warm_up)
        wall, cpu = time.perf_counter(), time.process_time()
        await run(messages)
        report(messages, wall, cpu)


async def consume(namesrv: str, topic: str, messages: int) -> None:
    warm_up = messages // 5
    group = f"client_load_{time.monotonic_ns()}"
    wall = cpu = 0.0
    seen = 0
    async with arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first") as consumer:
        async for message in consumer:
            _ = message.body
            await message.ack()
            seen += 1
            if seen == warm_up:
                wall, cpu = time.perf_counter(), time.process_time()
            elif seen == messages:
                break
        report(messages - warm_up, wall, cpu)


def main() -> None:
    namesrv, topic, load, messages, body_bytes, warm_up = sys.argv[1:]
    if load == "consume":
        uvloop.run(consume(namesrv, topic, int(messages)))
    else:
        uvloop.run(produce(namesrv, topic, load, int(messages), bytes(int(body_bytes)), int(warm_up)))


if __name__ == "__main__":
    main()

"""What pop costs: rate and broker CPU a message, end-to-end latency, and memory of messages in flight.

    python -m benchmarks.pop [--on arrowmq] [--messages N] [--in-flight N]

Each system in turn (ArrowMQ, then Apache's broker, warmed up): a backlog is popped 32 at a time and acknowledged in
batches, then one at a time with single acks, by the same client in one process; then messages are sent at a steady rate
to a consumer that long-polls; then many messages are popped and left, and the memory of the process is looked at. The
client is Python and busy: the rate is what it can ask for, the CPU is the broker's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import time
from pathlib import Path
from typing import Any

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.pop import parse_offset_info
from arrowmq.wire.records import decode_records
from benchmarks.silent_connections import cpu_s
from benchmarks.systems import Apache, ArrowMQ, System

BROKER = "broker-a"
TOPIC, GROUP, BODY = "pop_bench", "pop_bench_group", b"x" * 1024
WORKERS = 8
RATE, LATENCY_S = 2_000, 5.0


class Load:
    def __init__(self, system: System) -> None:
        self.system = system
        self.client = RemotingClient()
        self.taken = 0

    async def ask(self, code: int, header: dict[str, Any], body: bytes = b"", timeout_s: float = 60) -> Command:
        texts = {name: str(value) for name, value in header.items()}
        return await self.client.invoke(self.system.address, Command.request(code, texts, body), timeout_s)

    async def send(self, count: int, body: bytes = BODY) -> None:
        header = {
            "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "sysFlag": 0,
            "bornTimestamp": 1, "flag": 0, "properties": "",
        }  # fmt: skip
        for first in range(0, count, 256):
            places = range(first, min(count, first + 256))
            asked = (self.ask(RequestCode.SEND_MESSAGE, {**header, "queueId": n % 4}, body) for n in places)
            answers = await asyncio.gather(*asked)
            assert all(answer.code == ResponseCode.SUCCESS for answer in answers), answers[0].remark

    async def pop(self, count: int, *, poll_ms: int = 0, invisible_ms: int = 600_000) -> Command:
        header = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": count, "invisibleTime": invisible_ms,
            "pollTime": poll_ms, "bornTime": 0, "initMode": 0, "order": "false",
        }  # fmt: skip
        return await self.ask(RequestCode.POP_MESSAGE, header, timeout_s=poll_ms / 1000 + 30)

    async def ack(self, answer: Command, *, together: bool) -> int:
        ext, done = answer.ext, 0
        starts, offsets = parse_offset_info(ext["startOffsetInfo"]), parse_offset_info(ext["msgOffsetInfo"])
        at, invisible, revive = ext["popTime"], ext["invisibleTime"], ext["reviveQid"]
        acks = []
        for (flag, queue), places in offsets.items():
            start = starts[flag, queue][0]
            done += len(places)
            if together:
                bits = sum(1 << (place - start) for place in places)
                text = base64.b64encode(bits.to_bytes(bits.bit_length() + 7 >> 3, "little")).decode()
                acks.append(
                    {
                        "b": text, "c": GROUP, "it": int(invisible), "pt": int(at), "q": int(queue), "r": flag,
                        "rq": int(revive), "so": start, "t": TOPIC,
                    }
                )  # fmt: skip
                continue
            for place in places:
                receipt = f"{start} {at} {invisible} {revive} {flag} {BROKER} {queue} {place}"
                header = {
                    "consumerGroup": GROUP, "topic": TOPIC, "queueId": queue, "offset": place, "extraInfo": receipt
                }  # fmt: skip
                await self.ask(RequestCode.ACK_MESSAGE, header)
        if acks:
            body = fastjson.dumps({"acks": acks, "brokerName": BROKER})
            await self.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        return done

    async def drain(self, count: int, at_once: int) -> tuple[float, float, int]:
        """Messages a second, broker CPU in microseconds a message, messages."""
        self.taken = 0

        async def work() -> None:
            while self.taken < count:
                answer = await self.pop(at_once)
                if answer.code != ResponseCode.SUCCESS:
                    return
                done = await self.ack(answer, together=at_once > 1)
                self.taken += done

        began_s, used_s = time.perf_counter(), cpu_s(self.system.broker.pid)
        await asyncio.gather(*(work() for _ in range(WORKERS)))
        elapsed_s, used_s = time.perf_counter() - began_s, cpu_s(self.system.broker.pid) - used_s
        return self.taken / elapsed_s, used_s / max(1, self.taken) * 1e6, self.taken

    async def latency(self) -> tuple[float, float]:
        """Median and 99th percentile in milliseconds from send to arrival at a consumer that waits."""
        times: list[float] = []
        is_over = False

        async def consume() -> None:
            while not is_over:
                answer = await self.pop(32, poll_ms=1000)
                now = time.time_ns()
                if answer.code == ResponseCode.SUCCESS:
                    times.extend((now - int(record.body)) / 1e6 for record in decode_records(answer.body))
                    await self.ack(answer, together=True)

        consumers = [asyncio.ensure_future(consume()) for _ in range(4)]
        began = time.perf_counter()
        for number in range(int(RATE * LATENCY_S)):
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            await self.send(1, b"%d" % time.time_ns())
        is_over = True
        await asyncio.gather(*consumers)
        times.sort()
        return times[len(times) // 2], times[len(times) * 99 // 100]


def own_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not tell how much memory a process has of its own")


async def measure(system: System, messages: int, in_flight: int) -> None:
    load = Load(system)
    try:
        await load.send(messages // 4)
        await load.drain(messages // 4, 32)  # warm
        for at_once, count in ((32, messages), (1, messages // 8)):
            await load.send(count)
            rate, cpu_us, taken = await load.drain(count, at_once)
            print(f"{system.name:8} pop {at_once:2} + ack: {rate:9,.0f} msg/s, {cpu_us:7.1f} us broker CPU, {taken:,}")
        median, worst = await load.latency()
        print(f"{system.name:8} latency at {RATE:,}/s with long polling: p50 {median:.2f} ms, p99 {worst:.2f} ms")
        await load.send(in_flight, b"x")
        before = own_kib(system.broker.pid)
        taken = 0
        while taken < in_flight:
            answer = await load.pop(32, invisible_ms=3_600_000)
            if answer.code != ResponseCode.SUCCESS:
                break
            taken += sum(map(len, parse_offset_info(answer.ext["msgOffsetInfo"]).values()))
        grown = (own_kib(system.broker.pid) - before) * 1024
        print(f"{system.name:8} {taken:,} in flight: {grown / max(1, taken):.0f} bytes of own memory each")
    finally:
        await load.client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=("arrowmq", "apache"), action="append")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=1_000_000)
    options = parser.parse_args()
    for kind in (ArrowMQ, Apache):
        if options.on and kind.name not in options.on:
            continue
        name = {"brokerName": BROKER} if kind is Apache else {}
        system = kind(brokerFastFailureEnable=False, **name)
        try:
            system.start()
            asyncio.run(measure(system, options.messages, options.in_flight))
        finally:
            system.stop()


if __name__ == "__main__":
    main()

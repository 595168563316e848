"""`arrowmq bench`: a quick measurement of what a running server does for one client; benchmarks/ compares."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from dataclasses import dataclass
from typing import Any

import click
from rich.progress import Progress

from arrowmq.cli.cluster_link import Link, connected
from arrowmq.cli.examples import examples
from arrowmq.client.consume.consumer import Consumer
from arrowmq.client.errors import ArrowMQError
from arrowmq.client.produce.producer import Producer
from arrowmq.inspect.texts import bytes_text

QUIET_S = 10.0


@dataclass(slots=True)
class Measured:
    messages: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    #: How long senders waited for their answers, in ms: median, 99 of 100, slowest
    waited_ms: tuple[float, float, float] | None = None


def _row(measured: Measured) -> dict[str, Any]:
    row: dict[str, Any] = {
        "messages": measured.messages,
        "seconds": measured.seconds,
        "messagesPerSecond": measured.messages_per_second,
        "bytesPerSecond": measured.bytes_per_second,
    }
    if measured.waited_ms is not None:
        row |= dict(zip(("medianMs", "p99Ms", "slowestMs"), measured.waited_ms, strict=True))
    return row


@click.command(epilog=examples("arrowmq bench --seconds 10 --size 1024 --in-flight 256"))
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="How long to send.")
@click.option("--size", "body_bytes", type=click.IntRange(1, 4_000_000), default=128, show_default=True, help="Bytes.")
@click.option("--in-flight", type=click.IntRange(1, 10_000), default=64, show_default=True, help="Sends at once.")
@click.option("--queues", type=click.IntRange(1, 1024), default=8, show_default=True, help="Queues a broker.")
@click.option("--keep", is_flag=True, help="Do not delete the topic and the group afterwards.")
@connected
async def bench(link: Link, seconds: float, body_bytes: int, in_flight: int, queues: int, keep: bool) -> None:
    """Send for a few seconds to a topic made for it, consume everything again, and say how fast that was.

    One client process is measured together with the server: on one machine they share its cores.
    """
    topic = f"arrowmq_bench_{uuid.uuid4().hex[:8]}"
    group = f"{topic}_group"
    await link.admin.create_topic(topic, queues=queues)
    try:
        with link.screen.progress("sending", None) as bar:
            sent = await _send(link, topic, seconds, body_bytes, in_flight, bar)
        with link.screen.progress("consuming", sent.messages) as bar:
            consumed = await _consume(link, topic, group, sent.messages, body_bytes, bar)
    finally:
        if not keep:
            await link.admin.delete_topic(topic)
            await link.admin.delete_group(group)
    if link.screen.as_json:
        link.screen.json({"topic": topic, "bodyBytes": body_bytes, "sent": _row(sent), "consumed": _row(consumed)})
        return
    assert sent.waited_ms is not None
    median, slow, slowest = sent.waited_ms
    link.screen.say(
        f"sent      {sent.messages} messages of {body_bytes} bytes in {sent.seconds:.2f} s: "
        f"{sent.messages_per_second:,.0f} a second, {bytes_text(sent.bytes_per_second)}/s; "
        f"answered after {median:.2f} ms (median), {slow:.2f} ms (99 of 100), {slowest:.1f} ms (slowest), "
        f"{in_flight} at once"
    )
    link.screen.say(
        f"consumed  {consumed.messages} messages in {consumed.seconds:.2f} s: "
        f"{consumed.messages_per_second:,.0f} a second, {bytes_text(consumed.bytes_per_second)}/s"
    )


async def _send(link: Link, topic: str, seconds: float, body_bytes: int, in_flight: int, bar: Progress) -> Measured:
    body = os.urandom(body_bytes)
    took_ms: list[float] = []
    began = time.perf_counter()
    until = began + seconds
    async with Producer(link.namesrv, group="arrowmq_bench", compress_from_bytes=1 << 30, **link.connect) as producer:

        async def work() -> None:
            while (now := time.perf_counter()) < until:
                await producer.send(topic, body)
                took_ms.append((time.perf_counter() - now) * 1000)
                bar.advance(bar.task_ids[0])

        began = time.perf_counter()
        until = began + seconds
        await asyncio.gather(*(work() for _ in range(in_flight)))
        elapsed = time.perf_counter() - began
    took_ms.sort()
    count = len(took_ms)
    return Measured(
        count,
        elapsed,
        count / elapsed,
        count * body_bytes / elapsed,
        (took_ms[count // 2], took_ms[min(count - 1, count * 99 // 100)], took_ms[-1]),
    )


async def _consume(link: Link, topic: str, group: str, expected: int, body_bytes: int, bar: Progress) -> Measured:
    count = 0
    async with Consumer(
        link.namesrv, group=group, topic=topic, consume_from="first", auto_ack=True, **link.connect
    ) as consumer:
        began = time.perf_counter()
        while count < expected:
            try:
                async with asyncio.timeout(QUIET_S):
                    await anext(consumer)
            except TimeoutError:
                raise ArrowMQError(
                    f"{expected} messages were sent, {count} came, and no more for {QUIET_S:g} s; run `arrowmq doctor`"
                ) from None
            count += 1
            bar.advance(bar.task_ids[0])
        elapsed = time.perf_counter() - began
    return Measured(count, elapsed, count / elapsed, count * body_bytes / elapsed)

"""Push consumers: handlers that succeed, raise, hang, block, answer in order."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

import arrowmq
from waiting import until


async def test_a_handler_gets_every_message_once(cluster: str, topic: str, group: str) -> None:
    seen: list[bytes] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with arrowmq.Producer(cluster) as producer:
        for n in range(50):
            await producer.send(topic, b"%d" % n)
        async with arrowmq.PushConsumer(cluster, group=group, topic=topic, handler=handle, consume_from="first"):
            await until(lambda: len(seen) >= 50)
        async with arrowmq.Admin(cluster) as admin:
            assert 0 == sum((await admin.lag(group, topic)).values())
    assert {b"%d" % n for n in range(50)} == set(seen)
    assert 50 == len(seen)


async def test_a_plain_function_runs_in_a_thread(cluster: str, topic: str, group: str) -> None:
    threads: list[str] = []

    def handle(message: arrowmq.ReceivedMessage) -> None:
        threads.append(threading.current_thread().name)

    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.PushConsumer(cluster, group=group, topic=topic, handler=handle, consume_from="first"),
    ):
        await producer.send(topic, b"x")
        await until(lambda: threads)
    assert threads[0].startswith("consume-")


async def test_a_handler_that_fails_gets_the_message_again(
    cluster: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever way it fails: by an exception, by its result, by hanging, or by asking for a delay of its own."""
    caplog.set_level(logging.CRITICAL, "arrowmq.client")
    attempts: dict[str, list[int]] = {way: [] for way in ("raise", "false", "retry", "later", "hang")}

    async def handle(message: arrowmq.ReceivedMessage) -> object:
        way = message.body.decode()
        attempts[way].append(message.reconsume_times)
        if message.reconsume_times:
            return None
        if way == "raise":
            raise ValueError("no")
        if way == "later":
            raise arrowmq.RetryLater(1)
        if way == "hang":
            await asyncio.Event().wait()
        return False if way == "false" else arrowmq.ConsumeResult.RETRY

    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.PushConsumer(
            cluster, group=group, topic=topic, handler=handle, consume_from="first", message_timeout_s=0.2
        ),
    ):
        for way in attempts:
            await producer.send(topic, way.encode())
        # Without a level of its own a first retry comes after ten seconds.
        await until(lambda: all(len(times) >= 2 for times in attempts.values()))
    assert [[0, 1]] * 5 == list(attempts.values())


async def test_order_holds_while_one_message_fails(
    cluster: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "arrowmq.client")
    seen: dict[int, list[int]] = {}
    failures = iter([True, True, False])

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        if message.body == b"6" and next(failures):
            raise ValueError("not yet")
        seen.setdefault(message.queue_id, []).append(int(message.body))

    async with arrowmq.Producer(cluster) as producer:
        for n in range(40):
            await producer.send(topic, b"%d" % n, order_key=f"key-{n % 4}")
        async with arrowmq.PushConsumer(
            cluster, group=group, topic=topic, handler=handle, consume_from="first", orderly=True, suspend_s=0.05
        ):
            await until(lambda: sum(map(len, seen.values())) == 40)
    for numbers in seen.values():
        assert sorted(numbers) == numbers


async def test_a_message_that_always_fails_in_order_becomes_a_dead_letter(
    cluster: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "arrowmq.client")
    seen: list[bytes] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"0":
            raise ValueError("never")

    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=1)
        for n in range(3):
            await producer.send(topic, b"%d" % n)
        async with arrowmq.PushConsumer(
            cluster, group=group, topic=topic, handler=handle, consume_from="first", orderly=True,
            suspend_s=0.05, max_reconsume_times=2,
        ):  # fmt: skip
            await until(lambda: seen[-1:] == [b"2"])
    assert [b"0", b"0", b"0", b"1", b"2"] == seen


async def test_batches_go_to_the_handler_as_lists(cluster: str, topic: str, group: str) -> None:
    sizes: list[int] = []

    async def handle(messages: list[arrowmq.ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async with arrowmq.Producer(cluster) as producer:
        await producer.send_batch([arrowmq.Message(topic, b"%d" % n) for n in range(30)])
        async with arrowmq.PushConsumer(
            cluster, group=group, topic=topic, handler=handle, batch_size=10, concurrency=1, consume_from="first"
        ):
            await until(lambda: sum(sizes) == 30)
    assert max(sizes) <= 10
    assert len(sizes) < 30


async def test_close_waits_for_running_handlers_and_commits_them(cluster: str, topic: str, group: str) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    async with arrowmq.Producer(cluster) as producer:
        await producer.send(topic, b"x")
        consumer = arrowmq.PushConsumer(cluster, group=group, topic=topic, handler=handle, consume_from="first")
        await consumer.start()
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        assert not closing.done()
        may_end.set()
        await closing
    async with arrowmq.Admin(cluster) as admin:
        assert 0 == sum((await admin.lag(group, topic)).values())


async def test_a_broker_can_ask_a_member_to_consume_one_message(cluster: str, topic: str, group: str) -> None:
    seen: list[bytes] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with arrowmq.Producer(cluster) as producer, arrowmq.Admin(cluster) as admin:
        receipt = await producer.send(topic, b"x")
        async with arrowmq.PushConsumer(
            cluster, group=group, topic=topic, handler=handle, consume_from="first"
        ) as consumer:
            await until(lambda: seen)
            result = await admin.consume_directly(group, consumer.client_id, receipt.offset_msg_id)
            info = await admin.running_info(group, consumer.client_id, with_stacks=True)
    assert "CR_SUCCESS" == result.consume_result
    assert [b"x", b"x"] == seen
    assert topic in {queue.topic for queue in info.mq_table}
    assert "test_a_broker_can_ask" in (info.jstack or "") or "File" in (info.jstack or "")


async def test_the_trace_context_of_a_message_is_current_in_its_handler(cluster: str, topic: str, group: str) -> None:
    from arrowmq.client import trace_context as tracing

    seen: list[tracing.TraceParent | None] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append(tracing.current.get())

    parent = tracing.TraceParent.new()
    async with (
        arrowmq.Producer(cluster, hooks=[arrowmq.TraceContext()]) as producer,
        arrowmq.PushConsumer(cluster, group=group, topic=topic, handler=handle, consume_from="first"),
    ):
        tracing.current.set(parent)
        await producer.send(topic, b"x")
        await until(lambda: seen)
    assert seen[0] is not None
    assert parent.trace_id == seen[0].trace_id
    assert parent.span_id != seen[0].span_id


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"handler": None}, "function"),
        ({"concurrency": 0}, "at least 1"),
        ({"orderly": True, "batch_size": 2}, "order"),
    ],
)
async def test_senseless_options_are_refused(cluster: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(arrowmq.InvalidUse, match=why):
        arrowmq.PushConsumer(cluster, group="g", topic="t", **{"handler": print, **options})  # type: ignore[arg-type]


async def test_a_plain_handler_over_its_time_keeps_its_thread_and_no_message_times_out_unseen(
    cluster: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the only thread hanging, the other messages wait: they are neither given back nor run in more threads."""
    release = threading.Event()
    seen: list[tuple[bytes, int]] = []

    def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"hangs" and not message.reconsume_times:
            release.wait(60)

    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.PushConsumer(
            cluster,
            group=group,
            topic=topic,
            handler=handle,
            concurrency=1,
            message_timeout_s=0.2,
            consume_from="first",
        ),
    ):
        await producer.send(topic, b"hangs")
        await until(lambda: seen)
        for number in range(3):
            await producer.send(topic, b"%d" % number)
        before = threading.active_count()
        with pytest.raises(TimeoutError):  # five times the limit, in which no other message runs or times out
            await until(lambda: len(seen) > 1 or caplog.text.count("did not end within") > 1, timeout_s=1.0)
        assert 1 == caplog.text.count("did not end within 0.2 s (1 of 1 threads are busy)")
        assert before == threading.active_count()
        release.set()
        await until(lambda: {b"0", b"1", b"2"} <= {body for body, _ in seen})
    assert [0, 0, 0] == [times for body, times in seen if body in (b"0", b"1", b"2")]

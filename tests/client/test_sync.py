"""The client with blocking calls: the same names, arguments and results, without an event loop."""

from __future__ import annotations

import inspect
import threading

import pytest

import arrowmq
import arrowmq.sync


def threads() -> set[threading.Thread]:
    """Those of clients: the broker of these tests lives in this process and starts its own when it needs them."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("arrowmq-store")}


def test_a_script_sends_and_consumes(cluster: str, topic: str, group: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer:
        receipt = producer.send(topic, b"one", tag="t", keys=["k"])
        futures = [producer.submit(topic, b"%d" % n) for n in range(10)]
        producer.flush()
        assert 10 == len({future.result().msg_id for future in futures})
        assert 3 == len(producer.send_batch([arrowmq.Message(topic, b"b%d" % n) for n in range(3)]))
    seen = {}
    with arrowmq.sync.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        for message in consumer:
            seen[message.msg_id] = message
            message.ack()
            if len(seen) == 14:
                break
    assert (b"one", "t", ["k"]) == (
        seen[receipt.msg_id].body,
        seen[receipt.msg_id].tag,
        seen[receipt.msg_id].keys,
    )
    with arrowmq.sync.Admin(cluster) as admin:
        assert 0 == sum(admin.lag(group, topic).values())


def test_a_message_given_back_comes_again(cluster: str, topic: str, group: str) -> None:
    with (
        arrowmq.sync.Producer(cluster) as producer,
        arrowmq.sync.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        producer.send(topic, b"x")
        (first,) = consumer.receive(timeout_s=10)
        first.nack(delay_level=1)
        (second,) = consumer.receive(timeout_s=10)
        second.ack()
    assert (0, 1) == (first.reconsume_times, second.reconsume_times)


def test_auto_ack_acknowledges_as_the_loop_goes(cluster: str, topic: str, group: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer:
        for n in range(3):
            producer.send(topic, b"%d" % n)
    count = 0
    with arrowmq.sync.Consumer(cluster, group=group, topic=topic, consume_from="first", auto_ack=True) as consumer:
        for _ in consumer:
            count += 1
            if count == 3:
                break
    with arrowmq.sync.Admin(cluster) as admin:
        assert sum(admin.lag(group, topic).values()) <= 1  # the last one was not passed


def test_transactions_are_with_blocks(cluster: str, topic: str, group: str) -> None:
    with arrowmq.sync.Producer(cluster, group=f"p{group}") as producer:
        with producer.transaction(topic, b"kept") as transaction:
            assert transaction.receipt.msg_id == transaction.msg_id
        with pytest.raises(ZeroDivisionError), producer.transaction(topic, b"lost"):
            raise ZeroDivisionError
    with arrowmq.sync.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        (message,) = consumer.receive(timeout_s=10)
        message.ack()
        assert b"kept" == message.body
        assert [] == consumer.receive(timeout_s=0.3)


def test_handlers_are_plain_functions(cluster: str, topic: str, group: str) -> None:
    seen = threading.Event()
    with (
        arrowmq.sync.PushConsumer(
            cluster, group=group, topic=topic, handler=lambda message: seen.set(), consume_from="first"
        ),
        arrowmq.sync.Producer(cluster) as producer,
    ):
        producer.send(topic, b"x")
        assert seen.wait(10)


def test_lite_pull_polls(cluster: str, topic: str, group: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer:
        producer.send(topic, b"x")
    with arrowmq.sync.LitePullConsumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        assert [b"x"] == [message.body for message in consumer.poll(10)]


def test_nothing_of_a_client_is_left_after_it(cluster: str, topic: str) -> None:
    before = threads()
    for _ in range(3):
        with arrowmq.sync.Producer(cluster) as producer:
            producer.send(topic, b"x")
    assert set() == threads() - before


def test_several_threads_share_a_producer(cluster: str, topic: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer:
        receipts: list[arrowmq.SendReceipt] = []
        threads = [
            threading.Thread(target=lambda: receipts.extend(producer.send(topic, b"x") for _ in range(10)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 40 == len({receipt.msg_id for receipt in receipts})


def test_a_start_that_fails_leaves_no_thread() -> None:
    before = threads()
    with pytest.raises(arrowmq.NamesrvUnreachable):
        arrowmq.sync.Producer("127.0.0.1:1", start_timeout_s=0.5).start()
    with pytest.raises(TypeError, match="unknown option"):
        arrowmq.sync.Producer("127.0.0.1:1", no_such_option=True)
    assert set() == threads() - before


@pytest.mark.parametrize("name", ["Admin", "Producer", "Consumer", "PushConsumer", "LitePullConsumer"])
def test_the_twins_have_the_same_calls(name: str) -> None:
    def public(kind: type) -> set[str]:
        return {member for member, value in inspect.getmembers(kind) if not member.startswith("_") and callable(value)}

    only_inside = {"acknowledge", "send_back", "consume_directly", "send_half", "offsets", "pause", "resume"}
    assert set() == public(getattr(arrowmq, name)) - public(getattr(arrowmq.sync, name)) - only_inside


@pytest.mark.parametrize("name", ["Admin", "Producer", "Consumer", "PushConsumer", "LitePullConsumer"])
def test_help_shows_the_arguments_of_the_asyncio_client(name: str) -> None:
    assert inspect.signature(getattr(arrowmq, name)) == inspect.signature(getattr(arrowmq.sync, name))


def test_an_admin_reads_a_topic_without_an_event_loop(cluster: str, topic: str) -> None:
    with arrowmq.sync.Producer(cluster) as producer, arrowmq.sync.Admin(cluster) as admin:
        for n in range(3):
            producer.send(topic, b"%d" % n)
        assert {b"0", b"1", b"2"} == {message.body for message in admin.read(topic)}

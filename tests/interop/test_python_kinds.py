"""Every kind of message between ArrowMQ's Python client and the Java and Go clients, in both directions.

Normal and batched messages, one-way and transactions from Python are in `test_python_client.py`; here are order, delay,
filters, broadcasting, retries, requests, transactions from the others, and compression.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from oracle.hand import HandOf
from oracle.scene import Listener, Scene
from oracle.target import Target

import arrowmq
import arrowmq.sync
from waiting import block_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

OTHERS = pytest.mark.parametrize("flavour", ["java-5.5-json", "go"])


@pytest.fixture
def producer(cluster: Target, scene: Scene) -> Iterator[arrowmq.sync.Producer]:
    with arrowmq.sync.Producer(cluster.namesrv, group=scene.name("python")) as producer:
        yield producer


def consumed(
    cluster: Target, scene: Scene, topic: str, count: int, linger_s: float = 0.5, **options: Any
) -> list[arrowmq.ReceivedMessage]:
    """What a Python group of its own finds: so many, and what comes within a moment after."""
    found: list[arrowmq.ReceivedMessage] = []
    group = scene.name("python")
    with arrowmq.sync.Consumer(cluster.namesrv, group=group, topic=topic, consume_from="first", **options) as consumer:
        while some := consumer.receive(timeout_s=30 if len(found) < count else linger_s):
            for message in some:
                message.ack()
            found += some
    return found


def at_work(listener: Listener, producer: arrowmq.sync.Producer, topic: str) -> Listener:
    """The listener, once a first message has reached it: what comes then is not held up by its start."""
    producer.send(topic, b"ready", keys=["ready"])
    assert "ready" in {each["body"] for each in listener.until({"ready"})}
    return listener


# -- Python sends


@OTHERS
def test_messages_in_order_from_python_are_consumed_in_order(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=4)
    for n in range(12):
        producer.send(topic, b"%d" % n, keys=[f"k{n}"], order_key=f"customer {n % 3}")
    seen = scene.listener(hand_of(flavour), topic, orderly=True, fail={"k4": 1}).quiet(13)
    for customer in range(3):
        bodies = [int(each["body"]) for each in seen if int(each["body"]) % 3 == customer]
        assert sorted(bodies) == bodies
    assert 2 == [each["body"] for each in seen].count("4")


@OTHERS
def test_delayed_messages_from_python_come_in_time(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    listener = at_work(scene.listener(hand_of(flavour), topic), producer, topic)
    sent_ms = time.time() * 1000
    producer.send(topic, b"level", keys=["level"], delay_level=2)
    producer.send(topic, b"timer", keys=["timer"], delay=3)
    seen = {each["key"]: each["at"] - sent_ms for each in listener.quiet(3)}
    assert 4_000 <= seen["level"] <= 15_000
    assert 1_900 <= seen["timer"] <= 15_000  # a wheel that ticks in whole seconds


@OTHERS
def test_tags_and_expressions_choose_among_messages_from_python(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=2)
    for n in range(12):
        producer.send(topic, b"%d" % n, tag="ABC"[n % 3], keys=[f"k{n}"], properties={"price": str(n)})
    by_tag = scene.listener(hand_of(flavour), topic, tags="A || B").quiet(8)
    assert {n for n in range(12) if n % 3 < 2} == {int(each["body"]) for each in by_tag}
    by_sql = scene.listener(hand_of(flavour), topic, sql="price BETWEEN 3 AND 7 AND TAGS <> 'C'").quiet(3)
    assert {3, 4, 6, 7} == {int(each["body"]) for each in by_sql}


@OTHERS
def test_every_broadcasting_member_gets_what_python_sends(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, another_hand: HandOf, scene: Scene
) -> None:
    topic, group = scene.topic(queues=4), scene.name("g")
    hands = (hand_of(flavour), another_hand(flavour))
    members = [at_work(scene.listener(hand, topic, group, broadcasting=True), producer, topic) for hand in hands]
    for n in range(8):
        producer.send(topic, b"%d" % n)
    for member in members:
        seen = [each["body"] for each in member.until({f"{n}" for n in range(8)}) if each["body"] != "ready"]
        assert [f"{n}" for n in range(8)] == sorted(seen)


@OTHERS
def test_what_fails_at_another_client_comes_again_as_python_sent_it(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    receipt = producer.send(topic, "тело".encode(), tag="t", keys=["k"], properties={"city": "北京"})
    seen = scene.listener(hand_of(flavour), topic, fail={"k": 2}, failDelay=1).quiet(3, timeout_s=60)
    assert [("тело", "t", "北京", receipt.msg_id, times) for times in range(3)] == [
        (each["body"], each["tag"], each["props"]["city"], each["msgId"], each["times"]) for each in seen
    ]


@OTHERS
def test_a_request_from_python_is_answered_by_another_client(
    flavour: str, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic, hand = scene.topic(queues=1), hand_of(flavour)
    replier = scene.producer(hand)
    scene.listener(hand, topic, replier=replier.name)
    reply = producer.request(topic, "вопрос".encode(), timeout_s=20)
    assert "answer to вопрос" == reply.body.decode()


@pytest.mark.parametrize(
    ("flavour", "compression"),
    [
        *(("java-5.5-json", compression) for compression in ("zlib", "lz4", "zstd")),
        ("java-4.9-json", "zlib"),  # these two clients know no other
        ("go", "zlib"),
    ],
)
def test_compressed_messages_from_python_are_read(
    flavour: str, compression: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic, body = scene.topic(queues=1), "the same words " * 2000
    with arrowmq.sync.Producer(cluster.namesrv, compression=compression) as producer:
        producer.send(topic, body.encode(), keys=["k"])
    with arrowmq.sync.LitePullConsumer(
        cluster.namesrv, group=scene.name("g"), topic=topic, consume_from="first"
    ) as pulling:
        (stored,) = pulling.poll(30)
        assert body.encode() == stored.body
    (record,) = scene.listener(hand_of(flavour), topic).quiet(1)
    assert record["body"] in (body, f"sha256:{hashlib.sha256(body.encode()).hexdigest()}:{len(body)}")


# -- Python consumes


@OTHERS
def test_messages_in_order_from_others_are_consumed_in_order(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=2)
    scene.producer(hand_of(flavour)).send(topic, [{"body": f"{n}", "key": f"k{n}", "queue": n % 2} for n in range(12)])
    order: list[int] = []
    has_failed = threading.Event()
    all_came = threading.Event()

    def handle(message: arrowmq.ReceivedMessage) -> bool:
        number = int(message.body)
        if number == 4 and not has_failed.is_set():
            has_failed.set()
            return False  # the queue waits, and gives the same one again first
        order.append(number)
        if len(order) == 12:
            all_came.set()
        return True

    with arrowmq.sync.PushConsumer(
        cluster.namesrv,
        group=scene.name("python"),
        topic=topic,
        handler=handle,
        orderly=True,
        consume_from="first",
        suspend_s=0.1,
    ):
        assert all_came.wait(60)
    assert [list(range(0, 12, 2)), list(range(1, 12, 2))] == [[n for n in order if n % 2 == q] for q in range(2)]


@OTHERS
@pytest.mark.parametrize("how", ["sync", "async", "oneway", "batch"])
def test_every_way_of_sending_of_the_others_is_read(
    flavour: str, how: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=2)
    sent = [{"body": f"тело {n}", "key": f"k{n}", "tag": "T", "props": {"city": "北京"}} for n in range(5)]
    scene.producer(hand_of(flavour)).send(topic, sent, how)
    seen = consumed(cluster, scene, topic, 5)
    assert [(f"тело {n}", [f"k{n}"], "T", "北京") for n in range(5)] == sorted(
        (each.body.decode(), each.keys, each.tag, each.properties["city"]) for each in seen
    )
    assert 5 == len({each.msg_id for each in seen})


@OTHERS
def test_delayed_messages_from_others_come_in_time(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    scene.producer(hand_of(flavour)).send(topic, [{"body": "late", "delay": 2}, {"body": "now"}])
    seen = {each.body: each.store_timestamp - each.born_timestamp for each in consumed(cluster, scene, topic, 2)}
    assert seen[b"now"] < 2_000
    assert 4_000 <= seen[b"late"] <= 15_000


@OTHERS
def test_only_the_committed_of_others_transactions_are_seen(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic, hand = scene.topic(queues=1), hand_of(flavour)
    producer = scene.producer(hand, transactional=True)
    fates = [("commit", "commit"), ("rollback", "rollback"), ("unknown", "commit"), ("unknown", "rollback")]
    sent = [
        {"body": f"{fate} {check}", "key": f"k{n}", "props": {"fate": fate, "check": check}}
        for n, (fate, check) in enumerate(fates)
    ]
    hand.do("transact", producer=producer.name, topic=topic, messages=sent)
    seen = consumed(cluster, scene, topic, 2, linger_s=5)
    assert {b"commit commit", b"unknown commit"} == {each.body for each in seen}


@OTHERS
def test_tags_and_expressions_choose_among_messages_of_others(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=2)
    sent = [{"body": f"{n}", "tag": "ABC"[n % 3], "props": {"price": str(n)}} for n in range(12)]
    scene.producer(hand_of(flavour)).send(topic, sent)
    by_tag = consumed(cluster, scene, topic, 8, tags="A || B")
    assert {n for n in range(12) if n % 3 < 2} == {int(each.body) for each in by_tag}
    by_sql = consumed(cluster, scene, topic, 4, sql="price BETWEEN 3 AND 7 AND TAGS <> 'C'")
    assert {3, 4, 6, 7} == {int(each.body) for each in by_sql}


@OTHERS
def test_every_broadcasting_python_member_gets_what_others_send(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, group = scene.topic(queues=2), scene.name("g")
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                arrowmq.sync.Consumer(
                    cluster.namesrv,
                    group=group,
                    topic=topic,
                    broadcasting=True,
                    consume_from="first",
                    offset_folder=tmp_path_factory.mktemp("offsets"),
                )
            )
            for _ in range(2)
        ]
        scene.producer(hand_of(flavour)).send(topic, [{"body": f"{n}"} for n in range(8)])
        for member in members:
            found: list[bytes] = []
            while len(found) < 8:
                some = member.receive(timeout_s=30)
                assert some, f"only {found} came"
                found += [each.body for each in some]
                for each in some:
                    each.ack()
            assert [b"%d" % n for n in range(8)] == sorted(found)


@OTHERS
def test_what_python_gives_back_comes_again_as_others_sent_it(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    scene.producer(hand_of(flavour)).send(topic, [{"body": "тело", "tag": "t", "key": "k", "props": {"city": "北京"}}])
    seen: list[tuple[str, str | None, str, str, int]] = []
    with arrowmq.sync.Consumer(
        cluster.namesrv, group=scene.name("python"), topic=topic, consume_from="first"
    ) as consumer:
        while len(seen) < 3:
            some = consumer.receive(timeout_s=60)
            assert some, f"only {seen} came"
            for each in some:
                seen.append((each.body.decode(), each.tag, each.properties["city"], each.msg_id, each.reconsume_times))
                if len(seen) < 3:
                    each.nack(delay_level=1)
                else:
                    each.ack()
    assert [("тело", "t", "北京", seen[0][3], times) for times in range(3)] == seen


@OTHERS
def test_a_request_of_another_client_is_answered_by_python(
    flavour: str, cluster: Target, producer: arrowmq.sync.Producer, hand_of: HandOf, scene: Scene
) -> None:
    topic, hand = scene.topic(queues=1), hand_of(flavour)
    asking = scene.producer(hand)

    def handle(request: arrowmq.ReceivedMessage) -> None:
        producer.reply(request, b"answer to " + request.body)

    with arrowmq.sync.PushConsumer(
        cluster.namesrv, group=scene.name("python"), topic=topic, handler=handle, consume_from="first"
    ) as consumer:
        block_until(lambda: consumer.assignment)
        reply = hand.do("request", producer=asking.name, topic=topic, body="вопрос", timeout=20000)
    assert "answer to вопрос" == reply


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_python_reads_every_compression_of_java(
    compression: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    producer = scene.producer(hand_of("java-5.5-json"), compress=compression, compressOver=1000)
    producer.send(topic, [{"body": "the same words ", "repeat": 2000}])
    (message,) = consumed(cluster, scene, topic, 1)
    assert b"the same words " * 2000 == message.body


@pytest.mark.parametrize("flavour", ["java-4.9-json", "go"])
def test_python_reads_the_compression_of_clients_that_know_one(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic(queues=1)
    body = "the same words " * 2000
    scene.producer(hand_of(flavour)).send(topic, [{"body": body}])
    (message,) = consumed(cluster, scene, topic, 1)
    assert body == message.body.decode()

"""ArrowMQ's Python client beside Java and Go clients: what one sends the others read, and groups are shared."""

from __future__ import annotations

import time
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

READERS = ("java-5.5-json", "java-5.5-binary", "java-4.9-json", "go")


def received(cluster: Target, topic: str, count: int, **options: Any) -> list[arrowmq.ReceivedMessage]:
    group = f"python_{time.monotonic_ns()}"
    found: list[arrowmq.ReceivedMessage] = []
    with arrowmq.sync.Consumer(cluster.namesrv, group=group, topic=topic, consume_from="first", **options) as consumer:
        while len(found) < count:
            some = consumer.receive(timeout_s=30)
            assert some, f"{len(found)} of {count} came"
            for message in some:
                message.ack()
            found += some
    return found


@pytest.mark.parametrize("flavour", READERS)
def test_what_python_sends_others_read(flavour: str, cluster: Target, hand_of: HandOf, scene: Scene) -> None:
    topic = scene.topic()
    with arrowmq.sync.Producer(cluster.namesrv) as producer:
        receipts = {
            f"k{n}": producer.send(
                topic, f"тело {n}".encode(), tag="TagA", keys=[f"k{n}"], properties={"city": "北京 🚀"}
            )
            for n in range(8)
        }
        batch = [arrowmq.Message(topic, b"batched %d" % n, tag="TagB", keys=[f"b{n}"]) for n in range(8)]
        receipts |= {f"b{n}": receipt for n, receipt in enumerate(producer.send_batch(batch))}
    seen = scene.listener(hand_of(flavour), topic).quiet(16)
    assert set(receipts) == {record["key"] for record in seen}
    for record in seen:
        receipt = receipts[record["key"]]
        assert (receipt.queue_id, receipt.queue_offset, receipt.msg_id) == (
            record["queue"], record["offset"], record["msgId"],
        )  # fmt: skip
        if record["key"].startswith("k"):
            assert ("TagA", "北京 🚀", f"тело {record['key'][1:]}") == (
                record["tag"], record["props"]["city"], record["body"],
            )  # fmt: skip


@pytest.mark.parametrize("flavour", READERS)
def test_what_others_send_python_reads(flavour: str, cluster: Target, hand_of: HandOf, scene: Scene) -> None:
    topic = scene.topic()
    sent = [
        {"key": f"m-{n}", "tag": f"Tag{'AB'[n % 2]}", "body": f"body {n} тело", "props": {"city": "Zürich"}}
        for n in range(12)
    ]
    scene.producer(hand_of(flavour)).send(topic, sent)
    seen = received(cluster, topic, 12)
    assert sorted((each["key"], each["tag"], each["body"], "Zürich") for each in sent) == sorted(
        (message.keys[0], message.tag, message.body.decode(), message.properties["city"]) for message in seen
    )
    assert 6 == len(received(cluster, topic, 6, tags="TagB"))


def test_two_python_and_two_java_members_share_a_group_like_four(
    cluster: Target, hand_of: HandOf, another_hand: HandOf, scene: Scene
) -> None:
    topic, group = scene.topic(queues=8), scene.name("g")

    def listeners(*hands: Any) -> list[Listener]:
        return [scene.listener(hand, topic, group) for hand in hands]

    killed = another_hand("java-5.5-binary")
    java = listeners(hand_of("java-5.5-json"), killed)
    with ExitStack() as stack:
        python = [
            stack.enter_context(arrowmq.sync.Consumer(cluster.namesrv, group=group, topic=topic)) for _ in range(2)
        ]
        block_until(lambda: [2, 2] == [len(each.assignment) for each in python])
        held = [set(each.holds(2)) for each in java]
        ours = [{queue.queue_id for queue in each.assignment} for each in python]
        assert [2, 2, 2, 2] == [len(each) for each in (*held, *ours)]
        # Each queue has one owner: the divisions that the four computed alone fit together.
        theirs = {int(str(queue).rpartition("-")[2].rpartition(":")[2]) for each in held for queue in each}
        assert set(range(8)) == theirs | ours[0] | ours[1]

        java[0].stop()
        block_until(lambda: sum(len(each.assignment) for each in python) >= 5)
        killed.kill()
        block_until(lambda: sum(len(each.assignment) for each in python) == 8)
        python[0].close()
        block_until(lambda: len(python[1].assignment) == 8)


@pytest.mark.parametrize("flavour", ["java-5.5-json", "go"])
def test_every_kind_of_message_that_python_sends_is_read(
    flavour: str, cluster: Target, hand_of: HandOf, scene: Scene
) -> None:
    topic = scene.topic()
    with arrowmq.sync.Producer(cluster.namesrv, group=scene.name("p"), batching=True) as producer:
        with producer.transaction(topic, b"committed", keys=["committed"]):
            pass
        with pytest.raises(ZeroDivisionError), producer.transaction(topic, b"rolled back", keys=["rolled-back"]):
            raise ZeroDivisionError
        producer.send(topic, b"level", keys=["level"], delay_level=1)
        producer.send(topic, b"timer", keys=["timer"], delay=1)
        producer.send_oneway(topic, b"oneway", keys=["oneway"])
        gathered = [producer.submit(topic, b"gathered", keys=[f"gathered-{n}"]) for n in range(5)]
        ordered = [producer.send(topic, b"%d" % n, keys=[f"ordered-{n}"], order_key="same") for n in range(5)]
        assert all(each.result() for each in gathered)
    expected = {"committed", "level", "timer", "oneway"}
    expected |= {f"{kind}-{n}" for kind in ("gathered", "ordered") for n in range(5)}
    seen = scene.listener(hand_of(flavour), topic).quiet(len(expected))
    assert sorted(expected) == sorted(record["key"] for record in seen)
    in_order = sorted((record["offset"], record["key"]) for record in seen if record["key"].startswith("ordered"))
    assert [f"ordered-{n}" for n in range(5)] == [key for _, key in in_order]
    assert 1 == len({receipt.queue_id for receipt in ordered})

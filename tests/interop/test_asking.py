"""Clients that ask instead of being served: pull, lite pull, queries by key and id, offsets."""

from __future__ import annotations

import time

import pytest
from oracle.hand import Hand, HandOf, Refusal
from oracle.scene import Record, Scene

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

JAVA = ("java-5.5-json", "java-5.5-binary", "java-4.9-json")
GO_AND_JAVA = (*JAVA, "go")


@pytest.fixture
def hand(request: pytest.FixtureRequest, hand_of: HandOf) -> Hand:
    return hand_of(request.param)


def numbered(count: int, **more: object) -> list[Record]:
    return [{"key": f"k{i}", "tag": f"Tag{'AB'[i % 2]}", "body": f"body {i}", **more} for i in range(count)]


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
def test_a_pull_says_what_it_found_and_where_to_go_on(hand: Hand, scene: Scene) -> None:
    topic, name = scene.topic(queues=1), scene.name("puller")
    scene.producer(hand).send(topic, numbered(10))
    hand.do("puller", name=name, group=scene.name("g"), topic=topic)

    def pull(offset: int, **more: object) -> Record:
        found: Record = hand.do("pull", name=name, topic=topic, queue=0, offset=offset, **more)
        return found

    first = pull(0, most=4)
    assert (first["status"], first["next"], first["min"], first["max"]) == ("FOUND", 4, 0, 10)
    assert [record["key"] for record in first["messages"]] == ["k0", "k1", "k2", "k3"]
    rest = pull(4)
    assert [record["offset"] for record in rest["messages"]] == [4, 5, 6, 7, 8, 9]
    beyond = pull(99)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 10)
    if not hand.is_java:  # the Go client waits at the end of a queue, and has one expression for all pulls
        hand.do("stop-puller", name=name)
        return
    assert (pull(10)["status"], pull(10)["next"]) == ("NO_NEW_MSG", 10)
    tagged = pull(0, tags="TagB")
    assert [record["key"] for record in tagged["messages"]] == ["k1", "k3", "k5", "k7", "k9"]
    nothing = pull(0, tags="TagZ")
    assert (nothing["status"], nothing["next"]) == ("NO_MATCHED_MSG", 10)
    hand.do("stop-puller", name=name)


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_pull_that_blocks_is_answered_by_the_next_message(hand: Hand, scene: Scene) -> None:
    topic, name = scene.topic(queues=1), scene.name("puller")
    producer = scene.producer(hand)
    producer.send(topic, numbered(1))
    hand.do("puller", name=name, group=scene.name("g"))
    waiting = hand.begin("pull", name=name, topic=topic, queue=0, offset=1, block=True)
    producer.send(topic, [{"key": "late", "body": "ends the wait"}])
    found = waiting.result(40)
    assert (found["status"], [record["key"] for record in found["messages"]]) == ("FOUND", ["late"])
    hand.do("stop-puller", name=name)


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
def test_a_committed_offset_is_read_back(hand: Hand, scene: Scene) -> None:
    topic, name, group = scene.topic(queues=1), scene.name("puller"), scene.name("g")
    scene.producer(hand).send(topic, numbered(10))
    hand.do("puller", name=name, group=group, topic=topic)
    hand.do("pull", name=name, topic=topic, queue=0, offset=0)
    hand.do("commit", name=name, topic=topic, queue=0, offset=7)
    hand.do("stop-puller", name=name)
    again = scene.name("puller")
    hand.do("puller", name=again, group=group, topic=topic)
    assert hand.do("committed", name=again, topic=topic, queue=0) == 7
    hand.do("stop-puller", name=again)


def test_a_go_consumer_that_polls_hands_back_and_goes_on(hand_of: HandOf, scene: Scene) -> None:
    go, topic, group = hand_of("go"), scene.topic(), scene.name("g")
    producer = scene.producer(go)
    producer.send(topic, numbered(12))
    first = scene.name("poller")
    go.do("puller", name=first, group=group, topic=topic, maxReconsume=16)
    polled = go.do("poll", name=first, atLeast=12, timeout=30_000, fail={"k3": 1})
    assert sorted(f"k{i}" for i in range(12)) == sorted(record["key"] for record in polled)
    deadline = time.monotonic() + 40
    while scene.admin.do("offsets", topic=f"%RETRY%{group}", queue=0)["max"] < 1:
        assert time.monotonic() < deadline, "the message that was handed back does not come to the retry topic"
    go.do("stop-puller", name=first)
    producer.send(topic, [{"key": "later", "body": "after the first has left"}])
    second = scene.name("poller")
    go.do("puller", name=second, group=group, topic=topic, maxReconsume=16)
    found = go.do("poll", name=second, atLeast=2, timeout=60_000)
    assert {"later": 0, "k3": 1} == {record["key"]: record["times"] for record in found}
    go.do("stop-puller", name=second)


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_lite_pull_consumer_polls_commits_and_goes_on(hand: Hand, scene: Scene) -> None:
    topic, group, producer = scene.topic(), scene.name("g"), scene.producer(hand)
    producer.send(topic, numbered(12))
    first = scene.name("lite")
    hand.do("lite", name=first, group=group, topic=topic)
    polled = hand.do("poll", name=first, atLeast=12)
    assert sorted(record["key"] for record in polled) == sorted(f"k{i}" for i in range(12))
    committed = hand.do("lite-commit", name=first, topic=topic)
    assert sum(committed.values()) == 12
    hand.do("stop-lite", name=first)
    producer.send(topic, [{"key": "later", "body": "after the commit"}])
    second = scene.name("lite")
    hand.do("lite", name=second, group=group, topic=topic)
    assert [record["key"] for record in hand.do("poll", name=second, atLeast=1)] == ["later"]
    assert hand.do("poll", name=second, atLeast=1, timeout=1000) == []
    hand.do("stop-lite", name=second)


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_lite_pull_consumer_seeks_in_the_queues_it_assigned_itself(hand: Hand, scene: Scene) -> None:
    topic, name, producer = scene.topic(), scene.name("lite"), scene.producer(hand)
    producer.send(topic, numbered(8))
    hand.do("lite", name=name, group=scene.name("g"), topic=topic, assign=True)
    hand.do("seek", name=name, topic=topic)
    assert len(hand.do("poll", name=name, atLeast=8)) == 8
    hand.do("seek", name=name, topic=topic, time=0)
    assert len(hand.do("poll", name=name, atLeast=8)) == 8
    hand.do("seek", name=name, topic=topic, end=True)
    producer.send(topic, [{"key": "after the end", "body": "x"}])
    assert "after the end" in [record["key"] for record in hand.do("poll", name=name, atLeast=1)]
    hand.do("stop-lite", name=name)


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_message_is_found_by_each_of_its_keys_and_by_both_ids(hand: Hand, scene: Scene) -> None:
    topic = scene.topic()
    sent = [{"key": f"order-{i} customer-{i % 2}", "body": f"body {i}"} for i in range(6)]
    receipts = scene.producer(hand).send(topic, sent)
    # The listener proves that the broker has dispatched all of them, so the index has them too.
    scene.listener(hand, topic).seen(6)
    assert [record["body"] for record in hand.do("query", topic=topic, key="order-3")] == ["body 3"]
    both = hand.do("query", topic=topic, key="customer-1")
    assert {"body 1", "body 3", "body 5"} == {record["body"] for record in both}
    assert len(hand.do("query", topic=topic, key="customer-1", most=2)) == 2
    for message, receipt in zip(sent, receipts, strict=True):
        by_unique_key = hand.do("view", topic=topic, msgId=receipt["msgId"])
        by_offset = hand.do("view", topic=topic, msgId=receipt["offsetMsgId"])
        assert by_unique_key["body"] == by_offset["body"] == message["body"]
        assert (by_offset["queue"], by_offset["offset"]) == (receipt["queue"], receipt["offset"])
    with pytest.raises(Refusal):
        hand.do("query", topic=topic, key="no-such-key")


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_offsets_are_found_by_time(hand: Hand, scene: Scene) -> None:
    topic, producer = scene.topic(queues=1), scene.producer(hand)
    producer.send(topic, numbered(5))
    listener = scene.listener(hand, topic)
    stored = [record["stored"] for record in sorted(listener.seen(5), key=lambda record: record["offset"])]
    offsets = hand.do("offsets", topic=topic, queue=0, time=stored[0] - 1)
    assert (offsets["min"], offsets["max"], offsets["at"]) == (0, 5, 0)
    assert offsets["earliest"] == stored[0]
    assert hand.do("offsets", topic=topic, queue=0, time=stored[-1] + 60_000)["at"] == 5
    assert stored.index(stored[2]) == hand.do("offsets", topic=topic, queue=0, time=stored[2])["at"]

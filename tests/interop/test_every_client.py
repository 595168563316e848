"""Unmodified clients of every kind send and consume; what arrives is what was sent, once.

The same scenes are played by Java 5.5.0 in both header serializations, Java 4.9.8, Go and Node, as far as each client
has the feature. Content decides: bodies, keys, tags, properties, ids and offsets are compared, not counts.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any

import pytest
from oracle.hand import Hand, HandOf
from oracle.scene import Record, Scene

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

JAVA = ("java-5.5-json", "java-5.5-binary", "java-4.9-json")
EVERY = (*JAVA, "go", "node")
GO_AND_JAVA = (*JAVA, "go")


@pytest.fixture
def hand(request: pytest.FixtureRequest, hand_of: HandOf) -> Hand:
    return hand_of(request.param)


def messages(count: int, label: str = "m") -> list[Record]:
    cities = ("Zürich", "北京 🚀", "Oslo")
    return [
        {
            "key": f"{label}-{i}",
            "tag": f"Tag{'AB'[i % 2]}",
            "body": f"body {label} {i} тело",
            "props": {"city": cities[i % 3], "number": str(i)},
        }
        for i in range(count)
    ]


def content(record: Record) -> tuple[str, str, str, str | None, str | None]:
    props = record["props"]
    return record["key"], record.get("tag") or "", record["body"], props.get("city"), props.get("number")


def assert_exactly_once(sent: list[Record], seen: list[Record]) -> None:
    """Every message with its own content, none twice."""
    assert Counter(map(content, sent)) == Counter(map(content, seen))


@pytest.mark.parametrize("hand", EVERY, indirect=True)
def test_what_is_sent_synchronously_arrives_where_the_receipt_says(hand: Hand, scene: Scene) -> None:
    topic, sent = scene.topic(), messages(24)
    receipts = scene.producer(hand).send(topic, sent)
    seen = scene.listener(hand, topic).quiet(24)
    assert_exactly_once(sent, seen)
    place = {record["key"]: (record["queue"], record["offset"], record["msgId"]) for record in seen}
    for message, receipt in zip(sent, receipts, strict=True):
        assert receipt["status"] == "SEND_OK"
        assert (receipt["queue"], receipt["offset"], receipt["msgId"]) == place[message["key"]]


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
@pytest.mark.parametrize("how", ["async", "oneway"])
def test_what_is_sent_without_waiting_arrives(hand: Hand, scene: Scene, how: str) -> None:
    topic, sent = scene.topic(), messages(60)
    scene.producer(hand).send(topic, sent, how)
    assert_exactly_once(sent, scene.listener(hand, topic).quiet(60))


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
def test_a_batch_arrives_as_its_messages_in_order(hand: Hand, scene: Scene) -> None:
    topic, producer = scene.topic(queues=1), scene.producer(hand)
    sent: list[Record] = []
    for size in (1, 3, 50):
        batch = messages(size, f"batch{size}")
        producer.send(topic, batch, "batch")
        sent += batch
    seen = scene.listener(hand, topic).quiet(54)
    assert_exactly_once(sent, seen)
    by_offset = sorted(seen, key=lambda record: record["offset"])
    assert [message["key"] for message in sent] == [record["key"] for record in by_offset]
    assert list(range(54)) == [record["offset"] for record in by_offset]


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)  # Node's client wants a route before it sends
def test_a_topic_is_made_by_its_first_message(hand: Hand, scene: Scene) -> None:
    topic, sent = scene.name("auto"), messages(8)
    scene.producer(hand).send(topic, sent)
    assert_exactly_once(sent, scene.listener(hand, topic).quiet(8))


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_bodies_of_every_kind_come_back_unchanged(hand: Hand, scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer(hand)
    sent = [
        {"key": "one byte", "body": "x"},
        {"key": "compressed", "body": "words and words ", "repeat": 2000},
        {"key": "noise", "size": 100_000, "seed": 7},
        {"key": "a megabyte", "size": 1_000_000, "seed": 8},
        {"key": "unicode", "body": "тело 本体 🚀", "tag": "Ünï", "props": {'quo"te': "back\\slash"}},
    ]
    assert [receipt["status"] for receipt in producer.send(topic, sent)] == ["SEND_OK"] * 5
    again = scene.listener(hand, topic)
    first = {record["key"]: record for record in again.quiet(5)}
    puller = scene.name("puller")
    hand.do("puller", name=puller, group=puller)
    second: dict[str, Record] = {}
    for queue in range(4):
        place = 0
        while (found := hand.do("pull", name=puller, topic=topic, queue=queue, offset=place))["status"] == "FOUND":
            second |= {record["key"]: record for record in found["messages"]}
            place = found["next"]
    hand.do("stop-puller", name=puller)
    assert {message["key"] for message in sent} == first.keys() == second.keys()
    assert {key: record["body"] for key, record in first.items()} == {
        key: record["body"] for key, record in second.items()
    }
    assert first["one byte"]["body"] == "x"
    assert first["a megabyte"]["body"].endswith(":1000000")
    words = b"words and words " * 2000
    assert first["compressed"]["body"] == f"sha256:{hashlib.sha256(words).hexdigest()}:{len(words)}"
    assert first["unicode"]["body"] == "тело 本体 🚀"
    assert first["unicode"]["tag"] == "Ünï"
    assert first["unicode"]["props"]['quo"te'] == "back\\slash"


@pytest.mark.parametrize("hand", ["java-5.5-json"], indirect=True)
@pytest.mark.parametrize("compress", ["ZLIB", "LZ4", "ZSTD"])
def test_every_compression_of_the_client_is_carried(hand: Hand, scene: Scene, compress: str) -> None:
    topic = scene.topic()
    scene.producer(hand, compress=compress).send(topic, [{"key": "k", "body": "words and words ", "repeat": 1000}])
    plain = scene.producer(hand, compressOver=1 << 22)
    plain.send(topic, [{"key": "k", "body": "words and words ", "repeat": 1000}])
    seen = scene.listener(hand, topic).quiet(2)
    assert len({record["body"] for record in seen}) == 1
    assert seen[0]["body"].endswith(":16000")


@pytest.mark.parametrize("hand", ["java-5.5-json", "java-4.9-json"], indirect=True)
def test_the_vip_port_takes_messages_too(hand: Hand, scene: Scene) -> None:
    topic, sent = scene.topic(), messages(8)
    scene.producer(hand, vip=True).send(topic, sent)
    assert_exactly_once(sent, scene.listener(hand, topic).quiet(8))


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_refused_send_is_an_error_and_stores_nothing(hand: Hand, scene: Scene) -> None:
    readonly, topic = scene.topic(perm=4), scene.topic()
    producer = scene.producer(hand, retries=0, maxMessageSize=1 << 24, compressOver=1 << 24)
    too_large = producer.send(topic, [{"key": "k", "size": 5 << 20}])[0]
    system = producer.send("SCHEDULE_TOPIC_XXXX", [{"key": "k", "body": "x"}])[0]
    unwritable = producer.send(readonly, [{"key": "k", "body": "x"}])[0]
    assert too_large["code"] == 13  # MESSAGE_ILLEGAL
    assert "status" not in system
    assert "status" not in unwritable  # the route offers no queue to write to
    assert scene.listener(hand, topic).quiet(0) == []


@pytest.mark.parametrize("hand", EVERY, indirect=True)
def test_every_member_of_a_broadcasting_group_gets_everything(hand: Hand, scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("g")
    pair = [scene.listener(hand, topic, group, broadcasting=True) for _ in range(2)]
    if hand.name.startswith("java"):
        for listener in pair:
            assert len(listener.holds(4)) == 4
    sent = messages(12)
    scene.producer(hand).send(topic, sent)
    for listener in pair:
        assert_exactly_once(sent, listener.quiet(12))


@pytest.mark.parametrize("hand", EVERY, indirect=True)
def test_a_group_goes_on_where_it_stopped(hand: Hand, scene: Scene) -> None:
    topic, group, producer = scene.topic(), scene.name("g"), scene.producer(hand)
    first, second = messages(20, "first"), messages(20, "second")
    producer.send(topic, first)
    early = scene.listener(hand, topic, group)
    assert_exactly_once(first, early.quiet(20))
    early.stop()
    producer.send(topic, second)
    assert_exactly_once(second, scene.listener(hand, topic, group).quiet(20))


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
def test_two_members_share_and_share_again_as_one_joins_and_leaves(hand: Hand, scene: Scene) -> None:
    topic, group, producer = scene.topic(queues=8), scene.name("g"), scene.producer(hand)
    alone = scene.listener(hand, topic, group)
    sent = messages(40, "alone")
    producer.send(topic, sent)
    assert_exactly_once(sent, alone.quiet(40))
    joined = scene.listener(hand, topic, group)
    if hand.name.startswith("java"):
        assert (len(alone.holds(4)), len(joined.holds(4))) == (4, 4)
        assert not set(alone.holds()) & set(joined.holds())
    shared = messages(80, "shared")
    producer.send(topic, shared)
    joined.seen(1)
    total = 120
    while len(alone.seen(len(alone.seen()) + 1, 3)) + len(joined.seen()) < total:
        pass
    assert joined.seen(), "the second member got nothing"
    joined_saw = joined.stop()
    if hand.name.startswith("java"):
        assert len(alone.holds(8)) == 8
    last = messages(40, "last")
    producer.send(topic, last)
    seen = alone.quiet(total + 40 - len(joined_saw), timeout_s=60) + joined_saw
    # Taking over a queue may repeat what its former owner had not yet acknowledged; nothing may be missing.
    assert set(map(content, [*sent, *shared, *last])) == set(map(content, seen))
    again = sum(Counter(map(content, seen)).values()) - len({*map(content, seen)})
    assert again <= 40


@pytest.mark.parametrize("flavour", ["java-5.5-json", "java-4.9-json", "go"])
def test_the_queues_of_a_killed_member_pass_to_the_others(
    flavour: str, hand_of: HandOf, another_hand: HandOf, scene: Scene
) -> None:
    topic, group = scene.topic(queues=4), scene.name("g")
    survivor = scene.listener(hand_of(flavour), topic, group)
    doomed_hand = another_hand(flavour)
    doomed = scene.listener(doomed_hand, topic, group)
    producer = scene.producer(hand_of("java-5.5-json"))
    before: list[Record] = []
    while not doomed.seen(1, 2) and len(before) < 400:
        more = messages(20, f"before{len(before)}")
        producer.send(topic, more)
        before += more
    assert doomed.seen(), "the second member got nothing"
    both = -1
    while both < len(survivor.seen()) + len(doomed.seen()):
        both = len(survivor.seen()) + len(doomed.seen())
        survivor.seen(len(survivor.seen()) + 1, 2)
    killed_saw = doomed.seen()
    doomed_hand.kill()
    after = messages(40, "after")
    producer.send(topic, after)
    wanted = set(map(content, after))
    deadline = 90
    seen = survivor.seen()
    while not wanted <= set(map(content, seen)) and deadline > 0:
        seen = survivor.seen(len(seen) + 1, 3)
        deadline -= 3
    assert wanted <= set(map(content, seen))
    assert set(map(content, [*before, *after])) == set(map(content, [*seen, *killed_saw]))


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
def test_where_a_new_group_begins_follows_its_rule(hand: Hand, scene: Scene) -> None:
    """On young queues (nothing deleted yet) the broker lets every new group begin at the start, whatever its rule."""
    topic, old, new = scene.topic(), messages(8, "old"), messages(8, "new")
    producer = scene.producer(hand)
    producer.send(topic, old)
    rules: dict[str, dict[str, Any]] = {
        "FIRST_OFFSET": {},
        "LAST_OFFSET": {},
        "TIMESTAMP": {"timestamp": "20200101000000"},
    }
    listeners = [scene.listener(hand, topic, consumeFrom=rule, **more) for rule, more in rules.items()]
    for listener in listeners:
        listener.seen(8)
    producer.send(topic, new)
    for listener in listeners:
        assert_exactly_once([*old, *new], listener.quiet(16))


@pytest.mark.parametrize("hand", GO_AND_JAVA, indirect=True)
@pytest.mark.parametrize("tags", ["TagA", "TagA || TagC", "*"])
def test_a_tag_expression_selects(hand: Hand, scene: Scene, tags: str) -> None:
    topic = scene.topic()
    sent = [{"key": f"k{i}", "tag": f"Tag{'ABC'[i % 3]}", "body": f"b{i}"} for i in range(18)]
    scene.producer(hand).send(topic, sent)
    wanted = {f"k{i}" for i in range(18) if tags == "*" or f"Tag{'ABC'[i % 3]}" in tags}
    seen = scene.listener(hand, topic, tags=tags).quiet(len(wanted))
    assert sorted(wanted) == sorted(record["key"] for record in seen)


@pytest.mark.parametrize("hand", EVERY, indirect=True)
def test_a_waiting_consumer_is_woken_by_the_append(hand: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    listener, producer = scene.listener(hand, topic), scene.producer(hand)
    producer.send(topic, messages(1, "warm"))
    listener.seen(1)
    for i in range(20):
        producer.send(topic, messages(1, f"n{i}"))
        listener.seen(2 + i)
    waits = sorted(record["at"] - record["stored"] for record in listener.seen()[1:])
    assert len(waits) == 20
    assert waits[10] < 50, f"milliseconds from store to consumer: {waits}"


@pytest.mark.parametrize("hand", JAVA, indirect=True)
def test_a_random_mixture_is_delivered_exactly_once(hand: Hand, scene: Scene) -> None:
    topic, producer = scene.topic(queues=6), scene.producer(hand)
    listener = scene.listener(hand, topic)
    draw = random.Random(20261115)
    sent: list[Record] = []
    for round_number in range(30):
        batch = messages(draw.randint(1, 12), f"r{round_number}")
        producer.send(topic, batch, draw.choice(["sync", "async", "oneway", "batch"]))
        sent += batch
    assert_exactly_once(sent, listener.quiet(len(sent)))

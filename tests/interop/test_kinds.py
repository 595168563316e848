"""Every kind of message with the real Java and Go clients: retries, dead letters, transactions, filters, replies."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest
from oracle.hand import Hand, HandOf
from oracle.raw import Asking
from oracle.scene import SOAK, Listener, Record, Scene
from oracle.target import Target

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FLAVOUR = "java-5.5-json"
JAVA_AND_GO = ("java-5.5-json", "go")
AT_LENGTH = JAVA_AND_GO if SOAK else ("java-5.5-json",)
EVERY = ("java-5.5-json", "java-5.5-binary", "go")


@pytest.fixture
def java(hand_of: HandOf) -> Hand:
    return hand_of(FLAVOUR)


@pytest.fixture
def hand(request: pytest.FixtureRequest, hand_of: HandOf) -> Hand:
    return hand_of(request.param)


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_an_orderly_listener_that_suspends_sees_the_same_message_again_first(hand: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    scene.producer(hand).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(6)])
    seen = scene.listener(hand, topic, orderly=True, fail={"k2": 2}).quiet(8)
    assert ["0", "1", "2", "2", "2", "3", "4", "5"] == [record["body"] for record in seen]


@pytest.mark.parametrize("hand", EVERY, indirect=True)
def test_a_failed_message_comes_back_with_its_count_and_time(hand: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    sent = [{"key": "fine", "body": "a"}, {"key": "once", "body": "b"}, {"key": "twice", "body": "c"}]
    scene.producer(hand).send(topic, sent)
    seen = scene.listener(hand, topic, fail={"once": 1, "twice": 2}, failDelay=1).quiet(6, timeout_s=60)
    times = {key: [r["times"] for r in seen if r["key"] == key] for key in ("fine", "once", "twice")}
    assert times == {"fine": [0], "once": [0, 1], "twice": [0, 1, 2]}
    for record in seen:
        assert record["topic"] == topic
        assert record["body"] == {"fine": "a", "once": "b", "twice": "c"}[record["key"]]
    first, second = (r for r in seen if r["key"] == "once")
    assert second["at"] - first["at"] >= 900
    assert len({r["msgId"] for r in seen if r["key"] == "twice"}) == 1


@pytest.mark.parametrize("hand", AT_LENGTH, indirect=True)
def test_without_a_wish_the_first_retry_waits_ten_seconds(hand: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    scene.producer(hand).send(topic, [{"key": "once", "body": "b"}])
    first, second = scene.listener(hand, topic, fail={"once": 1}).quiet(2, timeout_s=60)
    assert 9_500 <= second["stored"] - first["at"] <= 13_000


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_what_fails_too_often_becomes_a_dead_letter(hand: Hand, java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=1), scene.name("g")
    scene.producer(hand).send(topic, [{"key": "bad", "body": "x", "props": {"why": "kept"}}])
    seen = scene.listener(hand, topic, group, fail={"bad": -1}, failDelay=1, maxReconsume=2).quiet(3, 5, timeout_s=60)
    assert [0, 1, 2] == [record["times"] for record in seen]
    assert java.do("offsets", topic=f"%DLQ%{group}", queue=0)["max"] == 1
    assert java.do("offsets", topic=f"%RETRY%{group}", queue=0)["max"] == 2


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_dead_letters_that_are_sent_again_reach_the_consumer_that_can_take_them_now(
    hand: Hand, java: Hand, cluster: Target, scene: Scene
) -> None:
    """Resent by a filter, with a result for each: `arrowmq dead-letters resend`."""
    topic, group = scene.topic(queues=1), scene.name("g")
    sent = [{"key": f"bad{i}", "tag": f"T{i % 2}", "body": f"{i}", "props": {"why": "kept"}} for i in range(4)]
    scene.producer(hand).send(topic, sent)
    failing = scene.listener(hand, topic, group, fail={f"bad{i}": -1 for i in range(4)}, maxReconsume=0)
    failing.seen(4)
    deadline = time.monotonic() + 40
    while java.do("offsets", topic=f"%DLQ%{group}", queue=0)["max"] < 4:
        assert time.monotonic() < deadline, "the messages do not become dead letters"
    failing.stop()
    resent = json.loads(_arrowmq(cluster, "dead-letters", "resend", group, "--tag", "T1", "--yes", "--json"))
    assert len(resent["sent"]) == 2
    seen = scene.listener(hand, topic, group).quiet(2)
    again = {record["body"]: (record["key"], record["tag"], record["props"]["why"]) for record in seen}
    assert again == {f"{i}": (f"bad{i}", "T1", "kept") for i in (1, 3)}


def _arrowmq(cluster: Target, *words: str) -> str:
    program = [sys.executable, "-c", "from arrowmq.cli import main; main()", *words]
    env = {**os.environ, "ARROWMQ_NAMESRV": cluster.namesrv}
    return subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_an_orderly_listener_that_never_succeeds_gives_the_message_up_and_goes_on(
    hand: Hand, java: Hand, scene: Scene
) -> None:
    topic, group = scene.topic(queues=1), scene.name("g")
    scene.producer(hand).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(4)])
    listener = scene.listener(hand, topic, group, orderly=True, fail={"k1": -1}, maxReconsume=2)
    tries = 3 if hand.is_java else 4  # the Go client counts the first retry as none
    seen = listener.seen(3 + tries, 60)
    assert ["0", *["1"] * tries, "2", "3"] == [record["body"] for record in seen]
    # The clients send it back with its count used up: the broker makes it a dead letter at once.
    assert java.do("offsets", topic=f"%DLQ%{group}", queue=0)["max"] == 1


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
@pytest.mark.parametrize("level", [1, 2] if SOAK else [1])
def test_a_delayed_message_comes_when_its_level_says(hand: Hand, scene: Scene, level: int) -> None:
    topic, delay_ms = scene.topic(queues=1), {1: 1_000, 2: 5_000}[level]
    listener = scene.listener(hand, topic)
    sent = [{"key": f"d{i}", "tag": "T", "body": f"{i}", "delay": level} for i in range(20)]
    scene.producer(hand).send(topic, sent)
    seen = sorted(listener.quiet(20), key=lambda record: record["offset"])
    assert [f"{i}" for i in range(20)] == [record["body"] for record in seen]
    assert all(0 <= record["stored"] - record["born"] - delay_ms <= 1_000 for record in seen)


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_a_transaction_is_seen_only_when_it_is_committed(hand: Hand, another_hand: HandOf, scene: Scene) -> None:
    """Committed, rolled back, unknown and then checked, and checked through another member when the sender is dead."""
    topic, group = scene.topic(), scene.name("tx")
    listener = scene.listener(hand, topic)
    doomed = another_hand(hand.flavour)
    orphan = scene.producer(doomed, group=group, transactional=True)
    fates = {"fate": "unknown", "check": "commit"}
    doomed.do("transact", producer=orphan.name, topic=topic, messages=[{"key": "orphan", "body": "x", "props": fates}])
    doomed.kill()
    producer = scene.producer(hand, group=group, transactional=True)
    cases = {
        "committed": ("commit", "rollback"),
        "rolled back": ("rollback", "commit"),
        "checked, committed": ("unknown", "commit"),
        "checked, rolled back": ("unknown", "rollback"),
    }
    sent = [
        {"key": f"case{i}", "body": name, "props": {"fate": fate, "check": check}}
        for i, (name, (fate, check)) in enumerate(cases.items())
    ]
    receipts = hand.do("transact", producer=producer.name, topic=topic, messages=sent)
    assert ["SEND_OK"] * 4 == [receipt["status"] for receipt in receipts]
    seen = listener.quiet(3, linger_s=8, timeout_s=60)
    assert sorted(["committed", "checked, committed", "x"]) == sorted(record["body"] for record in seen)
    checked = hand.do("checked", producer=producer.name)
    assert {"case2", "case3", "orphan"} <= set(checked)


# What the Apache broker delivers of the messages below; rows that look odd are its rules for missing and mixed values.
SQL = {
    "number > 5": {"m6", "m7", "m8", "m9"},
    "number >= 3 AND number < 5": {"m3", "m4"},
    "number BETWEEN 2 AND 4": {"m2", "m3", "m4"},
    "number NOT BETWEEN 2 AND 8": {"m0", "m1", "m9"},
    "city = 'Zürich'": {"m0", "m3", "m6", "m9"},
    "city <> 'Zürich'": {"m1", "m2", "m4", "m5", "m7", "m8"},
    "city IN ('Oslo', 'Rome')": {"m2", "m5", "m8"},
    "city NOT IN ('Oslo', 'Zürich')": {"m1", "m4", "m7"},
    "rare IS NULL": {f"m{i}" for i in range(10)} - {"m4"},
    "rare IS NOT NULL": {"m4"},
    "TAGS IS NOT NULL AND number = 1": {"m1"},
    "TAGS = 'TagB' OR number = 0": {"m0", "m1", "m3", "m5", "m7", "m9"},
    "NOT (number = 1)": {f"m{i}" for i in range(10)} - {"m1"},
    "flagged = TRUE": {"m0", "m5"},
    "(number > 7 OR city = 'Oslo') AND NOT (number = 8)": {"m2", "m5", "m9"},
    "rare > 3": {"m4"},
    "number > 2 AND rare = '9'": {"m4"},
}


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_sql_filters_select_what_apache_selects(hand: Hand, scene: Scene) -> None:
    topic = scene.topic()
    cities = ("Zürich", "Bern", "Oslo")
    sent: list[Record] = []
    for i in range(10):
        props = {"number": str(i), "city": cities[i % 3], "flagged": "true" if i % 5 == 0 else "false"}
        if i == 4:
            props["rare"] = "9"
        sent.append({"key": f"m{i}", "tag": f"Tag{'AB'[i % 2]}", "body": "x", "props": props})
    scene.producer(hand).send(topic, sent)
    listeners: dict[str, Listener] = {expression: scene.listener(hand, topic, sql=expression) for expression in SQL}
    found = {
        expression: {record["key"] for record in listener.quiet(len(SQL[expression]), 1.0, 15)}
        for expression, listener in listeners.items()
    }
    assert SQL == found


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_a_request_gets_its_reply(hand: Hand, java: Hand, scene: Scene) -> None:
    topic = scene.topic()
    replier = scene.producer(hand)
    listener = scene.listener(hand, topic, replier=replier.name)
    asking = scene.producer(hand)
    if hand.is_java:
        listener.holds(4)
    else:
        # The Go client tells a broker who it is only a second after it first sent something; before, no reply finds it.
        asking.send(scene.topic(), [{"key": "k", "body": "here I am"}])
        deadline = time.monotonic() + 40
        while "connectionSet" not in java.do(
            "admin", method="examineProducerConnectionInfo", arguments=[asking.group, topic]
        ):
            assert time.monotonic() < deadline, "the broker does not know the asking client"
    for i in range(3):
        reply = hand.do("request", producer=asking.name, topic=topic, key=f"q{i}", body=f"question {i}", timeout=20000)
        assert reply == f"answer to question {i}"


@pytest.mark.parametrize("hand", AT_LENGTH, indirect=True)
def test_offsets_are_reset_while_a_consumer_runs(hand: Hand, java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=1), scene.name("g")
    scene.producer(hand).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(10)])
    listener = scene.listener(hand, topic, group)
    listener.seen(10)
    if hand.is_java:
        java.do("commit-offsets", name=listener.name)
    assert {"0": 0} == java.do("reset", topic=topic, group=group, time=0, force=True)
    seen = listener.quiet(20, timeout_s=60)  # the clients let ten seconds pass before they obey
    assert sorted([f"{i}" for i in range(10)] * 2) == sorted(record["body"] for record in seen)


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_an_operator_sees_into_a_running_consumer(hand: Hand, java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=2), scene.name("g")
    receipts = scene.producer(hand).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(4)])
    listener = scene.listener(hand, topic, group)
    listener.seen(4)
    members = json.loads(java.do("admin", method="examineConsumerConnectionInfo", arguments=[group]))
    (client_id,) = (member["clientId"] for member in members["connectionSet"])
    if hand.is_java:
        assert client_id == listener.client_id
        listener.holds(2)
        java.do("commit-offsets", name=listener.name)
    running = java.do("running", group=group, clientId=client_id, stack=hand.is_java)
    assert (running["subscriptions"], running["consumeType"]) == (2, "CONSUME_PASSIVELY")
    assert running["stack"] is True or not hand.is_java
    assert running["queues"] >= 2
    directly = java.do("directly", group=group, clientId=client_id, topic=topic, msgId=receipts[0]["offsetMsgId"])
    assert directly == "CR_SUCCESS"
    assert len(listener.seen(5)) == 5
    if hand.is_java:
        status = java.do("consumer-status", topic=topic, group=group, clientId=client_id)
        assert sum(status[client_id].values()) == 4
        progress = java.do("progress", group=group, topic=topic)
        assert 4 == sum(queue["consumer"] for name, queue in progress.items() if name.startswith(topic))


@pytest.mark.parametrize("hand", JAVA_AND_GO, indirect=True)
def test_a_message_is_traced_from_its_sender_to_its_consumer(hand: Hand, cluster: Target, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    (receipt,) = scene.producer(hand, trace=True).send(topic, [{"key": "k", "body": "traced"}])
    assert len(scene.listener(hand, topic, trace=True).seen(1)) == 1
    wanted, deadline = {"Pub", "SubBefore", "SubAfter"}, time.monotonic() + 60
    while not wanted <= (kinds := asyncio.run(_traces(cluster.broker, receipt["msgId"]))):
        assert time.monotonic() < deadline, f"only {kinds}"


async def _traces(broker: str, message_id: str) -> set[str]:
    """The kinds of trace records that name a message; of a trace topic whose bodies are too long for a listener."""
    async with Asking(broker) as asking:
        queues = [await asking.contents("RMQ_SYS_TRACE_TOPIC", queue_id) for queue_id in range(4)]
    lines = [line for queue in queues for record in queue for line in record.body.decode().split("\x02")]
    return {line.partition("\x01")[0] for line in lines if message_id in line}

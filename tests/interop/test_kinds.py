"""Every kind of message with the real Java client: order, delay, retry, transactions, filters, replies."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from oracle.hand import Hand, HandOf
from oracle.order import assert_order
from oracle.scene import Listener, Record, Scene

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FLAVOUR = "java-5.5-json"
BOTH = ("java-5.5-json", "java-5.5-binary")
DELAY_S = {1: 1, 2: 5, 3: 10}


@pytest.fixture
def java(hand_of: HandOf) -> Hand:
    return hand_of(FLAVOUR)


def test_order_is_kept_per_key_while_members_come_and_die(
    java: Hand, another_hand: HandOf, scene: Scene, tmp_path: Path
) -> None:
    keys, count, journal = 16, 6_250, tmp_path / "what the killed member saw"
    topic, group, producer = scene.topic(queues=4), scene.name("g"), scene.producer(java)
    survivor = scene.listener(java, topic, group, orderly=True, brief=True, batch=8)
    flooding: Future[Record] = java.begin(
        "flood", producer=producer.name, topic=topic, keys=keys, count=count, threads=8
    )
    survivor.seen(5_000, 60)
    doomed_hand = another_hand(FLAVOUR)
    doomed = scene.listener(doomed_hand, topic, group, orderly=True, brief=True, batch=8, journal=str(journal))
    assert doomed.seen(2_000, 90), "the second member got nothing"
    doomed_hand.kill()
    killed_saw = journal.read_text().splitlines()
    assert flooding.result(240)["sent"] == keys * count
    seen: list[str] = survivor.seen()
    wanted = {f"k{key}:{number}" for key in range(keys) for number in range(count)}
    found = {record.partition("@")[0] for record in killed_saw}
    deadline = time.monotonic() + 120
    while not wanted <= found | {record.partition("@")[0] for record in seen} and time.monotonic() < deadline:
        seen = survivor.seen(len(seen) + 1, 5)
    assert wanted == found | {record.partition("@")[0] for record in seen}
    assert_order(killed_saw, seen)
    assert_order(seen, killed_saw)


def test_an_orderly_listener_that_suspends_sees_the_same_message_again_first(java: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    scene.producer(java).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(6)])
    seen = scene.listener(java, topic, orderly=True, fail={"k2": 2}).quiet(8)
    assert ["0", "1", "2", "2", "2", "3", "4", "5"] == [record["body"] for record in seen]


@pytest.mark.parametrize("level", sorted(DELAY_S))
def test_a_thousand_pending_delays_come_on_time(java: Hand, scene: Scene, level: int) -> None:
    topic, delay_s = scene.topic(queues=1), DELAY_S[level]
    listener = scene.listener(java, topic)
    sent = [{"key": f"d{i}", "body": f"{i}", "delay": level} for i in range(1_000)]
    receipts = scene.producer(java).send(topic, sent, "async")
    assert {"SEND_OK"} == {receipt.get("status") for receipt in receipts}
    seen = listener.quiet(1_000, timeout_s=delay_s + 30)
    assert sorted(message["body"] for message in sent) == sorted(record["body"] for record in seen)
    # Due is counted from when the broker stored the message, which its offset id leads to; every tenth is looked up.
    delivered = {record["body"]: record["stored"] for record in seen}
    late = sorted(
        delivered[f"{i}"] - java.do("view", topic=topic, msgId=receipts[i]["offsetMsgId"])["stored"] - 1_000 * delay_s
        for i in range(0, 1_000, 10)
    )
    assert late[0] >= 0, f"{-late[0]} ms too early"
    assert late[95] <= 200, f"milliseconds after they were due: {late}"


@pytest.mark.parametrize("flavour", BOTH)
def test_a_failed_message_comes_back_with_its_count_and_time(flavour: str, hand_of: HandOf, scene: Scene) -> None:
    hand = hand_of(flavour)
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


def test_without_a_wish_the_first_retry_waits_ten_seconds(java: Hand, scene: Scene) -> None:
    topic = scene.topic(queues=1)
    scene.producer(java).send(topic, [{"key": "once", "body": "b"}])
    first, second = scene.listener(java, topic, fail={"once": 1}).quiet(2, timeout_s=60)
    assert 9_500 <= second["stored"] - first["at"] <= 13_000


def test_what_fails_too_often_becomes_a_dead_letter(java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=1), scene.name("g")
    scene.producer(java).send(topic, [{"key": "bad", "body": "x", "props": {"why": "kept"}}])
    seen = scene.listener(java, topic, group, fail={"bad": -1}, failDelay=1, maxReconsume=2).quiet(3, 5, timeout_s=60)
    assert [0, 1, 2] == [record["times"] for record in seen]
    assert java.do("offsets", topic=f"%DLQ%{group}", queue=0)["max"] == 1
    assert java.do("offsets", topic=f"%RETRY%{group}", queue=0)["max"] == 2


def test_a_transaction_is_seen_only_when_it_is_committed(java: Hand, another_hand: HandOf, scene: Scene) -> None:
    """Committed, rolled back, unknown and then checked, and checked through another member when the sender is dead."""
    topic, group = scene.topic(), scene.name("tx")
    listener = scene.listener(java, topic)
    doomed = another_hand(FLAVOUR)
    orphan = scene.producer(doomed, group=group, transactional=True)
    fates = {"fate": "unknown", "check": "commit"}
    doomed.do("transact", producer=orphan.name, topic=topic, messages=[{"key": "orphan", "body": "x", "props": fates}])
    doomed.kill()
    producer = scene.producer(java, group=group, transactional=True)
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
    receipts = java.do("transact", producer=producer.name, topic=topic, messages=sent)
    assert ["SEND_OK"] * 4 == [receipt["status"] for receipt in receipts]
    seen = listener.quiet(3, linger_s=8, timeout_s=60)
    assert sorted(["committed", "checked, committed", "x"]) == sorted(record["body"] for record in seen)
    checked = java.do("checked", producer=producer.name)
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


def test_sql_filters_select_what_apache_selects(java: Hand, scene: Scene) -> None:
    topic = scene.topic()
    cities = ("Zürich", "Bern", "Oslo")
    sent: list[Record] = []
    for i in range(10):
        props = {"number": str(i), "city": cities[i % 3], "flagged": "true" if i % 5 == 0 else "false"}
        if i == 4:
            props["rare"] = "9"
        sent.append({"key": f"m{i}", "tag": f"Tag{'AB'[i % 2]}", "body": "x", "props": props})
    scene.producer(java).send(topic, sent)
    listeners: dict[str, Listener] = {expression: scene.listener(java, topic, sql=expression) for expression in SQL}
    found = {
        expression: {record["key"] for record in listener.quiet(len(SQL[expression]), 1.0, 15)}
        for expression, listener in listeners.items()
    }
    assert SQL == found


def test_a_request_gets_its_reply(java: Hand, scene: Scene) -> None:
    topic = scene.topic()
    replier = scene.producer(java)
    listener = scene.listener(java, topic, replier=replier.name)
    asking = scene.producer(java)
    listener.holds(4)
    for i in range(3):
        reply = java.do("request", producer=asking.name, topic=topic, key=f"q{i}", body=f"question {i}", timeout=20000)
        assert reply == f"answer to question {i}"


def test_offsets_are_reset_while_a_consumer_runs(java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=1), scene.name("g")
    scene.producer(java).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(10)])
    listener = scene.listener(java, topic, group)
    listener.seen(10)
    java.do("commit-offsets", name=listener.name)
    assert {"0": 0} == java.do("reset", topic=topic, group=group, time=0, force=True)
    seen = listener.quiet(20, timeout_s=60)
    assert sorted([f"{i}" for i in range(10)] * 2) == sorted(record["body"] for record in seen)


def test_an_operator_sees_into_a_running_consumer(java: Hand, scene: Scene) -> None:
    topic, group = scene.topic(queues=2), scene.name("g")
    receipts = scene.producer(java).send(topic, [{"key": f"k{i}", "body": f"{i}"} for i in range(4)])
    listener = scene.listener(java, topic, group)
    listener.seen(4)
    listener.holds(2)
    java.do("commit-offsets", name=listener.name)
    running = java.do("running", group=group, clientId=listener.client_id, stack=True)
    assert (running["subscriptions"], running["consumeType"], running["stack"]) == (2, "CONSUME_PASSIVELY", True)
    assert running["queues"] >= 2
    status = java.do("consumer-status", topic=topic, group=group, clientId=listener.client_id)
    assert sum(status[listener.client_id].values()) == 4
    directly = java.do(
        "directly", group=group, clientId=listener.client_id, topic=topic, msgId=receipts[0]["offsetMsgId"]
    )
    assert directly == "CR_SUCCESS"
    assert len(listener.seen(5)) == 5
    progress = java.do("progress", group=group, topic=topic)
    assert 4 == sum(queue["consumer"] for name, queue in progress.items() if name.startswith(topic))


def test_the_go_client_filters_by_sql_and_retries(hand_of: HandOf, scene: Scene) -> None:
    go, topic = hand_of("go"), scene.topic()
    sent = [{"key": f"m{i}", "tag": "T", "body": f"{i}", "props": {"number": str(i)}} for i in range(8)]
    scene.producer(go).send(topic, sent)
    selected = scene.listener(go, topic, sql="number > 5")
    retried = scene.listener(go, topic, fail={"m3": 1})
    assert ["6", "7"] == sorted(record["body"] for record in selected.quiet(2))
    seen = retried.quiet(9, timeout_s=60)
    assert [0, 1] == [record["times"] for record in seen if record["key"] == "m3"]
    assert sorted([*(f"{i}" for i in range(8)), "3"]) == sorted(record["body"] for record in seen)


def test_the_go_client_keeps_order(hand_of: HandOf, scene: Scene) -> None:
    go, topic = hand_of("go"), scene.topic(queues=1)
    scene.producer(go).send(topic, [{"key": f"m{i}", "body": f"{i}"} for i in range(200)])
    seen = scene.listener(go, topic, orderly=True).quiet(200)
    assert [f"{i}" for i in range(200)] == [record["body"] for record in seen]

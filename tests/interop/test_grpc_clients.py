"""RocketMQ's own clients of the 5.x line (Java, Python, Go, Node, Rust) through proxies, ours and Apache's.

The same scenes in several places: our proxy in the broker's process, our proxy before Apache's broker, Apache's proxy
before ArrowMQ, and, with ARROWMQ_ALL_PLACES=1 (`make interop-grpc`), our proxy before ArrowMQ, both sides of which the
others play as well. A scene is played by all clients at once, each with topics and groups of its own; a client that has
no push consumer or no recall (`grpc5.MISSING`) plays what it has. ARROWMQ_PLACES=local,cluster names the places.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from oracle import apache, arrow, grpc5
from oracle.hand import Hand, Refusal
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from arrowmq.client.admin import Admin
from waiting import block_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PLACES = ("local", "cluster-apache", "apache-proxy")
if os.environ.get("ARROWMQ_ALL_PLACES"):
    PLACES = (*PLACES, "cluster")
if os.environ.get("ARROWMQ_PLACES"):
    PLACES = tuple(os.environ["ARROWMQ_PLACES"].split(","))
CONFIG: dict[str, Value] = {
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "autoCreateTopicEnable": False,
    "mappedFileSizeCommitLog": 64 << 20,
}
KINDS = {
    "normal": "NORMAL",
    "pushed": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "tx": "TRANSACTION",
    "kept": "NORMAL",
    "lent": "NORMAL",
    "orphan": "TRANSACTION",
    "either": "NORMAL",
}
#: From the kill of a server until a half message that nobody has ended is decided: its start, a client that finds back,
#: a check of the half message that was due meanwhile
DECIDED_S = 90.0


class Place:
    """A proxy and what is behind it. What is killed is ours: the process that clients are connected to, the broker
    behind it, or both in turn. Apache's proxy is not: it does not know its clients' settings after a restart and
    answers them with NullPointerExceptions until they introduce themselves again, Python's after five minutes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self._stack = ExitStack()
        self._hands: dict[str, Hand] = {}
        namesrv_port, port, proxy_port = free_port(), broker_port(), free_port()
        self.namesrv, self.endpoints = f"{HOST}:{namesrv_port}", f"{HOST}:{proxy_port}"
        enter = self._stack.enter_context
        self.mortals: list[Server] = []
        if kind == "local":
            self.mortals = [enter(arrow.server(folder / "a", namesrv_port, port, proxy_port=proxy_port, **CONFIG))]
        else:
            if kind == "cluster-apache":
                quiet = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30000}
                enter(apache.namesrv(folder / "n", namesrv_port))
                enter(apache.broker(folder / "b", port, self.namesrv, **{**CONFIG, **quiet}))
            else:
                self.mortals.append(enter(arrow.server(folder / "a", namesrv_port, port, **CONFIG)))
            asyncio.run(self._create())  # Apache's proxy remembers that a topic was not there
            make = grpc5.apache_proxy if kind == "apache-proxy" else grpc5.arrow_proxy
            front: Server = enter(make(folder / "p", self.namesrv, port=proxy_port))
            if kind != "apache-proxy":
                self.mortals.append(front)
        if kind == "local":
            asyncio.run(self._create())

    async def _create(self) -> None:
        async with Admin(self.namesrv) as admin:
            for flavour in grpc5.FLAVOURS:
                for name, kind in KINDS.items():
                    await admin.create_topic(f"{name}-{flavour}", queues=2, attributes={"message.type": kind})
                    await admin.create_group(f"g-{name}-{flavour}", consume_message_orderly=name == "fifo")

    def hand(self, flavour: str) -> Hand:
        if flavour not in self._hands:
            started = grpc5.start(flavour, self.endpoints, self.folder / "hands")
            self._hands[flavour] = self._stack.enter_context(started)
        return self._hands[flavour]

    def another(self, flavour: str) -> Hand:
        return self._stack.enter_context(grpc5.start(flavour, self.endpoints, self.folder / "hands"))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(request.param, tmp_path_factory.mktemp(request.param))
    try:
        yield made
    finally:
        made.close()


def has(flavour: str, deed: str) -> bool:
    return deed not in grpc5.MISSING.get(flavour, ())


def played(
    place: Place, scene: Callable[[Hand, str], Any], flavours: tuple[str, ...] = grpc5.FLAVOURS
) -> dict[str, Any]:
    """What came of a scene, by client."""
    with ThreadPoolExecutor(len(grpc5.FLAVOURS)) as pool:
        futures = {flavour: pool.submit(scene, place.hand(flavour), flavour) for flavour in flavours}
        return {flavour: future.result() for flavour, future in futures.items()}


def test_messages_come_as_they_were_sent_and_once(place: Place) -> None:
    def scene(hand: Hand, flavour: str) -> tuple[Any, ...]:
        hand.do("simple", name="s", group=f"g-normal-{flavour}", topic=f"normal-{flavour}", await_ms=5000)
        sent = hand.do(
            "send", topic=f"normal-{flavour}", body="hello", tag="T", keys=["a", "b"], properties={"colour": "red"}
        )
        found = hand.do("receive", name="s", number=1, wait_ms=30_000)
        hand.do("ack", name="s", ids=[found[0]["id"]])
        again = hand.do("receive", name="s", number=1, wait_ms=1)
        one = found[0]
        fields = (one["body"], one["tag"], one["keys"], one["properties"], one["attempt"])
        return sent["id"] == one["id"], len(found), fields, again

    expected = (True, 1, ("hello", "T", ["a", "b"], {"colour": "red"}, 1), [])
    assert dict.fromkeys(grpc5.FLAVOURS, expected) == played(place, scene)


def test_a_message_that_failed_comes_again(place: Place) -> None:
    def scene(hand: Hand, flavour: str) -> list[tuple[str, int]]:
        hand.do("push", name="p", group=f"g-pushed-{flavour}", topic=f"pushed-{flavour}", failures={"bad": 1})
        hand.do("send_many", topic=f"pushed-{flavour}", bodies=["good", "bad"])
        seen = hand.do("pushed", name="p", number=3, wait_ms=60_000)
        return sorted((each["body"], each["attempt"]) for each in seen)

    expected = [("bad", 1), ("bad", 2), ("good", 1)]
    flavours = tuple(flavour for flavour in grpc5.FLAVOURS if has(flavour, "push"))
    assert dict.fromkeys(flavours, expected) == played(place, scene, flavours)


def test_a_message_group_keeps_its_order(place: Place) -> None:
    bodies = [str(number) for number in range(20)]

    def one_by_one(hand: Hand, flavour: str) -> list[str]:
        hand.do("simple", name="f", group=f"g-fifo-{flavour}", topic=f"fifo-{flavour}", await_ms=5000)
        hand.do("send_many", topic=f"fifo-{flavour}", bodies=bodies, message_group="one")
        seen: list[str] = []
        deadline = time.monotonic() + 60
        while len(seen) < len(bodies) and time.monotonic() < deadline:
            for each in hand.do("receive", name="f", number=1, max=1, wait_ms=5000):
                seen.append(each["body"])
                hand.do("ack", name="f", ids=[each["id"]])
        return seen

    def scene(hand: Hand, flavour: str) -> list[str]:
        if not has(flavour, "push"):
            return one_by_one(hand, flavour)
        hand.do("push", name="f", group=f"g-fifo-{flavour}", topic=f"fifo-{flavour}")
        hand.do("send_many", topic=f"fifo-{flavour}", bodies=bodies, message_group="one")
        return [each["body"] for each in hand.do("pushed", name="f", number=20, wait_ms=60_000)]

    assert dict.fromkeys(grpc5.FLAVOURS, bodies) == played(place, scene)


def test_a_delayed_message_waits_and_can_be_recalled(place: Place) -> None:
    def scene(hand: Hand, flavour: str) -> tuple[list[str], bool]:
        topic = f"delay-{flavour}"
        hand.do("simple", name="d", group=f"g-delay-{flavour}", topic=topic, await_ms=5000)
        is_recalled = True
        if has(flavour, "recall"):
            taken = hand.do("send", topic=topic, body="taken", delay_ms=6000)
        hand.do("send", topic=topic, body="kept", delay_ms=3000)
        if has(flavour, "recall"):
            is_recalled = taken["id"] == hand.do("recall", topic=topic, handle=taken["recall"])["id"]
        found = hand.do("receive", name="d", number=2, wait_ms=8000)
        return [each["body"] for each in found], is_recalled

    assert dict.fromkeys(grpc5.FLAVOURS, (["kept"], True)) == played(place, scene)


def test_transactions_end_as_decided_or_as_the_checker_says(place: Place) -> None:
    def scene(hand: Hand, flavour: str) -> tuple[list[str], list[str]]:
        topic = f"tx-{flavour}"
        hand.do("simple", name="t", group=f"g-tx-{flavour}", topic=topic, await_ms=5000)
        hand.do("transaction", topic=topic, body="committed", end="commit")
        hand.do("transaction", topic=topic, body="rolled back", end="rollback")
        hand.do("transaction", topic=topic, body="found committed", end="none", properties={"outcome": "commit"})
        hand.do("transaction", topic=topic, body="found rolled back", end="none", properties={"outcome": "rollback"})
        found: set[str] = set()
        deadline = time.monotonic() + 90
        while len(found) < 2 and time.monotonic() < deadline:
            for one in hand.do("receive", name="t", number=1, wait_ms=30_000):
                # It would come again while the other waits for its check.
                hand.do("ack", name="t", ids=[one["id"]])
                found.add(one["body"])
        asked: set[str] = set()
        number = 2
        while not asked >= {"found committed", "found rolled back"} and number <= 6:
            asked = set(hand.do("checked", number=number, wait_ms=30_000))
            number += 1
        # One that is decided may be asked about while its end is on the way.
        return sorted(found), sorted(asked - {"committed", "rolled back"})

    expected = (["committed", "found committed"], ["found committed", "found rolled back"])
    assert dict.fromkeys(grpc5.FLAVOURS, expected) == played(place, scene)


def test_a_topic_that_does_not_exist_is_refused(place: Place) -> None:
    def scene(hand: Hand, flavour: str) -> bool:
        try:
            hand.do("send", topic="nowhere", body="x")
        except Refusal:
            return True
        return False

    assert dict.fromkeys(grpc5.FLAVOURS, True) == played(place, scene)


def test_a_dead_proxy_in_the_list_does_not_block_a_start(place: Place) -> None:
    """The first of two addresses answers nobody; the client starts, sends and receives by the other."""

    def scene(flavour: str) -> list[str]:
        endpoints = f"{HOST}:{free_port()};{place.endpoints}"
        with grpc5.start(flavour, endpoints, place.folder / "hands") as hand:
            hand.do("simple", name="e", group=f"g-either-{flavour}", topic=f"either-{flavour}", await_ms=5000)
            hand.do("send", topic=f"either-{flavour}", body="by the other")
            return [each["body"] for each in hand.do("receive", name="e", number=1, wait_ms=30_000)]

    flavours = tuple(flavour for flavour in grpc5.FLAVOURS if has(flavour, "list"))
    with ThreadPoolExecutor(len(grpc5.FLAVOURS)) as pool:
        found = dict(zip(flavours, pool.map(scene, flavours), strict=True))
    assert {flavour: ["by the other"] for flavour in flavours} == found


def was_sent(hand: Hand, **message: Any) -> bool:
    """Clients need a while to find out that a server has died and come again."""
    try:
        hand.do("send", **message)
    except Refusal:
        return False
    return True


def test_nothing_acknowledged_is_lost_by_a_kill(place: Place) -> None:
    """What clients are connected to, and the broker behind it, die in the middle and come back at the same address: the
    one while messages are sent, the other while they are received."""
    expected: dict[str, set[str]] = {flavour: set() for flavour in grpc5.FLAVOURS}
    found: dict[str, set[str]] = {flavour: set() for flavour in grpc5.FLAVOURS}

    def send(hand: Hand, flavour: str) -> None:
        start = len(expected[flavour])
        for body in (f"message-{number}" for number in range(start, start + 20)):
            block_until(lambda: was_sent(hand, topic=f"kept-{flavour}", body=body))  # noqa: B023 - used at once
            expected[flavour].add(body)

    def receive(hand: Hand, flavour: str, number: int) -> None:
        def has_all() -> bool:
            try:
                messages = hand.do("receive", name="k", number=1, wait_ms=5000, invisible_ms=60_000)
                found[flavour].update(each["body"] for each in messages)
                hand.do("ack", name="k", ids=[each["id"] for each in messages])
            except Refusal:
                pass  # a server is missing; what was not acknowledged comes again
            return len(found[flavour]) >= number

        block_until(has_all)

    def consume(hand: Hand, flavour: str) -> None:
        hand.do("simple", name="k", group=f"g-kept-{flavour}", topic=f"kept-{flavour}", await_ms=5000)

    played(place, consume)
    for mortal in place.mortals:
        played(place, send)
        played(place, lambda hand, flavour: receive(hand, flavour, len(found[flavour]) + 5))
        mortal.kill()
        mortal.start()
        played(place, send)
    played(place, lambda hand, flavour: receive(hand, flavour, len(expected[flavour])))
    assert expected == found


def test_a_transaction_is_decided_after_a_kill(place: Place) -> None:
    """A half message that nobody has ended when the proxy or the broker dies is asked about when it is back: another
    member of its producers is there then. Its own sender may be long in opening its stream again, by its client."""

    def consume(hand: Hand, flavour: str) -> None:
        hand.do("simple", name="o", group=f"g-orphan-{flavour}", topic=f"orphan-{flavour}", await_ms=5000)

    played(place, consume)
    for number, mortal in enumerate(place.mortals):

        def begin(hand: Hand, flavour: str) -> None:
            body = f"orphan-{number}"  # noqa: B023 - used at once
            hand.do("transaction", topic=f"orphan-{flavour}", body=body, end="none", properties={"outcome": "commit"})

        def decided_after(hand: Hand, flavour: str) -> float:
            killed = time.monotonic()
            while time.monotonic() - killed < DECIDED_S:
                try:
                    for each in hand.do("receive", name="o", number=1, wait_ms=5000):
                        hand.do("ack", name="o", ids=[each["id"]])
                        if each["body"] == f"orphan-{number}":  # noqa: B023 - used at once
                            return time.monotonic() - killed
                except Refusal:
                    continue
            return float("inf")

        def join(hand: Hand, flavour: str) -> None:
            other = others[flavour]  # noqa: B023 - used at once
            other.do("transaction", topic=f"orphan-{flavour}", body="another member", end="commit")

        played(place, begin)
        mortal.kill()
        mortal.start()
        others = {flavour: place.another(flavour) for flavour in grpc5.FLAVOURS}
        played(place, join)
        waited = played(place, decided_after)
        print(f"{place.kind}: decided after {waited}")
        assert {} == {flavour: seconds for flavour, seconds in waited.items() if seconds > DECIDED_S}


def received(hand: Hand, name: str, invisible_ms: int) -> list[dict[str, Any]]:
    """What came within a few seconds; nothing where the client has not found its way back yet."""
    try:
        found: list[dict[str, Any]] = hand.do("receive", name=name, number=1, wait_ms=5000, invisible_ms=invisible_ms)
    except Refusal:
        return []
    return found


def test_messages_in_flight_outlive_a_kill(place: Place) -> None:
    """Received before the kill: what was acknowledged does not come again, and the rest does."""
    count, invisible_ms = 20, 30_000

    def before(hand: Hand, flavour: str) -> tuple[set[str], set[str]]:
        topic = f"lent-{flavour}"
        hand.do("simple", name="f", group=f"g-lent-{flavour}", topic=topic, await_ms=5000)
        hand.do("send_many", topic=topic, bodies=[str(number) for number in range(count)])
        found: dict[str, str] = {}

        def has_all() -> bool:
            found.update((each["body"], each["id"]) for each in received(hand, "f", invisible_ms))
            return len(found) == count

        block_until(has_all)
        acknowledged = {body for body in found if int(body) % 2}
        hand.do("ack", name="f", ids=[found[body] for body in acknowledged])
        return acknowledged, set(found) - acknowledged

    def after(hand: Hand, flavour: str) -> set[str]:
        acknowledged, left = first[flavour]
        found: set[str] = set()

        def has_all() -> bool:
            found.update(each["body"] for each in received(hand, "f", 60_000))
            return found >= left or bool(found & acknowledged)

        block_until(has_all, 120)
        found.update(each["body"] for each in received(hand, "f", 60_000))
        return found

    first = played(place, before)
    for mortal in place.mortals:
        mortal.kill()
        mortal.start()
    assert {flavour: left for flavour, (_, left) in first.items()} == played(place, after)

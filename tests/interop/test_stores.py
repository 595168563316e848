"""One directory, two brokers: what ArrowMQ wrote the Apache broker serves, and the other way round.

A store is written by one of them (small segments, every kind of message), left by a clean stop or by kill -9, and
opened by the other one, which must serve every message, go on from the groups' offsets, and take new messages; then
the first one opens it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from oracle import apache, arrow, hands
from oracle.hand import Hand
from oracle.java import Value
from oracle.ports import broker_port, free_port
from oracle.process import Server
from oracle.scene import Record, Scene

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SMALL: dict[str, Value] = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 20 * 200,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "maxMessageSize": 256 << 10,
    "enablePropertyFilter": True,
    "brokerFastFailureEnable": False,
    "transactionTimeOut": 60_000,
}


COMPARED = ("number", "city", "UNIQ_KEY", "TAGS", "KEYS")


class Ground:
    """A NameServer that stays, and one store that brokers of either kind take over from each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = apache.namesrv(folder / "namesrv", free_port())
        self.port = broker_port()
        self.hand: Hand | None = None

    def broker(self, kind: str) -> Server:
        folder = self.folder / "broker"
        config = {**SMALL, "brokerName": "broker-a"}
        if kind == "apache":
            return apache.broker(folder, self.port, self.names.address, None, **config)
        config.pop("brokerName")
        return arrow.broker(folder, self.port, self.names.address, **config)

    @contextmanager
    def served_by(self, kind: str, *, killed: bool = False) -> Iterator[Hand]:
        """The store under a broker of this kind, with a fresh client; the broker is stopped, or killed, at the end."""
        server = self.broker(kind)
        server.start()
        try:
            with hands.start("java-5.5-json", self.names.address, server.address, self.folder / "hand") as hand:
                yield hand
                if killed:
                    server.kill()
        finally:
            server.stop()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ExitStack() as stack:
        ground = Ground(tmp_path)
        stack.enter_context(ground.names)
        yield ground


def everything(label: str) -> list[Record]:
    """Messages of every size and kind, enough for several segments."""
    plain = [
        {
            "key": f"{label}-{i} {label}-decade-{i // 10}",
            "tag": f"Tag{i % 3}",
            "body": f"{label} {i} тело",
            "props": {"number": str(i), "city": "Zürich"},
        }
        for i in range(300)
    ]
    noise = [{"key": f"{label}-noise-{i}", "size": 20_000, "seed": i} for i in range(60)]
    packed = [{"key": f"{label}-packed-{i}", "body": "words and words ", "repeat": 600} for i in range(20)]
    bare = [{"body": f"{label} without tag or key"}]
    return [*plain, *noise, *packed, *bare]


def pulled(hand: Hand, scene: Scene, topic: str, queues: int) -> list[tuple[object, ...]]:
    """All that the broker serves of a topic, in queue order."""
    name = scene.name("puller")
    hand.do("await-route", topic=topic)  # a broker that took over may register a little after it is up
    hand.do("puller", name=name, group=name)
    found: list[tuple[object, ...]] = []
    for queue in range(queues):
        place = 0
        while (got := hand.do("pull", name=name, topic=topic, queue=queue, offset=place))["status"] == "FOUND":
            for record in got["messages"]:
                props = sorted(item for item in record["props"].items() if item[0] in COMPARED)
                found.append((queue, record["offset"], record["body"], props))
            place = got["next"]
    hand.do("stop-puller", name=name)
    return found


def without_the_delayed(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """It comes when it is due, in whichever broker's time that falls."""
    return [record for record in found if record[2] != "delayed"]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("arrowmq", "apache"), ("apache", "arrowmq")])
def test_a_store_is_served_by_the_other_broker(ground: Ground, writer: str, reader: str, killed: bool) -> None:
    title = f"store_{writer}_{reader}_{killed}"
    with ground.served_by(writer, killed=killed) as hand, Scene(hand, title) as scene:
        topic, group, queues = scene.topic(queues=3), scene.name("g"), 3
        producer = scene.producer(hand)
        sent = everything("first")
        assert {"SEND_OK"} == {receipt.get("status") for receipt in producer.send(topic, sent)}
        producer.send(topic, [{"key": f"b{i}", "body": f"batch {i}"} for i in range(20)], "batch")
        producer.send(topic, [{"key": "later", "body": "delayed", "delay": 4}])
        listener = scene.listener(hand, topic, group)
        listener.seen(len(sent) + 20)
        listener.stop()
        before = without_the_delayed(pulled(hand, scene, topic, queues))
        # Offsets are written every five seconds, and by a clean stop; a crash may take them back, never the messages.
        by_key = sorted(record["body"] for record in hand.do("query", topic=topic, key="first-decade-7"))
    assert len(before) == len(sent) + 20
    with ground.served_by(reader) as hand, Scene(hand, title + "_again") as scene:
        assert before == without_the_delayed(pulled(hand, scene, topic, queues))
        assert by_key == sorted(record["body"] for record in hand.do("query", topic=topic, key="first-decade-7"))
        again = scene.listener(hand, topic, group)
        scene.producer(hand).send(topic, [{"key": "new", "body": "written by the other one"}])
        fresh = {"written by the other one", "delayed"}
        again.until(fresh)
        bodies = [record["body"] for record in again.quiet(2)]
        assert fresh <= set(bodies)
        if not killed:
            assert sorted(fresh) == sorted(bodies)
        after = pulled(hand, scene, topic, queues)
        again.stop()
    with ground.served_by(writer) as hand, Scene(hand, title + "_back") as scene:
        assert after == pulled(hand, scene, topic, queues)
        last = scene.listener(hand, topic, group)
        scene.producer(hand).send(topic, [{"key": "back", "body": "home again"}])
        assert ["home again"] == [record["body"] for record in last.quiet(1, linger_s=2)]

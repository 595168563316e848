"""Java 5.5 and 4.9, Go and Node clients of the remoting protocol through a proxy, which is one address for two brokers.

The place: our proxy before a broker of Apache's and one of ours ("mixed"). ARROWMQ_PROXY_PLACE names another, and then
all clients play all scenes (`make interop-remoting` goes to each): "ours", "theirs": two brokers of one kind;
"apaches-proxy": Apache's own proxy before one of each, for what it passes on. Clients that do not name their broker
have a second proxy, with a port for each broker (`remotingBrokerPorts`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from oracle import apache, arrow, grpc5, hands
from oracle.hand import Hand
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server
from oracle.scene import Record, Scene

from arrowmq.client.admin import Admin
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.bodies.clients import SetMessageRequestMode
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

#: Whose proxy, and whose brokers
PLACES = {
    "mixed": ("arrowmq", ("apache", "arrowmq")),
    "ours": ("arrowmq", ("arrowmq", "arrowmq")),
    "theirs": ("arrowmq", ("apache", "apache")),
    "apaches-proxy": ("apache", ("apache", "arrowmq")),
}
APACHES = "apaches-proxy"
PLACE = os.environ.get("ARROWMQ_PROXY_PLACE", "mixed")
IS_WHOLE = "ARROWMQ_PROXY_PLACE" in os.environ
JAVA_5, JAVA_4, GO, NODE = "java-5.5-json", "java-4.9-json", "go", "node"
CONFIG: dict[str, Value] = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 2000,
    "enablePropertyFilter": True,
    "mappedFileSizeCommitLog": 64 << 20,
}
QUIET: dict[str, Value] = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30000}
BROKERS = ("broker-a", "broker-b")


class Place:
    """Two brokers, a NameServer of ours, and proxies whose remoting ports clients are given."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.proxy_of, brokers = PLACES[kind]
        self._stack = ExitStack()
        self._hands: dict[str, Hand] = {}
        names = self.enter(arrow.namesrv(folder / "n", free_port()))
        self.real_namesrv = names.address
        self.addresses: dict[str, str] = {}
        for name, whose in zip(BROKERS, brokers, strict=True):
            port = broker_port()
            self.addresses[name] = f"{HOST}:{port}"
            if whose == "apache":
                self.enter(apache.broker(folder / name, port, names.address, brokerName=name, **CONFIG, **QUIET))
            else:
                self.enter(arrow.broker(folder / name, port, names.address, name=name, **CONFIG))
        asyncio.run(self._await_brokers())
        self._proxies: dict[bool, tuple[Server, str]] = {}
        self.namesrv = self.proxy_for(JAVA_5)[1]

    def enter(self, server: Server) -> Server:
        return self._stack.enter_context(server)

    def proxy_for(self, flavour: str) -> tuple[Server, str]:
        """The proxy that clients of this flavour use, and its remoting port."""
        has_ports = self.proxy_of == "arrowmq" and "5.5" not in flavour
        if has_ports not in self._proxies:
            self._proxies[has_ports] = self.new_proxy(has_ports=has_ports)
        return self._proxies[has_ports]

    def new_proxy(self, *, has_ports: bool = False) -> tuple[Server, str]:
        port = free_port()
        folder = self.folder / f"p{port}"
        if self.proxy_of == "apache":
            # It takes topics that do not say their kind for ones of normal messages alone.
            server = grpc5.apache_proxy(
                folder, self.real_namesrv, remotingListenPort=port, enableTopicMessageTypeCheck=False
            )
        else:
            ports = ";".join(f"{name}:{free_port()}" for name in BROKERS) if has_ports else ""
            server = grpc5.arrow_proxy(folder, self.real_namesrv, remotingListenPort=port, remotingBrokerPorts=ports)
        return self.enter(server), f"{HOST}:{port}"

    async def _await_brokers(self) -> None:
        async with Admin(self.real_namesrv) as admin:

            async def are_known() -> bool:
                return set(BROKERS) == (await admin.masters()).keys()

            await until(are_known, 60)

    async def create_topic(self, name: str, queues: int, brokers: tuple[str, ...]) -> None:
        async with Admin(self.real_namesrv) as admin:
            for broker in brokers:
                await admin.create_topic(name, queues=queues, broker=broker)

            async def is_known() -> bool:
                return len((await admin.route_data(name)).broker_datas) == len(brokers)

            await until(is_known, 60)

    def hand(self, flavour: str) -> Hand:
        if flavour not in self._hands:
            self._hands[flavour] = self.another_hand(flavour, self.proxy_for(flavour)[1])
        return self._hands[flavour]

    def another_hand(self, flavour: str, namesrv: str) -> Hand:
        started = hands.start(flavour, namesrv, self.addresses["broker-a"], self.folder / "hands")
        return self._stack.enter_context(started)

    def close(self) -> None:
        self._stack.close()


class ProxyScene(Scene):
    """Topics are made at the NameServer and the brokers themselves."""

    def __init__(self, place: Place, title: str) -> None:
        super().__init__(None, title)  # type: ignore[arg-type]
        self.place = place

    def topic(  # type: ignore[override]
        self, queues: int = 2, label: str = "t", brokers: tuple[str, ...] = BROKERS
    ) -> str:
        name = self.name(label)
        asyncio.run(self.place.create_topic(name, queues, brokers))
        return name


def by(*flavours: str, at_length: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Played by these clients, and by those `at_length` where all is played. Apache's proxy passes on what Java 5 sends
    and refuses clients that name no broker (`test_what_apaches_proxy_refuses`)."""
    chosen = [*flavours, *(at_length if IS_WHOLE else ())]
    return pytest.mark.parametrize("flavour", [each for each in chosen if PLACE != APACHES or "5.5" in each])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(PLACE, tmp_path_factory.mktemp(PLACE))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def scene(place: Place, request: pytest.FixtureRequest) -> Iterator[ProxyScene]:
    with ProxyScene(place, request.node.name) as stage:
        yield stage


def messages(count: int, label: str = "m") -> list[Record]:
    return [{"key": f"{label}-{i}", "tag": "T", "body": f"{label} {i}", "props": {"n": str(i)}} for i in range(count)]


def bodies(records: list[Record]) -> list[str]:
    return sorted(record["body"] for record in records)


@by(JAVA_5, JAVA_4, GO, NODE, at_length=("java-5.5-binary",))
def test_messages_go_through_each_broker_once(place: Place, scene: ProxyScene, flavour: str) -> None:
    hand, topic, sent = place.hand(flavour), scene.topic(), messages(40)
    listener = scene.listener(hand, topic)
    receipts = scene.producer(hand).send(topic, sent)
    assert {"SEND_OK"} == {receipt["status"] for receipt in receipts}
    assert set(BROKERS) == {receipt["broker"] for receipt in receipts}
    assert bodies(sent) == bodies(listener.quiet(40, timeout_s=60))


@by(JAVA_5, JAVA_4, at_length=(GO,))
def test_batches_and_what_is_sent_without_waiting_arrive(place: Place, scene: ProxyScene, flavour: str) -> None:
    hand, topic = place.hand(flavour), scene.topic()
    producer = scene.producer(hand)
    sent = [*messages(10, "batch"), *messages(10, "async"), *messages(10, "oneway")]
    for start, how in ((0, "batch"), (10, "async"), (20, "oneway")):
        producer.send(topic, sent[start : start + 10], how)
    assert bodies(sent) == bodies(scene.listener(hand, topic).quiet(30, timeout_s=60))


@by(JAVA_5, at_length=(JAVA_4, GO))  # Go waits half a minute for its retry topic
def test_an_orderly_listener_keeps_the_order_and_a_failed_message_comes_again(
    place: Place, scene: ProxyScene, flavour: str
) -> None:
    hand = place.hand(flavour)
    ordered, plain = scene.topic(1, "o", ("broker-b",)), scene.topic(1, "p")
    producer = scene.producer(hand)
    producer.send(ordered, [{"key": f"k{i}", "body": f"{i}"} for i in range(6)])
    producer.send(plain, [{"key": "fine", "body": "a"}, {"key": "once", "body": "b"}])
    in_order = scene.listener(hand, ordered, orderly=True, fail={"k2": 1})
    again = scene.listener(hand, plain, fail={"once": 1}, failDelay=1)
    assert ["0", "1", "2", "2", "3", "4", "5"] == [record["body"] for record in in_order.quiet(7, timeout_s=60)]
    seen = again.quiet(3, timeout_s=60)
    assert [("a", 0), ("b", 0), ("b", 1)] == sorted((record["body"], record["times"]) for record in seen)


@by(JAVA_5, GO, at_length=(JAVA_4,))
def test_transactions_end_as_decided_or_as_the_check_says(place: Place, scene: ProxyScene, flavour: str) -> None:
    hand, topic = place.hand(flavour), scene.topic()
    listener = scene.listener(hand, topic)
    producer = scene.producer(hand, transactional=True)
    fates = [(fate, check, number) for number in range(2) for fate, check in CASES]
    sent = [
        {"key": f"{fate} {check} {number}", "body": f"{fate} {check} {number}", "props": {"fate": fate, "check": check}}
        for fate, check, number in fates
    ]
    receipts = hand.do("transact", producer=producer.name, topic=topic, messages=sent)
    assert set(BROKERS) == {receipt["broker"] for receipt in receipts}
    wanted = [
        f"{fate} {check} {number}"
        for fate, check, number in fates
        if "commit" == (check if fate == "unknown" else fate)
    ]
    # A broker that asks a second time, while the answer to the first is on its way, may publish twice.
    assert set(wanted) == set(bodies(listener.until(set(wanted))))
    assert set(wanted) == set(bodies(listener.quiet(0, linger_s=4)))
    asked = set(hand.do("checked", producer=producer.name))
    assert {message["key"] for message in sent if message["props"]["fate"] == "unknown"} <= asked


CASES = (("commit", "rollback"), ("rollback", "commit"), ("unknown", "commit"), ("unknown", "rollback"))


@by(JAVA_5, at_length=(JAVA_4,))
def test_pulls_offsets_and_lite_pulls_are_those_of_their_broker(place: Place, scene: ProxyScene, flavour: str) -> None:
    hand, topic, sent = place.hand(flavour), scene.topic(1), messages(20)
    scene.producer(hand).send(topic, sent)
    puller, found = scene.name("puller"), []
    hand.do("puller", name=puller, group=puller)
    for broker, offset in zip(BROKERS, (3, 7), strict=True):
        result = hand.do("pull", name=puller, topic=topic, broker=broker, queue=0, offset=0)
        assert "FOUND" == result["status"]
        found += result["messages"]
        hand.do("commit", name=puller, topic=topic, broker=broker, queue=0, offset=offset)
    assert bodies(sent) == bodies(found)
    committed = [hand.do("committed", name=puller, topic=topic, broker=broker, queue=0) for broker in BROKERS]
    assert [3, 7] == committed
    hand.do("stop-puller", name=puller)
    lite = scene.name("lite")
    hand.do("lite", name=lite, group=lite, topic=topic)
    assert bodies(sent) == bodies(hand.do("poll", name=lite, atLeast=20, timeout=60_000))
    hand.do("stop-lite", name=lite)


def test_requests_get_their_replies(place: Place, scene: ProxyScene) -> None:
    hand, topic = place.hand(JAVA_5), scene.topic()
    replier = scene.producer(hand)
    scene.listener(hand, topic, replier=replier.name).holds(4)
    asking = scene.producer(hand)
    for number in range(4):
        body = f"question {number}"
        reply = hand.do("request", producer=asking.name, topic=topic, key=f"q{number}", body=body, timeout=20000)
        assert f"answer to {body}" == reply


def test_push_consumers_that_pop_share_and_acknowledge(place: Place, scene: ProxyScene) -> None:
    hand, topic, group = place.hand(JAVA_5), scene.topic(), scene.name("popping")
    asyncio.run(pop_mode(place, topic, group))
    members = [scene.listener(hand, topic, group, brokerRebalance=True) for _ in range(2)]
    sent = messages(60)
    scene.producer(hand).send(topic, sent)
    deadline, seen = time.monotonic() + 90, []
    while len(seen) < 60 and time.monotonic() < deadline:
        seen = [record for member in members for record in member.seen(1, 2)]
    assert bodies(sent) == bodies(seen)


async def pop_mode(place: Place, topic: str, group: str) -> None:
    remoting = RemotingClient()
    body = fastjson.dumps(SetMessageRequestMode(topic=topic, consumer_group=group, mode="POP", pop_share_queue_num=0))
    for address in place.addresses.values():
        answer = await remoting.invoke(address, Command.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body), 10)
        assert ResponseCode.SUCCESS == answer.code, answer.remark
    await remoting.close()


def test_members_at_two_proxies_and_at_the_brokers_share_the_queues(place: Place, scene: ProxyScene) -> None:
    topic, group = scene.topic(3), scene.name("g")
    namesrvs = (place.namesrv, place.proxy_for(GO)[1], place.real_namesrv)
    members = [scene.listener(place.another_hand(JAVA_5, namesrv), topic, group) for namesrv in namesrvs]
    held = [set(member.holds(2, 60)) for member in members]
    assert [2, 2, 2] == [len(queues) for queues in held]
    assert 6 == len(set.union(*held))
    sent = messages(60)
    scene.producer(place.hand(JAVA_5)).send(topic, sent)
    seen = [record for member in members for record in member.seen(20, 60)]
    assert bodies(sent) == bodies(seen)


@by(JAVA_5, at_length=(GO,))
def test_nothing_acknowledged_is_lost_by_a_killed_proxy(place: Place, scene: ProxyScene, flavour: str) -> None:
    """A producer and a consumer go on when the proxy is back at its address."""
    hand, topic = place.hand(flavour), scene.topic()
    listener, producer = scene.listener(hand, topic), scene.producer(hand, timeout=3000)
    acknowledged = _acknowledged(producer.send(topic, before := messages(30, "before")), before)
    proxy, _ = place.proxy_for(flavour)
    proxy.kill()
    proxy.start()
    deadline = time.monotonic() + 90
    left = messages(30, "after")
    while left and time.monotonic() < deadline:
        done = _acknowledged(producer.send(topic, left), left)
        acknowledged |= done
        left = [message for message in left if message["body"] not in done]
    assert [] == left
    assert acknowledged <= {record["body"] for record in listener.until(acknowledged, 90)}
    assert 60 == len(acknowledged)


def _acknowledged(receipts: list[Any], sent: list[Record]) -> set[str]:
    return {
        message["body"] for message, receipt in zip(sent, receipts, strict=True) if receipt.get("status") == "SEND_OK"
    }


async def asked(address: str, topic: str) -> dict[str, int | str]:
    send = {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
    }
    send |= {"sysFlag": "0", "bornTimestamp": "1", "flag": "0"}
    ack = {"consumerGroup": "g", "topic": topic, "queueId": "0", "extraInfo": "0 0 0 0 0 broker-a 0 0", "offset": "0"}
    wanted: dict[str, Command] = {
        "a send that names no broker": Command.request(RequestCode.SEND_MESSAGE, send, b"x"),
        "a reply": Command.request(RequestCode.SEND_REPLY_MESSAGE, {**send, "bname": "broker-a"}, b"x"),
        "an assignment": Command.request(RequestCode.QUERY_ASSIGNMENT, None, b'{"topic":"%s"}' % topic.encode()),
        "an ack": Command.request(RequestCode.ACK_MESSAGE, {**ack, "bname": "broker-a"}),
    }
    remoting = RemotingClient()
    found: dict[str, int | str] = {}
    for name, request in wanted.items():
        try:
            found[name] = (await remoting.invoke(address, request, 3.0)).code
        except Exception:
            found[name] = "no answer"
    await remoting.close()
    return found


def test_what_apaches_proxy_refuses(place: Place, scene: ProxyScene) -> None:
    """Why it does not play every scene above: asked of it directly, as clients ask."""
    answers = asyncio.run(asked(place.namesrv, scene.topic()))
    assert ResponseCode.VERSION_NOT_SUPPORTED == answers["a send that names no broker"]
    assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED == answers["a reply"]
    assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED == answers["an assignment"]
    assert "no answer" == answers["an ack"]


if PLACE == APACHES:
    del test_requests_get_their_replies, test_push_consumers_that_pop_share_and_acknowledge
    del test_members_at_two_proxies_and_at_the_brokers_share_the_queues
else:
    del test_what_apaches_proxy_refuses
    if not IS_WHOLE:
        del test_members_at_two_proxies_and_at_the_brokers_share_the_queues

"""The matrix: every user asks for every kind of request, on every resource, from several addresses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

CLUSTER = "DefaultCluster"
SOURCES = ("127.0.0.1", "127.0.0.77", "127.5.0.1")

# (resource, actions, decision, sources): the policy language, each form at least once
Rule = tuple[str, str, str, str]
USERS: dict[str, tuple[list[Rule], list[Rule]]] = {  # Custom, Default
    "producer": ([("Topic:orders", "Pub", "Allow", "")], []),
    "consumer": ([("Topic:orders", "Sub", "Allow", ""), ("Group:g1", "Sub", "Allow", "")], []),
    "reader": ([("Topic:orders*", "Sub,Get", "Allow", ""), ("Group:g*", "Sub", "Allow", "")], []),
    "team": (
        [
            ("Topic:team_*", "All", "Allow", "127.0.0.0/24"),
            ("Topic:team_secret*", "Pub,Sub", "Deny", ""),
            ("Topic:team_secret_open", "Sub", "Allow", "127.0.0.77"),
            ("Group:team_g", "All", "Allow", ""),
        ],
        [("Topic:*", "Get", "Allow", ""), ("Group:*", "Sub", "Allow", "127.5.0.0/16")],
    ),
    "all_but": (
        [("*", "All", "Allow", ""), ("Topic:orders", "Delete,Pub", "Deny", ""), ("Group:*", "Sub", "Deny", "")],
        [],
    ),
    "layered": (
        [
            ("Topic:*", "Pub", "Deny", ""),
            ("Topic:orders*", "Pub", "Allow", "127.0.0.77"),
            ("Group:g1", "Get", "Allow", ""),
        ],
        [("*", "Pub,Sub,Get", "Allow", "")],
    ),
    "operator": ([(f"Cluster:{CLUSTER}", "Get,Update", "Allow", ""), ("Topic:*", "Create,Get,List", "Allow", "")], []),
    "nobody": ([], []),
}
TOPICS = ("orders", "orders_eu", "team_a", "team_secret_x", "team_secret_open", "other")
GROUPS = ("g1", "g2", "team_g")


def password(user: str) -> str:
    return f"password-of-{user}"


@dataclass(frozen=True)
class Case:
    """One question; `secret` is not the user's where the signature must not be good."""

    user: str
    kind: str
    code: int
    ext: tuple[tuple[str, str], ...]
    body: bytes
    source: str
    secret: str

    @property
    def name(self) -> str:
        fields = " ".join(f"{name}={value}" for name, value in self.ext if name in NAMES)
        return f"{self.user} {self.kind} {fields} from {self.source}"


NAMES = {"topic", "b", "consumerGroup", "group", "groupName", "destGroup", "username", "subject"}
Make = Callable[[str, str], tuple[int, dict[str, Any], Any]]


def _send(topic: str, group: str) -> tuple[int, dict[str, Any], Any]:
    return 310, {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}, b"x"


def _send_old(topic: str, group: str) -> tuple[int, dict[str, Any], Any]:
    return 10, {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
    }, b"x"  # fmt: skip


def _pull(topic: str, group: str) -> tuple[int, dict[str, Any], Any]:
    return 11, {
        "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
    }, b""  # fmt: skip


def _heartbeat(topic: str, group: str) -> tuple[int, dict[str, Any], Any]:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    return 34, {"nothing": "x"}, {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}


def _lock(code: int) -> Make:
    def make(topic: str, group: str) -> tuple[int, dict[str, Any], Any]:
        queues = [{"topic": topic, "brokerName": "broker-a", "queueId": 0}]
        return code, {"nothing": "x"}, {"consumerGroup": group, "clientId": "c", "mqSet": queues}

    return make


def _of(code: int, topic: str = "", group: str = "", **more: Any) -> Make:
    """A request that names its topic and group in these fields."""

    def make(topic_name: str, group_name: str) -> tuple[int, dict[str, Any], Any]:
        ext = {**more}
        if topic:
            ext[topic] = topic_name
        if group:
            ext[group] = group_name
        return code, ext, b""

    return make


# Requests about a topic, a group, both, or the broker as a whole
OF_TOPIC: dict[str, Make] = {
    "send": _send,
    "send (old form)": _send_old,
    "query by key": _of(12, "topic", key="k", maxNum=1, beginTimestamp=0, endTimestamp=1),
    "offset by time": _of(29, "topic", queueId=0, timestamp=0),
    "newest offset": _of(30, "topic", queueId=0),
    "oldest offset": _of(31, "topic", queueId=0),
    "topic status": _of(202, "topic"),
    "who consumes": _of(300, "topic"),
    "topic settings": _of(351, "topic"),
    "delete topic": _of(215, "topic"),
    "give back to the retry topic": lambda topic, group: _send(f"%RETRY%{group}", group),
}
OF_GROUP: dict[str, Make] = {
    "members": _of(38, group="consumerGroup"),
    "connections": _of(203, group="consumerGroup"),
    "group settings": _of(352, group="group"),
    "leave": _of(35, group="consumerGroup", clientID="c"),
    "send back": _of(36, group="group", offset=1 << 40, delayLevel=0),
    "retry queue": lambda topic, group: _pull(f"%RETRY%{group}", group),
}
OF_BOTH: dict[str, Make] = {
    "pull": _pull,
    "heartbeat": _heartbeat,
    "lock": _lock(41),
    "unlock": _lock(42),
    "read offset": _of(14, "topic", "consumerGroup", queueId=0),
    "commit offset": _of(15, "topic", "consumerGroup", queueId=0, commitOffset=0),
    "time span": _of(303, "topic", "group"),
}
OF_CLUSTER: dict[str, Make] = {
    "statistics": _of(315, statsName="TOPIC_PUT_NUMS", statsKey="orders"),
    "producers": _of(328),
    "users": _of(3005, filter="zzz"),
    "rights": _of(3010, subjectFilter="zzz"),
    "a user": _of(3004, username="nobody"),
    "forget a user": _of(3003, username="zzz"),
}


def cases() -> Iterator[Case]:
    """The whole matrix; also unsigned, wrongly signed, of unknown users."""
    for user in USERS:
        for source in SOURCES:
            for kind, make in OF_TOPIC.items():
                for topic in TOPICS:
                    yield _case(user, kind, make(topic, "g1"), source)
            for kind, make in OF_GROUP.items():
                for group in GROUPS:
                    yield _case(user, kind, make("orders", group), source)
            for kind, make in OF_BOTH.items():
                for topic, group in itertools.product(TOPICS[::2], GROUPS):
                    yield _case(user, kind, make(topic, group), source)
            for kind, make in OF_CLUSTER.items():
                yield _case(user, kind, make("", ""), source)
    for kind, make in {**OF_TOPIC, **OF_GROUP, **OF_BOTH, **OF_CLUSTER}.items():
        asked = make("orders", "g1")
        yield _case("", kind, asked, SOURCES[0])
        yield _case("producer", f"{kind}, wrongly signed", asked, SOURCES[0], "wrong")
        yield _case("stranger", kind, asked, SOURCES[0])
        yield _case("disabled", kind, asked, SOURCES[0])


def _case(user: str, kind: str, asked: tuple[int, dict[str, Any], Any], source: str, secret: str = "") -> Case:
    code, ext, body = asked
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    texts = tuple((name, str(value)) for name, value in ext.items())
    return Case(user, kind, code, texts, data, source, secret or password(user))

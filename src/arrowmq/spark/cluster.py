"""What a Spark process knows of a cluster: routes from the NameServer, offsets from the brokers.

Lost connections are tried again until `patience_s` has passed: a broker that restarts must not end a stream, and in
Spark's local mode a failed task is a failed query.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from arrowmq.spark.blocking_link import Credentials, Link, LinkLost, LinkTls
from arrowmq.spark.options import OptionError
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.spark.cluster")
T = TypeVar("T")

READ, WRITE = 4, 2
MASTER = "0"
SYSTEM_TOPIC = re.compile(
    r"(rmq_sys_|RMQ_SYS_|%RETRY%|%DLQ%|SCHEDULE_TOPIC_XXXX$|TBW102$|SELF_TEST_TOPIC$|OFFSET_MOVED_EVENT$)"
)


def name_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as wrong:
        raise OptionError("topicPattern", f"{pattern!r} is not a regular expression: {wrong}") from None


class Refusal(RuntimeError):
    """A broker or NameServer answered no; the message has its reason."""

    def __init__(self, code: int, remark: str | None, what: str) -> None:
        name = ResponseCode(code).name if code in set(ResponseCode) else str(code)
        super().__init__(f"{what}: {name}{': ' + remark if remark else ''}")
        self.code = code
        self.remark = remark


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster; small, and pickled into every task."""

    namesrv: tuple[str, ...]
    timeout_s: float = 10.0
    patience_s: float = 60.0
    credentials: Credentials | None = None
    tls: LinkTls | None = None


@dataclass
class Route:
    """A topic's queues, and the brokers' addresses."""

    topic: str
    addresses: dict[str, str] = field(default_factory=dict)
    readable: list[MessageQueue] = field(default_factory=list)
    writable: list[MessageQueue] = field(default_factory=list)


class Cluster:
    """A cluster seen from one process. Connections stay open between tasks of the same worker process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._links: dict[str, Link] = {}
        self._addresses: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------ connections

    def link(self, address: str) -> Link:
        found = self._links.get(address)
        if found is None:
            reach = self.connection
            found = self._links[address] = Link(address, reach.timeout_s, reach.credentials, reach.tls)
        return found

    def drop(self, address: str) -> None:
        lost = self._links.pop(address, None)
        if lost is not None:
            lost.close()

    def close(self) -> None:
        for address in list(self._links):
            self.drop(address)

    def patiently(self, action: Callable[[], T], what: str, patience_s: float | None = None) -> T:
        """Does `action`, again and again while connections fail, for as long as patience lasts."""
        patience_s = self.connection.patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        pause_s = 0.1
        while True:
            try:
                return action()
            except LinkLost as lost:
                if time.monotonic() + pause_s > deadline:
                    raise LinkLost(f"{what} failed for {patience_s:g} s (option patienceMs): {lost}") from None
                # Said once aloud; the many tries after it are for who looks closely.
                log.log(logging.WARNING if pause_s < 0.2 else logging.DEBUG, "%s: %s; trying again", what, lost)
                time.sleep(pause_s)
                pause_s = min(2.0, pause_s * 2)

    def ask(self, address: str, command: Command) -> Command:
        try:
            return self.link(address).call(command)
        except LinkLost:
            self.drop(address)
            raise

    def ask_broker(self, broker_name: str, command: Command, what: str) -> Command:
        """An answer of a broker that must be a success."""
        return self.ask_many([(broker_name, command)], what)[0]

    def ask_many(self, requests: Sequence[tuple[str, Command]], what: str) -> list[Command]:
        """The answers of several requests to brokers, in their order; each broker gets its own at once."""
        answers: dict[int, Command] = {}

        def one_broker(name: str) -> None:
            mine = [command for broker, command in requests if broker == name and command.opaque not in answers]
            address = self.address(name)
            try:
                for command, answer in zip(mine, self.link(address).call_many(mine), strict=True):
                    answers[command.opaque] = answer
            except LinkLost:
                self.drop(address)
                self._addresses.pop(name, None)
                raise

        for name in dict.fromkeys(broker for broker, _ in requests):
            self.patiently(lambda name=name: one_broker(name), what)  # type: ignore[misc]
        found = [answers[command.opaque] for _, command in requests]
        for answer in found:
            if answer.code != ResponseCode.SUCCESS:
                raise Refusal(answer.code, answer.remark, what)
        return found

    # ----------------------------------------------------------------------------------------------------- routes

    def ask_namesrv(self, command: Command, what: str) -> Command:
        """Any NameServer that answers will do."""

        def first_that_answers() -> Command:
            lost: LinkLost | None = None
            for address in self.connection.namesrv:
                try:
                    return self.ask(address, command)
                except LinkLost as wrong:
                    lost = wrong
            assert lost is not None
            raise LinkLost(f"no NameServer answers (option namesrv): {lost}")

        return self.patiently(first_that_answers, what)

    def route(self, topic: str) -> Route | None:
        """The route of a topic, or None when there is no such topic."""
        command = Command.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        answer = self.ask_namesrv(command, f"asking for the route of topic {topic}")
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise Refusal(answer.code, answer.remark, f"asking for the route of topic {topic}")
        body = fastjson.loads(bytes(answer.body))
        route = Route(topic)
        for broker in body["brokerDatas"]:
            addresses = {str(number): address for number, address in broker["brokerAddrs"].items()}
            if addresses:
                # A master is preferred; a slave serves reading where the master is away.
                route.addresses[broker["brokerName"]] = addresses.get(MASTER) or addresses[min(addresses)]
        self._addresses.update(route.addresses)
        for queues in body["queueDatas"]:
            name, perm = queues["brokerName"], int(queues["perm"])
            if name not in route.addresses:
                continue
            if perm & READ:
                route.readable += [MessageQueue(topic, name, number) for number in range(int(queues["readQueueNums"]))]
            if perm & WRITE:
                route.writable += [MessageQueue(topic, name, number) for number in range(int(queues["writeQueueNums"]))]
        return route

    def known_route(self, topic: str, patience_s: float | None = None) -> Route:
        """The route of a topic that was there before; while brokers restart, the NameServer may not know it."""

        def ask() -> Route:
            found = self.route(topic)
            if found is None or not found.readable:
                raise LinkLost(f"no broker serves topic {topic} now")
            return found

        return self.patiently(ask, f"asking for the route of topic {topic}", patience_s)

    def address(self, broker_name: str) -> str:
        """Where a broker is. A route that was learnt in another process is asked for by the broker's own topic."""
        if broker_name not in self._addresses and self.route(broker_name) is None:
            raise LinkLost(f"no NameServer knows a broker named {broker_name}")
        if broker_name not in self._addresses:
            raise LinkLost(f"broker {broker_name} has no address at the NameServer")
        return self._addresses[broker_name]

    def learn(self, addresses: dict[str, str]) -> None:
        """Addresses found by the planner, so that a task need not ask again."""
        for name, address in addresses.items():
            if address:
                self._addresses.setdefault(name, address)

    def brokers(self) -> list[str]:
        """The names of all brokers that have a master now."""
        answer = self.ask_namesrv(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), "asking for the brokers")
        if answer.code != ResponseCode.SUCCESS:
            raise Refusal(answer.code, answer.remark, "asking for the brokers")
        found = []
        for name, broker in fastjson.loads(bytes(answer.body)).get("brokerAddrTable", {}).items():
            master = {str(number): address for number, address in broker["brokerAddrs"].items()}.get(MASTER)
            if master is not None:
                self._addresses[name] = master
                found.append(name)
        return sorted(found)

    def topics(self) -> list[str]:
        command = Command.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = self.ask_namesrv(command, "asking for the list of topics")
        if answer.code != ResponseCode.SUCCESS:
            raise Refusal(answer.code, answer.remark, "asking for the list of topics")
        return sorted(fastjson.loads(bytes(answer.body)).get("topicList", []))

    def topics_like(self, pattern: str) -> list[str]:
        """Users' topics whose whole name matches."""
        wanted = name_pattern(pattern)
        return [topic for topic in self.topics() if wanted.fullmatch(topic) and not SYSTEM_TOPIC.match(topic)]

    # ---------------------------------------------------------------------------------------------------- offsets

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self._offsets(RequestCode.GET_MAX_OFFSET, queues, "asking for the ends of queues", committed="true")

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self._offsets(RequestCode.GET_MIN_OFFSET, queues, "asking for the beginnings of queues")

    def offsets_by_time(self, times: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """For each queue the first offset stored at its time or later, or its end when there is none."""
        queues = list(times)
        requests = [
            (
                queue.broker_name,
                Command.request(
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                    {
                        "topic": queue.topic,
                        "queueId": str(queue.queue_id),
                        "timestamp": str(times[queue]),
                        "boundaryType": "LOWER",
                    },
                ),
            )
            for queue in queues
        ]
        answers = self.ask_many(requests, "looking for offsets by time")
        return {queue: int(answer.ext["offset"]) for queue, answer in zip(queues, answers, strict=True)}

    def commit_offsets(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        """Stores progress of a consumer group, where every tool shows it as lag."""
        requests = [
            (
                queue.broker_name,
                Command.request(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {
                        "consumerGroup": group,
                        "topic": queue.topic,
                        "queueId": str(queue.queue_id),
                        "commitOffset": str(offset),
                    },
                ),
            )
            for queue, offset in offsets.items()
        ]
        self.ask_many(requests, f"storing the progress of group {group} (option group)")

    def _offsets(
        self, code: RequestCode, queues: Iterable[MessageQueue], what: str, **more: str
    ) -> dict[MessageQueue, int]:
        queues = list(queues)
        requests = [
            (queue.broker_name, Command.request(code, {"topic": queue.topic, "queueId": str(queue.queue_id), **more}))
            for queue in queues
        ]
        answers = self.ask_many(requests, what)
        return {queue: int(answer.ext["offset"]) for queue, answer in zip(queues, answers, strict=True)}


_clusters: dict[tuple[int, Connection], Cluster] = {}


def cluster_of(connection: Connection) -> Cluster:
    """The cluster of this process: workers are forked and reused, so one is kept for each process id."""
    key = (os.getpid(), connection)
    found = _clusters.get(key)
    if found is None:
        for stale in [other for other in _clusters if other[0] != key[0]]:
            del _clusters[stale]  # of the process this one was forked from: its sockets are not ours to use
        found = _clusters[key] = Cluster(connection)
    return found

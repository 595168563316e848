"""To which brokers a client is introduced, and when again.

A client sends a heartbeat to each address of its routes, and all of them are the proxy's: it comes as often as there
are brokers, within milliseconds, without a word about which is meant. The proxy hands it to the brokers of the topics
that the client consumes and sends to, as the client would have done, and counts a repeated one as the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from arrowmq.clock import Clock
from arrowmq.proxy.remoting.directory import Directory
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import HeartbeatData
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command

AGAIN_S = 5.0
MOST_CLIENTS = 64  # that may share one connection
MOST_TOPICS = 1024  # that one connection sends to and is introduced for


@dataclass(slots=True)
class Beat:
    command: Command
    topics: dict[str, set[str]]  # by group, what it consumes
    groups: list[str]
    language: int
    version: int


class Heartbeats:
    """What the clients of one connection said of themselves last.

    A client has a connection to each address that it was told, and sends its heartbeats on all of them. Where brokers
    have ports of their own (`elsewhere`), each is introduced to a client by the connection at its port alone: a broker
    that knew a client twice would count it as two members of its group.
    """

    def __init__(self, directory: Directory, port_broker: str = "", elsewhere: Collection[str] = ()) -> None:
        self._directory = directory
        self._port_broker, self._elsewhere = port_broker, frozenset(elsewhere)
        self._beats: dict[str, Beat] = {}
        self._sent_to: dict[str, None] = {}

    @property
    def last(self) -> list[Command]:
        return [beat.command for beat in self._beats.values()]

    @property
    def beats(self) -> Iterable[Beat]:
        return self._beats.values()

    def take(self, command: Command) -> None:
        """Raises `BodyError`."""
        data = fastjson.loads(command.body, HeartbeatData)
        topics = {
            consumer.group_name: {each.topic for each in consumer.subscription_data_set}
            for consumer in data.consumer_data_set
        }
        groups = [producer.group_name for producer in data.producer_data_set]
        self._beats.pop(data.client_id, None)
        self._beats[data.client_id] = Beat(command, topics, groups, command.language, command.version)
        while len(self._beats) > MOST_CLIENTS:
            del self._beats[next(iter(self._beats))]

    def forget(self, client_id: str) -> None:
        self._beats.pop(client_id, None)

    def sends_to(self, topic: str) -> bool:
        """Note a topic that the client sends to; True if it is a new one."""
        if topic in self._sent_to:
            return False
        while len(self._sent_to) >= MOST_TOPICS:
            del self._sent_to[next(iter(self._sent_to))]
        self._sent_to[topic] = None
        return True

    async def brokers(self) -> set[str]:
        """Those that should know the clients of this connection."""
        consumed = {topic for beat in self._beats.values() for topics in beat.topics.values() for topic in topics}
        found: set[str] = set()
        for topic in consumed | self._sent_to.keys():
            found.update(await self._directory.brokers_of(topic))
        return self.here(found)

    def here(self, brokers: Iterable[str]) -> set[str]:
        """Those of them that clients of this connection are known to by it."""
        return {self._port_broker} if self._port_broker else set(brokers) - self._elsewhere

    async def brokers_of_group(self, group: str) -> list[str]:
        """Those that know the members of a group, in an order that is the same for all of them."""
        found: set[str] = set()
        for beat in list(self._beats.values()):
            for topic in beat.topics.get(group, ()):
                found.update(await self._directory.brokers_of(topic))
        found = found or self._directory.names
        return sorted(self.here(found) or found)


class Introductions:
    """The heartbeats that one broker had on one connection."""

    __slots__ = ("_clock", "_made")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[bytes, tuple[float, Command]] = {}

    def answer_to(self, heartbeat: Command) -> Command | None:
        """What the broker said to this one just now."""
        made = self._made.get(heartbeat.body)
        return made[1] if made is not None and self._clock.monotonic() - made[0] < AGAIN_S else None

    def made(self, heartbeat: Command, answer: Command) -> None:
        now = self._clock.monotonic()
        self._made = {body: made for body, made in self._made.items() if now - made[0] < AGAIN_S}
        if answer.code == ResponseCode.SUCCESS and len(self._made) < MOST_CLIENTS:
            self._made[heartbeat.body] = now, answer

    def forget(self) -> None:
        self._made.clear()

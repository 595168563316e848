"""How the queues of a topic are divided among the members of a group.

Every member computes the division by itself, from the same sorted queues and the same sorted client ids, and takes its
own share. So all members must use the same strategy, and ours must agree with the Java client's to the last queue.
A client id that is not in the list (its heartbeat has not arrived yet) gets nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from arrowmq.wire.message_queue import MessageQueue

_T = TypeVar("_T")


class Strategy(Protocol):
    """Own strategies implement this; `name` reaches a broker only when it divides the queues itself."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


def _blocks(position: int, members: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Contiguous blocks; the first `len(queues) % members` members get one queue more."""
    share, rest = divmod(len(queues), members)
    start = position * share + min(position, rest)
    return list(queues[start : start + share + (1 if position < rest else 0)])


@dataclass(frozen=True, slots=True)
class Averagely:
    """Contiguous blocks of equal size, RocketMQ's default."""

    name: str = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return _blocks(list(client_ids).index(client_id), len(client_ids), queues)


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Dealt out like cards: queue i goes to member i modulo the number of members."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return list(queues[list(client_ids).index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list of queues, whoever else is in the group."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring with virtual nodes, so that few queues move when a member comes or goes."""

    virtual_nodes: int = 10
    name: str = "CONSISTENT_HASH"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ring = sorted(
            (_ring_position(f"{member}-{replica}"), member)
            for member in client_ids
            for replica in range(self.virtual_nodes)
        )
        positions = [position for position, _ in ring]
        return [queue for queue in queues if self._owner(queue, ring, positions) == client_id]

    @staticmethod
    def _owner(queue: MessageQueue, ring: list[tuple[int, str]], positions: list[int]) -> str:
        # Java hashes MessageQueue.toString(), so this text is part of the agreement between clients.
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[bisect_left(positions, _ring_position(text)) % len(ring)][1]


def _ring_position(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers named `room@name` in the given rooms, in blocks."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        eligible = [queue for queue in queues if self._room(queue.broker_name) in self.rooms]
        position = list(client_ids).index(client_id)
        share, rest = divmod(len(eligible), len(client_ids))
        own = eligible[position * share : (position + 1) * share]
        # The remainder lies behind all blocks and goes one each to the first members.
        return own + ([eligible[len(client_ids) * share + position]] if position < rest else [])

    @staticmethod
    def _room(broker_name: str) -> str | None:
        parts = broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


@dataclass(frozen=True, slots=True)
class ByMachineRoomNearby:
    """Members take the queues of their own room; queues of rooms without members are shared by all."""

    room_of_broker: Callable[[str], str]
    room_of_client: Callable[[str], str]
    inner: Strategy = field(default_factory=Averagely)

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        rooms = _grouped(queues, lambda queue: self.room_of_broker(queue.broker_name))
        members = _grouped(client_ids, self.room_of_client)
        own_room = self.room_of_client(client_id)
        own = self.inner.allocate(group, client_id, rooms.get(own_room, []), members[own_room])
        for room, orphans in rooms.items():
            if room not in members:
                own.extend(self.inner.allocate(group, client_id, orphans, client_ids))
        return own


def _grouped(items: Iterable[_T], room_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    grouped: dict[str, list[_T]] = {}
    for item in items:
        grouped.setdefault(room_of(item), []).append(item)
    return grouped


def allocate(
    strategy: Strategy, group: str, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """The share of one member, from queues and members in any order."""
    ordered = sorted(queues)
    return strategy.allocate(group, client_id, ordered, sorted(client_ids)) if ordered else []

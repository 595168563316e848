"""Brokers that were here and are gone, remembered for one purpose: to say why a topic has no route."""

from __future__ import annotations

from dataclasses import dataclass

REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Departure:
    broker_name: str
    address: str
    at_ms: int
    why: str
    topics: frozenset[str]


class Departures:
    """The last brokers that left, each until it comes back; never more than `REMEMBERED`."""

    def __init__(self) -> None:
        self._by_name: dict[str, Departure] = {}

    def add(self, name: str, address: str, at_ms: int, why: str, topics: set[str]) -> None:
        self._by_name.pop(name, None)
        self._by_name[name] = Departure(name, address, at_ms, why, frozenset(topics))
        if len(self._by_name) > REMEMBERED:
            del self._by_name[next(iter(self._by_name))]

    def forget(self, name: str) -> None:
        self._by_name.pop(name, None)

    def of_topic(self, topic: str) -> list[Departure]:
        return [departure for departure in self._by_name.values() if topic in departure.topics]

    def latest(self) -> Departure | None:
        return next(reversed(self._by_name.values()), None)

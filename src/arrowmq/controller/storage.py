"""The contract of a place that keeps decisions.

A storage holds one value a broker set, with a revision that rises when it is changed. `commit` replaces a value only if
its revision is still the one that the decision was based on and, where several controllers share the storage, only if
this one still leads. When it returns, the decision lasts; when it raises `StaleDecision`, nothing has changed; when it
raises `StorageUnreachable`, it is not known whether it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from arrowmq.controller.broker_sets import BrokerSet


class StorageError(Exception):
    """Decisions cannot be kept or read."""


class StaleDecision(StorageError):
    """Based on what is no longer so, or made by a controller that no longer leads. Nothing was changed."""


class StorageUnreachable(StorageError):
    """Nobody answered in time: the decision may have been kept or not."""


@dataclass(frozen=True, slots=True)
class Kept:
    broker_set: BrokerSet
    revision: int


@dataclass(frozen=True, slots=True)
class ControllerPeer:
    """A controller: its name among the others, and where brokers reach it."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as far as is known here. `is_ours` was so when this was made; whether it still is, `commit` says."""

    leader: ControllerPeer | None
    is_ours: bool
    peers: tuple[ControllerPeer, ...]


OnLeadership = Callable[[bool], Awaitable[None]]
OnChange = Callable[[str, Kept | None], None]


class Storage(Protocol):
    async def open(self, on_leadership: OnLeadership, on_change: OnChange) -> None:
        """Begin. `on_leadership` is awaited when this controller begins or ceases to lead, `on_change` is called with
        what others decided."""

    async def close(self) -> None: ...

    def leadership(self) -> Leadership: ...

    async def load(self) -> dict[str, Kept]:
        """All that is kept, by the name of the set."""

    async def commit(self, name: str, based_on: int, kept: BrokerSet | None) -> int:
        """Replace what is kept of a set; `based_on` is its revision, 0 if there was none. Returns the new revision."""

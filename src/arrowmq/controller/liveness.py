"""Who is alive: by the heartbeats of brokers, on monotonic time, and by the connections they come on.

A broker promises with each heartbeat how long it may be silent (its lease). A leap of the wall clock changes nothing. A
pause of this process would: heartbeats that came in meanwhile still wait in the sockets. So a look that comes late by
more than `MAX_STALL_S` starts all leases again, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from arrowmq.clock import Clock
from arrowmq.controller.broker_sets import DEFAULT_LEASE_MS
from arrowmq.controller.election import LOWEST_PRIORITY, Standing
from arrowmq.remoting.channel import Channel
from arrowmq.wire.headers import BrokerHeartbeat

MAX_STALL_S = 1.0
MIN_LEASE_MS = 100
MAX_TRACKED = 10_000  # brokers; a heartbeat is all it takes to be one


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of a set."""

    cluster: str
    name: str
    broker_id: int


@dataclass(slots=True)
class LiveBroker:
    standing: Standing
    address: str
    channel: Channel
    heard_s: float

    @property
    def deadline_s(self) -> float:
        return self.heard_s + self.standing.lease_ms / 1000


class Liveness:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: dict[Member, LiveBroker] = {}
        self._looked_s = clock.monotonic()

    def heard(self, heartbeat: BrokerHeartbeat, channel: Channel) -> Member | None:
        """Take a heartbeat; None if there are more brokers than can be tracked."""
        assert heartbeat.broker_id is not None
        member = Member(heartbeat.cluster_name, heartbeat.broker_name, heartbeat.broker_id)
        known = self._live.get(member)
        if known is None and len(self._live) >= MAX_TRACKED:
            return None
        standing = _standing(heartbeat)
        if known is not None and known.channel is channel:
            # One connection delivers in order; a log that is cut to an earlier end is at a later epoch.
            before = known.standing
            if (standing.epoch, standing.max_offset) < (before.epoch, before.max_offset):
                standing = replace(before, priority=standing.priority, lease_ms=standing.lease_ms)
        self._live[member] = LiveBroker(standing, heartbeat.broker_addr, channel, self._clock.monotonic())
        return member

    def channel_closed(self, channel: Channel) -> list[Member]:
        """The brokers that were last heard on it. They are not taken out: a connection may be made again."""
        return [member for member, live in self._live.items() if live.channel is channel]

    def forget(self, member: Member) -> None:
        self._live.pop(member, None)

    def of_set(self, cluster: str, name: str) -> dict[int, Standing]:
        """The brokers of a set whose lease runs, by id."""
        now_s = self._clock.monotonic()
        return {
            member.broker_id: live.standing
            for member, live in self._live.items()
            if member.name == name and member.cluster == cluster and live.deadline_s >= now_s
        }

    def get(self, member: Member) -> LiveBroker | None:
        return self._live.get(member)

    def is_alive(self, member: Member) -> bool:
        live = self._live.get(member)
        return live is not None and live.deadline_s >= self._clock.monotonic()

    def expired(self) -> Iterator[Member]:
        """Brokers whose lease is over, taken out."""
        for member, live in list(self._live.items()):
            if live.deadline_s < self._clock.monotonic():
                del self._live[member]
                live.channel.close()
                yield member

    def next_deadline_s(self) -> float | None:
        return min((live.deadline_s for live in self._live.values()), default=None)

    def stalled(self, late_s: float) -> bool:
        """Call with how late a look came; True if all leases were started again because of it."""
        if late_s <= MAX_STALL_S:
            return False
        now_s = self._clock.monotonic()
        for live in self._live.values():
            live.heard_s = max(live.heard_s, now_s)
        return True

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._live)


def _standing(heartbeat: BrokerHeartbeat) -> Standing:
    def given(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    return Standing(
        epoch=given(heartbeat.epoch, -1),
        max_offset=given(heartbeat.max_offset, -1),
        confirm_offset=given(heartbeat.confirm_offset, -1),
        priority=given(heartbeat.election_priority, LOWEST_PRIORITY),
        lease_ms=max(MIN_LEASE_MS, given(heartbeat.heartbeat_timeout_mills, DEFAULT_LEASE_MS)),
    )

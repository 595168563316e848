"""Which broker of a set becomes master: Apache's policy.

Candidates are the live members of the sync state set: they have all that was acknowledged. Only where an operator
allows unclean elections, and no member lives, every live replica is one.

    the master lives, and nobody else is asked for      it stays
    a broker is designated                              it, if it is a candidate; else nobody
    otherwise                                           the highest epoch, then the most bytes, then the lowest priority
                                                        number, then the lowest id
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arrowmq.controller.broker_sets import BrokerSet

LOWEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Standing:
    """What a live broker last said of its log."""

    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    priority: int = LOWEST_PRIORITY
    lease_ms: int = 10_000


Alive = Mapping[int, Standing]
"""The live brokers of one set, by id."""


def elect(broker_set: BrokerSet, alive: Alive, *, designated: int | None, is_unclean_allowed: bool) -> int | None:
    chosen = _choose(broker_set.sync_state_set, broker_set.master_id, alive, designated)
    if chosen is None and is_unclean_allowed:
        chosen = _choose(broker_set.replicas, broker_set.master_id, alive, designated)
    return chosen


def _choose(members: Iterable[int], master_id: int | None, alive: Alive, designated: int | None) -> int | None:
    candidates = [member for member in members if member in alive]
    if master_id in candidates and designated in (None, master_id):
        return master_id
    if designated is not None:
        return designated if designated in candidates else None
    return min(candidates, key=lambda member: _rank(member, alive[member]), default=None)


def _rank(member: int, standing: Standing) -> tuple[int, int, int, int]:
    return (-standing.epoch, -standing.max_offset, standing.priority, member)

"""Since when brokers are out of their sync state set: for operators, as far as this controller has seen it lead."""

from __future__ import annotations

from collections.abc import Iterable

from arrowmq.clock import Clock
from arrowmq.controller.broker_sets import BrokerSet


class Absences:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, dict[int, int]] = {}

    def begin(self, broker_sets: Iterable[BrokerSet]) -> None:
        """This controller leads from now on; how it was before, it cannot know."""
        self._since_ms = {}
        for broker_set in broker_sets:
            self.seen(broker_set)

    def seen(self, broker_set: BrokerSet) -> None:
        before, now_ms = self._since_ms.get(broker_set.name, {}), self._clock.now_ms()
        outside = broker_set.replicas.keys() - set(broker_set.sync_state_set)
        self._since_ms[broker_set.name] = {member: before.get(member, now_ms) for member in outside}

    def since_ms(self, name: str, broker_id: int) -> int | None:
        return self._since_ms.get(name, {}).get(broker_id)

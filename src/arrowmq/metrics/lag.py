"""How far each group is behind, by queue: in messages, and in time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


@dataclass(frozen=True, slots=True)
class QueueLag:
    queue_id: int
    messages: int
    latency_ms: int
    in_flight: int
    queueing_ms: int


@dataclass(slots=True)
class GroupLag:
    """One group in one topic; the sums and maxima over its queues."""

    group: str
    topic: str
    queues: list[QueueLag] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    @property
    def ready(self) -> int:
        return self.messages - self.in_flight

    @property
    def latency_ms(self) -> int:
        return max((queue.latency_ms for queue in self.queues), default=0)

    @property
    def queueing_ms(self) -> int:
        return max((queue.queueing_ms for queue in self.queues), default=0)


def lags_of(broker: Broker) -> list[GroupLag]:
    """Every group with committed offsets, and every topic of it that exists."""
    lags = []
    for group in sorted(broker.offsets.groups()):
        for topic in sorted(broker.offsets.topics_of(group)):
            known = broker.topics.get(topic)
            if known is None:
                continue
            lag = GroupLag(group, topic)
            for queue_id, committed in sorted(broker.offsets.queues(group, topic).items()):
                lag.queues.append(_queue_lag(broker, group, topic, queue_id, committed))
            lags.append(lag)
    return lags


def _queue_lag(broker: Broker, group: str, topic: str, queue_id: int, committed: int) -> QueueLag:
    store = broker.store
    smallest, largest = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    committed = min(max(committed, smallest), largest)
    pulled = broker.offsets.pull_offset(group, topic, queue_id)
    pulled = committed if pulled is None else min(max(pulled, committed), largest)
    # Popped messages lie before the group's offset, and are not consumed before they are acknowledged
    lane = broker.services.pop_revive.table.find_lane(topic, group, queue_id)
    popped = 0 if lane is None else lane.in_flight
    return QueueLag(
        queue_id,
        messages=largest - committed + popped,
        latency_ms=_age_ms(broker, topic, queue_id, committed, largest),
        in_flight=pulled - committed + popped,
        queueing_ms=_age_ms(broker, topic, queue_id, pulled, largest),
    )


def _age_ms(broker: Broker, topic: str, queue_id: int, offset: int, largest: int) -> int:
    if offset >= largest:
        return 0
    stored_ms = broker.store.store_time(topic, queue_id, offset)
    return max(0, broker.clock.now_ms() - stored_ms) if stored_ms > 0 else 0

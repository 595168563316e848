"""Metrics of messages that do not go straight to their topic: transactions and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.broker.names import TIMER_TOPIC
from arrowmq.metrics.labelled import MILLISECONDS, SECONDS, LabelledFamilies, in_unit

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

# New ones that a look at the page reads, so that it never holds up the broker; what is left, the next look reads.
MOST_HALF_MESSAGES = 5_000


class KindFamilies:
    def __init__(self, broker: Broker, labelled: LabelledFamilies, local: LabelledFamilies) -> None:
        """`local` gives what is in the store its further labels."""
        self.broker = broker
        self.labelled = labelled
        self.local = local
        self.transactions = broker.services.transactions.counts
        self.timer = broker.services.timer

    def collect(self) -> Iterator[Metric]:
        yield from self._transactions()
        if self.broker.config.timer_wheel_enable:
            yield from self._timer()

    def _transactions(self) -> Iterator[Metric]:
        labelled, counts = self.labelled, self.transactions
        for name, about, ended in (
            ("rocketmq_commit_messages", "Transactions committed", counts.committed),
            ("rocketmq_rollback_messages", "Transactions rolled back", counts.rolled_back),
        ):
            yield self._by_topic(labelled, ended, name, about)
        latency = labelled.histogram(
            "rocketmq_finish_message_latency", "Seconds from a message's birth to its commit", "topic"
        )
        for topic, values in counts.latency.items():
            labelled.add_all(latency, values, topic)
        yield from in_unit(latency, MILLISECONDS)
        half = labelled.gauge("rocketmq_half_messages", "Half messages neither committed nor rolled back yet", "topic")
        for topic, count in counts.open_by_topic(MOST_HALF_MESSAGES).items():
            labelled.add(half, count, topic)
        yield half

    def _timer(self) -> Iterator[Metric]:
        local, timer, counts = self.local, self.timer, self.timer.counts
        yield local.one("rocketmq_timer_enqueue_lag", "Messages not yet in the wheel", timer.not_entered)
        behind = local.one("rocketmq_timer_enqueue_latency", "Age of the oldest of them", self._enter_latency_ms())
        yield from in_unit(behind, MILLISECONDS)
        yield local.one("rocketmq_timer_dequeue_lag", "Messages in the wheel", counts.waiting.total())
        late = local.one("rocketmq_timer_dequeue_latency", "Time since the wheel's last emptied slot", timer.behind_ms)
        yield from in_unit(late, MILLISECONDS)
        waiting = local.gauge("rocketmq_timing_messages", "Messages that wait for their time", "topic")
        for topic, count in counts.waiting.items():
            local.add(waiting, count, topic)
        yield waiting
        yield self._by_topic(local, counts.entered, "rocketmq_timer_enqueue", "Messages put into the wheel")
        yield self._by_topic(local, counts.delivered, "rocketmq_timer_dequeue", "Messages delivered from the wheel")
        soon = local.gauge("rocketmq_timer_message_snapshot", "Messages due within the next seconds", "timer_bound_s")
        for bound, count in timer.due_soon().items():
            local.add(soon, count, str(bound))
        yield soon
        delays = local.histogram("rocketmq_delay_message_latency", "Seconds that messages are to wait", "topic")
        for topic, values in counts.delays.items():
            local.add_all(delays, values, topic)
        yield from in_unit(delays, SECONDS)

    def _enter_latency_ms(self) -> int:
        if not self.timer.not_entered:
            return 0
        stored_ms = self.broker.store.store_time(TIMER_TOPIC, 0, self.timer.queue_offset)
        return max(0, self.broker.clock.now_ms() - stored_ms) if stored_ms > 0 else 0

    def _by_topic(self, labelled: LabelledFamilies, counts: Counter[str], name: str, about: str) -> Metric:
        family = labelled.counter(name, about, "topic")
        for topic, count in counts.items():
            labelled.add(family, count, topic)
        return family

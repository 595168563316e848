"""Metrics of pop: Apache's list, and what waits and is in flight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.metrics.labelled import MILLISECONDS, LabelledFamilies, in_unit

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


class PopFamilies:
    def __init__(self, broker: Broker, labelled: LabelledFamilies) -> None:
        self.broker = broker
        self.labelled = labelled

    def collect(self) -> Iterator[Metric]:
        services, labelled = self.broker.services, self.labelled
        revive = services.pop_revive
        yield from self._counts()
        one = labelled.one
        yield one("rocketmq_pop_checkpoint_buffer_size", "Check points not stored yet", len(revive.merging.unwritten))
        yield one("rocketmq_pop_offset_buffer_size", "Offsets of pops not committed yet", revive.merging.steps)
        lag = labelled.gauge("rocketmq_pop_revive_lag", "Messages of a revive queue not done with", "queue_id")
        latency = labelled.gauge(
            "rocketmq_pop_revive_latency", "How long the oldest message should have been taken back", "queue_id"
        )
        for queue in revive.log.queues:
            messages, late_ms = revive.behind(queue.queue_id)
            labelled.add(lag, messages, str(queue.queue_id))
            labelled.add(latency, late_ms, str(queue.queue_id))
        # Messages, not milliseconds: but that is the unit that Apache's exporter puts into its name
        yield from in_unit(lag, MILLISECONDS)
        yield from in_unit(latency, MILLISECONDS)
        times = labelled.histogram(
            "rocketmq_pop_buffer_scan_time_consume", "What storing the check points that stayed too long took"
        )
        labelled.add_all(times, revive.merging.scan_times)
        yield from in_unit(times, MILLISECONDS)
        yield one("arrowmq_pop_in_flight_messages", "Popped and not acknowledged yet", revive.table.in_flight)
        yield one("arrowmq_waiting_pops", "Pops that wait for a message", services.pop.polling.count)

    def _counts(self) -> Iterator[Metric]:
        counts, labelled = self.broker.services.pop.counts, self.labelled
        stored = labelled.counter(
            "rocketmq_pop_revive_in_message",
            "Check points and acks stored",
            *("consumer_group", "topic", "revive_message_type", "put_status"),
        )
        for in_labels, count in counts.stored.items():
            labelled.add(stored, count, *in_labels)
        yield stored
        read = labelled.counter(
            "rocketmq_pop_revive_out_message",
            "Check points and acks read from the revive topic",
            *("consumer_group", "topic", "queue_id", "revive_message_type"),
        )
        for (group, topic, queue_id, kind), count in counts.read.items():
            labelled.add(read, count, group, topic, str(queue_id), kind)
        yield read
        retries = labelled.counter(
            "rocketmq_pop_revive_retry_messages", "Messages taken back", "consumer_group", "topic", "put_status"
        )
        for retry_labels, count in counts.retries.items():
            labelled.add(retries, count, *retry_labels)
        yield retries

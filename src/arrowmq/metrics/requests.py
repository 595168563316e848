"""Metrics of what comes in: messages and their sizes, requests and how long they took, creations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.broker import names
from arrowmq.broker.runtime.thread_pools import waiting_by_processor
from arrowmq.metrics.label_values import is_system, yes_no
from arrowmq.metrics.labelled import MILLISECONDS, LabelledFamilies, in_unit
from arrowmq.wire.codes import request_name, response_name

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


class RequestFamilies:
    def __init__(self, broker: Broker, labelled: LabelledFamilies) -> None:
        self.broker = broker
        self.labelled = labelled

    def collect(self) -> Iterator[Metric]:
        yield self._watermark()
        yield from self._messages()
        yield from in_unit(self._latency(), MILLISECONDS)
        yield from self._creations()

    def _watermark(self) -> Metric:
        family = self.labelled.gauge("rocketmq_processor_watermark", "Requests that wait for their answer", "processor")
        for processor, count in waiting_by_processor(self.broker.answer_times.waiting).items():
            self.labelled.add(family, count, processor)
        return family

    def _messages(self) -> Iterator[Metric]:
        labelled, labels = self.labelled, ("topic", "message_type", "is_system")
        messages = labelled.counter("rocketmq_messages_in", "Messages stored", *labels)
        throughput = labelled.counter("rocketmq_throughput_in", "Bytes stored", *labels)
        size = labelled.histogram("rocketmq_message_size", "Bytes of stored messages", *labels)
        for (topic, message_type), sizes in self.broker.stats.sizes.items():
            if not names.is_retry_or_dlq(topic):
                values = (topic, message_type.lower(), yes_no(is_system(self.broker, topic)))
                labelled.add(messages, sizes.count, *values)
                labelled.add(throughput, sizes.total, *values)
                labelled.add_all(size, sizes, *values)
        yield messages
        yield throughput
        yield size

    def _latency(self) -> Metric:
        family = self.labelled.histogram(
            "rocketmq_rpc_latency",
            "Milliseconds from a request to its answer",
            *("protocol_type", "is_long_polling", "request_code", "response_code", "result"),
        )
        for answered, times in self.broker.answer_times.times.items():
            self.labelled.add_all(
                family,
                times,
                "remoting",
                yes_no(answered.was_suspended),
                request_name(answered.request_code).lower(),
                response_name(answered.response_code).lower(),
                answered.result,
            )
        return family

    def _creations(self) -> Iterator[Metric]:
        labelled, times = self.labelled, self.broker.creation_times
        topics = labelled.histogram(
            "rocketmq_topic_create_execution_time",
            "Milliseconds to create or change a topic",
            *("invocation_status", "is_system"),
        )
        for (outcome, is_of_system), values in times.topics.items():
            labelled.add_all(topics, values, outcome, yes_no(is_of_system))
        groups = labelled.histogram(
            "rocketmq_consumer_group_create_execution_time",
            "Milliseconds to create or change a group",
            "invocation_status",
        )
        for outcome, values in times.groups.items():
            labelled.add_all(groups, values, outcome)
        yield from in_unit(topics, MILLISECONDS)
        yield from in_unit(groups, MILLISECONDS)

"""Metrics of what comes in: messages and their sizes, requests and how long they took, creations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.broker import names
from arrowmq.metrics.pieces import MILLISECONDS, Pieces, in_unit
from arrowmq.metrics.words import is_system, yes_no
from arrowmq.wire.codes import RequestCode, request_name, response_name

if TYPE_CHECKING:
    from arrowmq.broker.node import Broker

# Which of Apache's thread pools a request belongs to. Ours has none of them; what counts is how many requests of the
# kind wait for their answer: for a disk, a NameServer, another client.
PROCESSORS: dict[str, frozenset[int]] = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.RECALL_MESSAGE,
        }
    ),
    "async_put": frozenset(),
    "pull": frozenset({RequestCode.PULL_MESSAGE}),
    "ack": frozenset(),
    "query_message": frozenset({RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}),
    "client_manager": frozenset({RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG}),
    "heartbeat": frozenset({RequestCode.HEART_BEAT}),
    "lite_pull": frozenset({RequestCode.LITE_PULL_MESSAGE}),
    "transaction": frozenset({RequestCode.END_TRANSACTION}),
    "consumer_manager": frozenset(
        {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.QUERY_CONSUMER_OFFSET,
        }
    ),
    "reply": frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}),
}
ADMIN = "admin"  # every other request
_PROCESSOR_OF = {code: processor for processor, codes in PROCESSORS.items() for code in codes}


class RequestFamilies:
    def __init__(self, broker: Broker, pieces: Pieces) -> None:
        self.broker = broker
        self.pieces = pieces

    def collect(self) -> Iterator[Metric]:
        yield self._watermark()
        yield from self._messages()
        yield from in_unit(self._latency(), MILLISECONDS)
        yield from self._creations()

    def _watermark(self) -> Metric:
        waiting: Counter[str] = Counter()
        for code, count in self.broker.answer_times.waiting.items():
            waiting[_PROCESSOR_OF.get(code, ADMIN)] += count
        family = self.pieces.gauge("rocketmq_processor_watermark", "Requests that wait for their answer", "processor")
        for processor in (*PROCESSORS, ADMIN):
            self.pieces.add(family, waiting[processor], processor)
        return family

    def _messages(self) -> Iterator[Metric]:
        pieces, labels = self.pieces, ("topic", "message_type", "is_system")
        messages = pieces.counter("rocketmq_messages_in", "Messages stored", *labels)
        throughput = pieces.counter("rocketmq_throughput_in", "Bytes stored", *labels)
        size = pieces.histogram("rocketmq_message_size", "Bytes of stored messages", *labels)
        for (topic, message_type), sizes in self.broker.stats.sizes.items():
            if not names.is_retry_or_dlq(topic):
                values = (topic, message_type.lower(), yes_no(is_system(self.broker, topic)))
                pieces.add(messages, sizes.count, *values)
                pieces.add(throughput, sizes.total, *values)
                pieces.add_all(size, sizes, *values)
        yield messages
        yield throughput
        yield size

    def _latency(self) -> Metric:
        family = self.pieces.histogram(
            "rocketmq_rpc_latency",
            "Milliseconds from a request to its answer",
            *("protocol_type", "is_long_polling", "request_code", "response_code", "result"),
        )
        for answered, times in self.broker.answer_times.times.items():
            self.pieces.add_all(
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
        pieces, times = self.pieces, self.broker.creation_times
        topics = pieces.histogram(
            "rocketmq_topic_create_execution_time",
            "Milliseconds to create or change a topic",
            *("invocation_status", "is_system"),
        )
        for (outcome, is_of_system), values in times.topics.items():
            pieces.add_all(topics, values, outcome, yes_no(is_of_system))
        groups = pieces.histogram(
            "rocketmq_consumer_group_create_execution_time",
            "Milliseconds to create or change a group",
            "invocation_status",
        )
        for outcome, values in times.groups.items():
            pieces.add_all(groups, values, outcome)
        yield from in_unit(topics, MILLISECONDS)
        yield from in_unit(groups, MILLISECONDS)

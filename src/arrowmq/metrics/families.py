"""The metric families of a broker, gathered at the moment of a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from arrowmq.broker import names
from arrowmq.broker import stats as items
from arrowmq.broker.flow import FlowControl, private_memory_bytes
from arrowmq.metrics.lag import GroupLag, lags_of
from arrowmq.wire.codes import LanguageCode

if TYPE_CHECKING:
    from arrowmq.broker.node import Broker
    from arrowmq.metrics.loop_watch import LoopWatch

STORAGE = {"storage_type": "local", "storage_medium": "disk"}
# Each release has a SNAPSHOT before it, so a release is two on from the one before; from 4.0.0 on without gaps.
VERSION_4_0_0, VERSION_5_0_0, PER_MINOR = 213, 413, 20


class BrokerFamilies:
    """A collector as prometheus_client knows it: `collect()` gives the families."""

    def __init__(self, broker: Broker, loop_watch: LoopWatch | None = None) -> None:
        self.broker = broker
        self.loop_watch = loop_watch
        config = broker.config
        self.labels = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": config.broker_name}
        self.flow = next(service for service in broker.services if isinstance(service, FlowControl))

    def collect(self) -> Iterator[Metric]:
        self.broker.stats.gather()
        yield from self._tables()
        yield from self._messages()
        yield from self._clients()
        yield from self._lag()
        yield from self._storage()
        yield from self._health()

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _gauge(self, name: str, about: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, about, labels=[*self.labels, *labels])

    def _counter(self, name: str, about: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, about, labels=[*self.labels, *labels])

    def _add(self, family: GaugeMetricFamily | CounterMetricFamily, value: float, *labels: str) -> None:
        family.add_metric([*self.labels.values(), *labels], value)

    def _one(self, name: str, about: str, value: float) -> Metric:
        family = self._gauge(name, about)
        self._add(family, value)
        return family

    def _is_system(self, topic: str) -> bool:
        return names.is_system_topic(topic, self.broker.config)

    def _reader_labels(self, topic: str, group: str, *, group_first: bool) -> tuple[str, ...]:
        is_retry = _yes_no(topic.startswith(names.RETRY_PREFIX))
        is_system = _yes_no(self._is_system(topic) or names.is_system_group(group))
        return (group, topic, is_retry, is_system) if group_first else (topic, group, is_retry, is_system)

    # --- families ----------------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Metric]:
        broker = self.broker
        yield self._one("rocketmq_broker_permission", "4 read, 2 write, 6 both", broker.config.broker_permission)
        yield self._one("rocketmq_topic_number", "Topics of this broker", len(broker.topics.table))
        yield self._one("rocketmq_consumer_group_number", "Consumer groups of this broker", len(broker.groups.table))

    def _messages(self) -> Iterator[Metric]:
        stats = self.broker.stats
        for name, about, item in (
            ("rocketmq_messages_in", "Messages stored", items.TOPIC_PUT_NUMS),
            ("rocketmq_throughput_in", "Bytes stored", items.TOPIC_PUT_SIZE),
        ):
            family = self._counter(name, about, "topic", "message_type", "is_system")
            for topic, counted in stats.items[item].items():
                if not names.is_retry_or_dlq(topic):
                    self._add(family, counted.total, topic, self._message_type(topic), _yes_no(self._is_system(topic)))
            yield family
        for name, about, item in (
            ("rocketmq_messages_out", "Messages given to consumers", items.GROUP_GET_NUMS),
            ("rocketmq_throughput_out", "Bytes given to consumers", items.GROUP_GET_SIZE),
        ):
            family = self._counter(name, about, "topic", "consumer_group", "is_retry", "is_system")
            for key, counted in stats.items[item].items():
                topic, _, group = key.partition("@")
                self._add(family, counted.total, *self._reader_labels(topic, group, group_first=False))
            yield family
        dead = self._counter(
            "rocketmq_send_to_dlq_messages", "Messages given up", "topic", "consumer_group", "is_system"
        )
        for key, counted in stats.items[items.DLQ_PUT_NUMS].items():
            topic, _, group = key.partition("@")
            self._add(dead, counted.total, topic, group, _yes_no(names.is_system_group(group)))
        yield dead

    def _message_type(self, topic: str) -> str:
        known = self.broker.topics.get(topic)
        return ((known.attributes or {}).get("message.type", "NORMAL") if known is not None else "NORMAL").lower()

    def _clients(self) -> Iterator[Metric]:
        clients = self.broker.clients
        producers: Counter[tuple[str, str]] = Counter()
        for channels in clients.producers.values():
            for channel in channels.values():
                producers[_language(channel.language), version_name(channel.version)] += 1
        family = self._gauge("rocketmq_producer_connections", "Producers", "language", "version", "protocol_type")
        for (language, version), count in producers.items():
            self._add(family, count, language, version, "remoting")
        yield family
        family = self._gauge(
            "rocketmq_consumer_connections",
            "Consumers",
            *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        )
        for group in clients.consumers.values():
            members = Counter(
                (_language(each.language), version_name(each.version)) for each in group.channels.values()
            )
            mode = {"CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}.get(group.consume_type or "", "push")
            for (language, version), count in members.items():
                is_system = _yes_no(names.is_system_group(group.name))
                self._add(family, count, group.name, language, version, mode, "remoting", is_system)
        yield family
        differing = self._counter(
            "arrowmq_differing_subscriptions", "Times that members of a group were found to subscribe differently"
        )
        self._add(differing, clients.differing_subscriptions)
        yield differing

    def _lag(self) -> Iterator[Metric]:
        lags = lags_of(self.broker)
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        by_group: tuple[tuple[str, str, str], ...] = (
            ("rocketmq_consumer_lag_messages", "Messages stored and not yet consumed", "messages"),
            ("rocketmq_consumer_lag_latency", "Age in milliseconds of the oldest of them", "latency_ms"),
            ("rocketmq_consumer_inflight_messages", "Pulled and not yet consumed", "in_flight"),
            ("rocketmq_consumer_ready_messages", "Not yet pulled", "ready"),
            ("rocketmq_consumer_queueing_latency", "Age in milliseconds of the oldest not yet pulled", "queueing_ms"),
        )
        for name, about, attribute in by_group:
            family = self._gauge(name, about, *labels)
            for lag in lags:
                self._add(family, getattr(lag, attribute), *self._reader_labels(lag.topic, lag.group, group_first=True))
            yield family
        yield from self._lag_by_queue(lags)

    def _lag_by_queue(self, lags: list[GroupLag]) -> Iterator[Metric]:
        labels = ("consumer_group", "topic", "queue_id")
        messages = self._gauge("arrowmq_queue_lag_messages", "Messages stored and not yet consumed, by queue", *labels)
        seconds = self._gauge("arrowmq_queue_lag_seconds", "Age of the oldest of them, by queue", *labels)
        for lag in lags:
            for queue in lag.queues:
                self._add(messages, queue.messages, lag.group, lag.topic, str(queue.queue_id))
                self._add(seconds, queue.latency_ms / 1000, lag.group, lag.topic, str(queue.queue_id))
        yield messages
        yield seconds

    def _storage(self) -> Iterator[Metric]:
        store = self.broker.store
        earliest = store.earliest_time()
        now_ms = self.broker.clock.now_ms()
        for name, about, value in (
            ("size", "Bytes of the commit log", store.appended - store.min_physical_offset),
            ("flush_behind_bytes", "Bytes of the log not forced to disk yet", store.appended - store.flushed_position),
            ("dispatch_behind_bytes", "Bytes of the log that queues do not have yet: none, ever", 0),
            (
                "message_reserve_time",
                "Age in milliseconds of the oldest message",
                now_ms - earliest if earliest > 0 else 0,
            ),
        ):
            family = self._gauge(f"rocketmq_storage_{name}", about, *STORAGE)
            self._add(family, value, *STORAGE.values())
            yield family
        yield self._one("arrowmq_log_appended_offset", "Where the next record goes", store.appended)
        yield self._one("arrowmq_log_flushed_offset", "Up to where the log is forced to disk", store.flushed_position)
        yield self._one("arrowmq_log_min_offset", "Where the log begins", store.min_physical_offset)
        cold = self._counter("arrowmq_cold_reads", "Reads that waited for the disk, in the thread for them")
        self._add(cold, store.cold_reads)
        yield cold

    def _health(self) -> Iterator[Metric]:
        refused = self._counter("arrowmq_refused_sends", "Sends refused, by reason", "reason")
        for reason in ("flush lag", "disk", "memory", "rate limit"):
            self._add(refused, self.flow.refused[reason], reason)
        yield refused
        failed = self._counter("arrowmq_failed_sends", "Sends answered with an error, of any kind")
        self._add(failed, self.broker.stats.failed_puts)
        yield failed
        yield self._one("arrowmq_waiting_pulls", "Pulls that wait for a message", self.broker.longpoll.count)
        yield self._one("arrowmq_own_memory_bytes", "Memory that is this process's alone", private_memory_bytes())
        if self.loop_watch is not None:
            longest = self._gauge(
                "arrowmq_loop_pause_seconds", "Longest standstill of the event loop since the last look"
            )
            self._add(longest, self.loop_watch.take_longest_s())
            yield longest


def _yes_no(value: bool) -> str:
    return "true" if value else "false"


def _language(code: int) -> str:
    try:
        return LanguageCode(code).name.lower()
    except ValueError:
        return "other"


def version_name(ordinal: int) -> str:
    """The release a client says it is, as RocketMQ labels it; of releases before 4.0.0 the number alone."""
    for major, first in ((5, VERSION_5_0_0), (4, VERSION_4_0_0)):
        if ordinal >= first - 1:
            minor, rest = divmod(ordinal - first + 1, PER_MINOR)
            return f"v{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_snapshot")
    return f"v{ordinal}"

"""The metric families of a broker, gathered at the moment of a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.broker import names
from arrowmq.broker.runtime import stats as items
from arrowmq.broker.send.flow import private_memory_bytes
from arrowmq.metrics.label_values import is_system, labels_of, language_name, yes_no
from arrowmq.metrics.labelled import BYTES, MILLISECONDS, LabelledFamilies, in_unit
from arrowmq.metrics.lag import GroupLag, lags_of
from arrowmq.metrics.message_kinds import KindFamilies
from arrowmq.metrics.pop import PopFamilies
from arrowmq.metrics.requests import RequestFamilies
from arrowmq.wire.releases import version_name

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker
    from arrowmq.metrics.loop_watch import LoopWatch

LAG_LABELS = ("consumer_group", "topic", "is_retry", "is_system")
STORAGE = {"storage_type": "local", "storage_medium": "disk"}


class BrokerFamilies:
    """A collector as prometheus_client knows it: `collect()` gives the families."""

    def __init__(self, broker: Broker, loop_watch: LoopWatch | None = None) -> None:
        self.broker = broker
        self.loop_watch = loop_watch
        config = broker.config
        self.labelled = LabelledFamilies(
            {
                **labels_of(config.metrics_label),
                "cluster": config.broker_cluster_name,
                "node_type": "broker",
                "node_id": config.broker_name,
            }
        )
        self.requests = RequestFamilies(broker, self.labelled)
        self.kinds = KindFamilies(broker, self.labelled, self.labelled.with_labels(**STORAGE))
        self.pop = PopFamilies(broker, self.labelled)
        self.flow = broker.services.flow

    def collect(self) -> Iterator[Metric]:
        self.broker.stats.gather()
        yield from self._tables()
        yield from self.requests.collect()
        yield from self._messages()
        yield from self.kinds.collect()
        yield from self._clients()
        yield from self._lag()
        yield from self.pop.collect()
        yield from self._storage()
        yield from self._replicas()
        yield from self._health()

    def _reader_labels(self, topic: str, group: str) -> tuple[str, str]:
        """Of a topic and a group: is_retry and is_system."""
        is_of_system = is_system(self.broker, topic) or names.is_system_group(group)
        return yes_no(topic.startswith(names.RETRY_PREFIX)), yes_no(is_of_system)

    def _tables(self) -> Iterator[Metric]:
        broker, one = self.broker, self.labelled.one
        yield one("rocketmq_broker_permission", "4 read, 2 write, 6 both", broker.config.broker_permission)
        yield one("rocketmq_topic_number", "Topics of this broker", len(broker.topics.table))
        yield one("rocketmq_consumer_group_number", "Consumer groups of this broker", len(broker.groups.table))

    def _messages(self) -> Iterator[Metric]:
        stats, labelled = self.broker.stats, self.labelled
        for name, about, item in (
            ("rocketmq_messages_out", "Messages given to consumers", items.GROUP_GET_NUMS),
            ("rocketmq_throughput_out", "Bytes given to consumers", items.GROUP_GET_SIZE),
        ):
            family = labelled.counter(name, about, "topic", "consumer_group", "is_retry", "is_system")
            for key, counted in stats.items[item].items():
                topic, _, group = key.partition("@")
                labelled.add(family, counted.total, topic, group, *self._reader_labels(topic, group))
            yield family
        dead = labelled.counter(
            "rocketmq_send_to_dlq_messages", "Messages given up", "topic", "consumer_group", "is_system"
        )
        for key, counted in stats.items[items.DLQ_PUT_NUMS].items():
            topic, _, group = key.partition("@")
            labelled.add(dead, counted.total, topic, group, yes_no(names.is_system_group(group)))
        yield dead

    def _clients(self) -> Iterator[Metric]:
        clients, labelled = self.broker.clients, self.labelled
        producers: Counter[tuple[str, str]] = Counter()
        for channels in clients.producers.values():
            for channel in channels.values():
                producers[language_name(channel.language), version_name(channel.version)] += 1
        family = labelled.gauge("rocketmq_producer_connections", "Producers", "language", "version", "protocol_type")
        for (language, version), count in producers.items():
            labelled.add(family, count, language, version, "remoting")
        yield family
        family = labelled.gauge(
            "rocketmq_consumer_connections",
            "Consumers",
            *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        )
        for group in clients.consumers.values():
            members = Counter(
                (language_name(each.language), version_name(each.version)) for each in group.channels.values()
            )
            mode = {"CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}.get(group.consume_type or "", "push")
            for (language, version), count in members.items():
                is_of_system = yes_no(names.is_system_group(group.name))
                labelled.add(family, count, group.name, language, version, mode, "remoting", is_of_system)
        yield family
        differing = labelled.counter(
            "arrowmq_differing_subscriptions", "Times that members of a group were found to subscribe differently"
        )
        labelled.add(differing, clients.differing_subscriptions)
        yield differing

    def _lag(self) -> Iterator[Metric]:
        lags = lags_of(self.broker)
        by_group: tuple[tuple[str, str, str, str], ...] = (
            ("rocketmq_consumer_lag_messages", "Messages stored and not yet consumed", "messages", ""),
            ("rocketmq_consumer_lag_latency", "Age of the oldest of them", "latency_ms", MILLISECONDS),
            ("rocketmq_consumer_inflight_messages", "Pulled and not yet consumed", "in_flight", ""),
            ("rocketmq_consumer_ready_messages", "Not yet pulled", "ready", ""),
            ("rocketmq_consumer_queueing_latency", "Age of the oldest not yet pulled", "queueing_ms", MILLISECONDS),
        )
        for name, about, attribute, unit in by_group:
            family = self.labelled.gauge(name, about, *LAG_LABELS)
            for lag in lags:
                labels = self._reader_labels(lag.topic, lag.group)
                self.labelled.add(family, getattr(lag, attribute), lag.group, lag.topic, *labels)
            yield from in_unit(family, unit)
        yield from self._lag_by_queue(lags)

    def _lag_by_queue(self, lags: list[GroupLag]) -> Iterator[Metric]:
        labels, labelled = ("consumer_group", "topic", "queue_id"), self.labelled
        messages = labelled.gauge(
            "arrowmq_queue_lag_messages", "Messages stored and not yet consumed, by queue", *labels
        )
        seconds = labelled.gauge("arrowmq_queue_lag_seconds", "Age of the oldest of them, by queue", *labels)
        for lag in lags:
            for queue in lag.queues:
                labelled.add(messages, queue.messages, lag.group, lag.topic, str(queue.queue_id))
                labelled.add(seconds, queue.latency_ms / 1000, lag.group, lag.topic, str(queue.queue_id))
        yield messages
        yield seconds

    def _storage(self) -> Iterator[Metric]:
        store, labelled = self.broker.store, self.labelled
        earliest = store.earliest_time()
        age_ms = self.broker.clock.now_ms() - earliest if earliest > 0 else 0
        not_flushed = store.appended - store.flushed_position
        local = labelled.with_labels(**STORAGE)
        for name, about, value, unit in (
            ("size", "Bytes of the commit log", store.appended - store.min_physical_offset, BYTES),
            ("flush_behind_bytes", "Bytes of the log not forced to disk yet", not_flushed, BYTES),
            ("dispatch_behind_bytes", "Bytes of the log that queues do not have yet: none, ever", 0, BYTES),
            ("message_reserve_time", "Age of the oldest message", age_ms, MILLISECONDS),
        ):
            yield from in_unit(local.one(f"rocketmq_storage_{name}", about, value), unit)
        yield labelled.one("arrowmq_log_appended_offset", "Where the next record goes", store.appended)
        yield labelled.one(
            "arrowmq_log_flushed_offset", "Up to where the log is forced to disk", store.flushed_position
        )
        yield labelled.one("arrowmq_log_min_offset", "Where the log begins", store.min_physical_offset)
        cold = labelled.counter("arrowmq_cold_reads", "Reads that waited for the disk, in the thread for them")
        labelled.add(cold, store.cold_reads)
        yield cold
        about = "Records of the log that the scrub found changed by the disk"
        yield labelled.one("arrowmq_damaged_records", about, len(store.scrub.damaged))
        damaged = labelled.counter("arrowmq_damaged_reads", "Times that a reader left a damaged record out")
        labelled.add(damaged, store.damaged_records)
        yield damaged

    def _replicas(self) -> Iterator[Metric]:
        """Who copies from whom, and how far behind."""
        one, report = self.labelled.one, self.broker.ha_report()
        role = self.broker.role
        yield one("arrowmq_is_master", "1 of a master, 0 of a slave", int(role.is_master))
        yield one("arrowmq_does_duties", "1 where delays, timers and checks are done", int(role.does_duties))
        connections = report.ha_connection_info
        yield one("arrowmq_ha_slaves", "Slaves connected", len(connections))
        yield one("arrowmq_ha_slaves_in_sync", "Members that are not too far behind", report.in_sync_slave_nums)
        behind = max((connection.diff for connection in connections), default=0)
        yield one("arrowmq_ha_lag_bytes", "Bytes that the furthest slave is behind", behind)
        yield one("arrowmq_ha_lag_seconds", "Age of the oldest that the furthest slave lacks", self.broker.ha_lag_s())
        sent = sum(connection.transferred_byte_in_second for connection in connections)
        yield one("arrowmq_ha_sent_bytes_per_second", "Bytes sent to slaves in the last second", sent)
        copies = int(bool(report.ha_client_runtime_info.activated))
        yield one("arrowmq_ha_copies", "1 while this slave copies from its master", copies)

    def _health(self) -> Iterator[Metric]:
        labelled = self.labelled
        refused = labelled.counter("arrowmq_refused_sends", "Sends refused, by reason", "reason")
        for reason in ("flush lag", "disk", "memory", "rate limit"):
            labelled.add(refused, self.flow.refused[reason], reason)
        yield refused
        failed = labelled.counter("arrowmq_failed_sends", "Sends answered with an error, of any kind")
        labelled.add(failed, self.broker.stats.failed_puts)
        yield failed
        yield labelled.one("arrowmq_waiting_pulls", "Pulls that wait for a message", self.broker.longpoll.count)
        yield labelled.one("arrowmq_own_memory_bytes", "Memory that is this process's alone", private_memory_bytes())
        if self.loop_watch is not None:
            longest_s = self.loop_watch.take_longest_s()
            about = "Longest standstill of the event loop since the last look"
            yield labelled.one("arrowmq_loop_pause_seconds", about, longest_s)

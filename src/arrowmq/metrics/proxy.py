"""Metrics of a proxy: who is there, what they ask, and what it is answered with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from arrowmq.metrics.label_values import labels_of, language_name
from arrowmq.metrics.labelled import MILLISECONDS, LabelledFamilies, in_unit
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire.codes import request_name, response_name
from arrowmq.wire.releases import version_name

if TYPE_CHECKING:
    from arrowmq.metrics.loop_watch import LoopWatch
    from arrowmq.proxy.proxy import Proxy
    from arrowmq.proxy.remoting.server import RemotingProxy


class ProxyFamilies(Collector):
    """A collector as prometheus_client knows it: `collect()` gives the families."""

    def __init__(self, proxy: Proxy, loop_watch: LoopWatch | None = None) -> None:
        self.proxy, self.loop_watch = proxy, loop_watch
        config = proxy.config
        self.labelled = LabelledFamilies(
            {
                "cluster": config.rocket_mq_cluster_name,
                "node_type": "proxy",
                "node_id": config.proxy_name or proxy.address,
                "proxy_mode": config.proxy_mode.lower(),
                **(labels_of(config.metrics_label) if loop_watch is not None else {}),
            }
        )

    def collect(self) -> Iterator[Metric]:
        proxy, labelled = self.proxy, self.labelled
        service = proxy.service
        yield labelled.one("rocketmq_proxy_up", "1 while the proxy serves", int(proxy.port != 0))
        answered = labelled.counter("arrowmq_proxy_calls", "Calls, by what they were answered with", "method", "code")
        for (method, code), count in service.answered.items():
            labelled.add(answered, count, method, code_name(code))
        yield answered
        yield labelled.one("arrowmq_proxy_connections", "HTTP/2 connections", len(proxy.server.connections))
        clients = Counter(
            ("consumer" if client.is_consumer else "producer", language_name(client.language), client.version_text)
            for client in service.clients
        )
        there = labelled.gauge(
            "arrowmq_proxy_clients", "Clients known by their settings", "kind", "language", "version"
        )
        for labels, count in clients.items():
            labelled.add(there, count, *labels)
        yield there
        held = len(service.settling.renewal)
        yield labelled.one("arrowmq_proxy_renewed_messages", "Messages kept invisible for push consumers", held)
        if self.loop_watch is not None:
            about = "Longest standstill of the event loop since the last look"
            yield labelled.one("arrowmq_loop_pause_seconds", about, self.loop_watch.take_longest_s())


class RemotingProxyFamilies(Collector):
    """What remoting clients do through a proxy."""

    def __init__(self, front: RemotingProxy) -> None:
        self.front = front
        config = front.config
        self.labelled = LabelledFamilies(
            {
                "cluster": config.rocket_mq_cluster_name,
                "node_type": "proxy",
                "node_id": config.proxy_name or front.address,
                "proxy_mode": config.proxy_mode.lower(),
                **labels_of(config.metrics_label),
            }
        )

    def collect(self) -> Iterator[Metric]:
        labelled, links = self.labelled, self.front.links
        about = "How long remoting clients waited for an answer, by request and answer"
        latency = labelled.histogram("arrowmq_proxy_remoting_latency", about, "request_code", "response_code")
        for answered, times in self.front.answer_times.times.items():
            if not answered.was_suspended:
                code, answer = answered.request_code, answered.response_code
                labelled.add_all(latency, times, request_name(code).lower(), response_name(answer).lower())
        yield from in_unit(latency, MILLISECONDS)
        requests = labelled.counter(
            "arrowmq_proxy_remoting_requests", "Requests of remoting clients", "request_code", "response_code"
        )
        counted: Counter[tuple[str, str]] = Counter()
        for answered, times in self.front.answer_times.times.items():
            names = request_name(answered.request_code).lower(), response_name(answered.response_code).lower()
            counted[names] += times.count
        for names, count in sorted(counted.items()):
            labelled.add(requests, count, *names)
        yield requests
        yield labelled.one("arrowmq_proxy_remoting_connections", "Connections of remoting clients", len(links))
        upstreams = Counter(upstream.broker for link in links for upstream in link.upstreams)
        to_brokers = labelled.gauge("arrowmq_proxy_broker_connections", "Connections made for clients", "broker")
        for broker, count in sorted(upstreams.items()):
            labelled.add(to_brokers, count, broker)
        yield to_brokers
        clients = Counter(
            ("consumer" if beat.topics else "producer", language_name(beat.language), version_name(beat.version))
            for link in links
            for beat in link.heartbeats.beats
        )
        there = labelled.gauge(
            "arrowmq_proxy_remoting_clients", "Clients known by heartbeats", "kind", "language", "version"
        )
        for labels, count in sorted(clients.items()):
            labelled.add(there, count, *labels)
        yield there


def code_name(code: int) -> str:
    return v2.Code.Name(code) if code in v2.Code.values() else str(code)

"""Metrics of a gRPC proxy: who is there, what they call, and what it is answered with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from arrowmq.metrics.label_values import language_name
from arrowmq.metrics.labelled import LabelledFamilies
from arrowmq.proxy.messages import definition_pb2 as v2

if TYPE_CHECKING:
    from arrowmq.proxy.proxy import Proxy


class ProxyFamilies(Collector):
    """A collector as prometheus_client knows it: `collect()` gives the families."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        config = proxy.config
        self.labelled = LabelledFamilies(
            {
                "cluster": config.rocket_mq_cluster_name,
                "node_type": "proxy",
                "node_id": config.proxy_name or proxy.address,
                "proxy_mode": config.proxy_mode.lower(),
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


def code_name(code: int) -> str:
    return v2.Code.Name(code) if code in v2.Code.values() else str(code)

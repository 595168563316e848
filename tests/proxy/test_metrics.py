"""What the metrics page of a broker shows of the proxy in its process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from proxy_client import SETTINGS, Clients, message

from arrowmq.client.admin import Admin
from arrowmq.server import Node, build_node


@pytest.fixture
async def metered(tmp_path: Path) -> AsyncIterator[Node]:
    settings = {**SETTINGS, "metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    node = build_node(tmp_path, settings, namesrv_port=0, broker_port=0, proxy_port=0)
    await node.start()
    try:
        async with Admin(node.namesrv_address) as admin:
            await admin.create_topic("normal", queues=1)
            await admin.create_group("group")
        yield node
    finally:
        await node.stop()


async def test_calls_and_clients_are_counted(metered: Node) -> None:
    assert metered.proxy is not None
    assert metered.metrics is not None
    clients = Clients(f"127.0.0.1:{metered.proxy.port}")
    client = clients.new()
    await client.consumes("group", "normal")
    for _ in range(3):  # by the general path, and then by the fast one
        await client.send(message("normal"))
    await client.send(message("nowhere"))
    found = await client.receive_all("group", "normal", 3)
    await client.ack("group", "normal", found[0])
    samples = {
        (sample.name, *(sample.labels.get(name) for name in ("method", "language", "code"))): sample.value
        for family in text_string_to_metric_families(metered.metrics.text().decode())
        for sample in family.samples
        if "proxy" in sample.name
    }
    assert 1 == samples["rocketmq_proxy_up", None, None, None]
    assert 1 == samples["arrowmq_proxy_connections", None, None, None]
    assert 1 == samples["arrowmq_proxy_clients", None, "python", None]
    assert 3 == samples["arrowmq_proxy_calls_total", "SendMessage", None, "OK"]
    assert 1 == samples["arrowmq_proxy_calls_total", "SendMessage", None, "TOPIC_NOT_FOUND"]
    assert 1 == samples["arrowmq_proxy_calls_total", "AckMessage", None, "OK"]
    await clients.close()

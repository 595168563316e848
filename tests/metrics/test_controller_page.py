"""The metrics page of a controller, with a broker under it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from arrowmq.server import Node, build_node
from arrowmq.testing.broker import RoomyDisk
from waiting import until

CONTROLLER = {"bindAddress": "127.0.0.1", "metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
BROKER = {
    "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "brokerName": "broker-a", "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(1 << 20), "brokerHeartbeatInterval": "200",
}  # fmt: skip


async def read(node: Node) -> dict[str, float]:
    """Samples by name and the labels that tell them apart."""
    assert node.controller_metrics is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.controller_metrics.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK"), head
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            assert {"address", "group", "peer_id"} <= sample.labels.keys()
            words = [
                value for name, value in sorted(sample.labels.items()) if name not in ("address", "group", "peer_id")
            ]
            found[" ".join([sample.name, *words])] = sample.value
    return found


async def test_a_controller_shows_who_leads_who_lives_and_what_it_decided(tmp_path: Path) -> None:
    above = build_node(tmp_path / "above", CONTROLLER, namesrv_port=0, controller_port=0)
    await above.start()
    assert above.controller is not None
    settings = {**BROKER, "namesrvAddr": above.namesrv_address, "controllerAddr": above.controller.address}
    broker = build_node(tmp_path / "broker", settings, broker_port=0, disk=RoomyDisk())
    try:
        await broker.start()
        assert broker.broker is not None
        await until(lambda: broker.broker is not None and broker.broker.role.is_master)
        found = await read(above)
        assert 3 == found["role"]
        assert 1 == found["active_broker_num broker-a DefaultCluster"]
        assert 1 == found["election_total new_master_elected"]
        assert 1 == found["request_total success CONTROLLER_REGISTER_BROKER"]
        shown = {"has_master": 1, "epoch": 1, "replicas": 1, "in_sync": 1}
        assert shown == {name: found[f"arrowmq_set_{name} broker-a DefaultCluster"] for name in shown}
    finally:
        await broker.stop()
        await above.stop()

"""A proxy in one broker's process serves queues of the cluster's other brokers as well, where Apache's says no."""

from __future__ import annotations

from pathlib import Path

from proxy_client import SETTINGS, Clients, message

from arrowmq.client.admin import Admin
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.server import build_node


async def test_messages_of_another_broker_go_and_come_through_the_local_proxy(tmp_path: Path) -> None:
    first = build_node(tmp_path / "a", SETTINGS, namesrv_port=0, broker_port=0, proxy_port=0)
    await first.start()
    second = None
    clients = None
    try:
        assert first.proxy is not None
        assert first.broker is not None
        settings = {**SETTINGS, "brokerName": "broker-b", "namesrvAddr": first.namesrv_address}
        second = build_node(tmp_path / "b", settings, broker_port=0)
        await second.start()
        assert second.broker is not None
        async with Admin(first.namesrv_address) as admin:
            await admin.create_topic("normal", queues=1)
            await admin.create_group("group")
        clients = Clients(f"127.0.0.1:{first.proxy.port}")
        client = clients.new()
        names = {queue.broker.name for queue in (await client.route("normal")).message_queues}
        assert {"broker-a", "broker-b"} == names
        await client.produces("normal")
        for _ in range(6):
            assert v2.OK == (await client.send(message("normal"))).status.code
        brokers = {"broker-a": first.broker, "broker-b": second.broker}
        stored = {name: broker.store.max_offset("normal", 0) for name, broker in brokers.items()}
        assert {"broker-a": 3, "broker-b": 3} == stored

        await client.consumes("group", "normal")
        request = client.receive_request("group", "normal")
        request.message_queue.broker.name = "broker-b"
        answers = await client.stream(request)
        found = [answer.message for answer in answers if answer.HasField("message")]
        assert 3 == len(found)
        changed = await client.change("group", "normal", found[0], 30_000)
        assert v2.OK == changed.status.code
        found[0].system_properties.receipt_handle = changed.receipt_handle
        assert [v2.OK] * 3 == [entry.status.code for entry in (await client.ack("group", "normal", *found)).entries]
    finally:
        if clients is not None:
            await clients.close()
        if second is not None:
            await second.stop()
        await first.stop()

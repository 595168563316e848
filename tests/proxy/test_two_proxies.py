"""Two proxies before one broker: what began at one is settled at the other, whatever became of the first."""

from __future__ import annotations

from pathlib import Path

from proxy_client import SETTINGS, Clients, message

from arrowmq.client.admin import Admin
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.server import Node, build_node, build_proxy_node


async def started_proxy(namesrv: str) -> tuple[Node, Clients]:
    node = build_proxy_node({**SETTINGS, "grpcServerPort": "0", "remotingListenPort": "0", "namesrvAddr": namesrv})
    await node.start()
    assert node.proxy is not None
    return node, Clients(f"127.0.0.1:{node.proxy.port}")


async def test_an_ack_and_an_outcome_are_taken_by_another_proxy(tmp_path: Path) -> None:
    broker = build_node(tmp_path, SETTINGS, namesrv_port=0, broker_port=0)
    await broker.start()
    nodes = [broker]
    try:
        async with Admin(broker.namesrv_address) as admin:
            for topic, kind in (("normal", "NORMAL"), ("transaction", "TRANSACTION")):
                await admin.create_topic(topic, queues=1, attributes={"message.type": kind})
            await admin.create_group("group")
        first, at_first = await started_proxy(broker.namesrv_address)
        second, at_second = await started_proxy(broker.namesrv_address)
        nodes += [second]
        client = at_first.new()
        await client.produces("normal", "transaction")
        await client.consumes("group", "normal")
        await client.send(message("normal"))
        found = await client.receive_all("group", "normal", 1)
        half = await client.send(message("transaction", b"half", v2.TRANSACTION))
        await at_first.close()
        await first.stop()

        other = at_second.new()
        assert v2.OK == (await other.ack("group", "normal", found[0])).status.code
        end = calls.EndTransactionRequest(
            transaction_id=half.entries[0].transaction_id, resolution=v2.COMMIT, message_id=half.entries[0].message_id
        )
        end.topic.name = "transaction"
        assert v2.OK == (await other.unary("EndTransaction", end)).status.code
        assert [b"half"] == [each.body for each in await other.receive_all("group", "transaction", 1)]
        assert [] == await other.receive("group", "normal")
        await at_second.close()
    finally:
        for node in reversed(nodes):
            await node.stop()

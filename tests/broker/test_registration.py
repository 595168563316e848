"""Registration: NameServers know the broker and its topics, soon after a change, and no longer once it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.name_server import NameServer
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode


async def name_server(folder: Path, port: int = 0) -> NameServer:
    config = NamesrvConfig()
    config.bind_address = "127.0.0.1"
    config.listen_port = port
    config.kv_config_path = str(folder / "kvConfig.json")
    server = NameServer(config)
    await server.start()
    return server


async def route(node: Any, server: NameServer, topic: str) -> dict[str, Any] | None:
    from arrowmq.wire.frames import Command

    command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await node.client.remoting.invoke(f"127.0.0.1:{server.port}", command, 5)
    return dict(fastjson.loads(answer.body)) if answer.code == ResponseCode.SUCCESS else None


async def queues_in_route(node: Any, server: NameServer, topic: str) -> int:
    """How many queues the route of a topic has to write to, as soon as there is a route."""
    found: dict[str, Any] | None = None
    while found is None:
        found = await route(node, server, topic)
    return int(found["queueDatas"][0]["writeQueueNums"])


@pytest.fixture
async def servers(tmp_path: Path) -> Any:
    found = [await name_server(tmp_path / "n1"), await name_server(tmp_path / "n2")]
    yield found
    for server in found:
        await server.stop()


async def test_a_broker_is_in_every_route_when_it_has_started_and_in_none_when_it_has_stopped(
    make_node: Any, servers: list[NameServer]
) -> None:
    node = await make_node(namesrvAddr=";".join(f"127.0.0.1:{server.port}" for server in servers))
    assert node.broker.registration.is_registered
    for server in servers:
        found = await route(node, server, "TBW102")
        assert found is not None
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": node.address}
        assert found["queueDatas"][0]["perm"] == 7
    await node.broker.registration.stop()
    for server in servers:
        assert await route(node, server, "TBW102") is None


async def test_a_new_topic_is_in_the_routes_at_once(make_node: Any, servers: list[NameServer]) -> None:
    node = await make_node(namesrvAddr=";".join(f"127.0.0.1:{server.port}" for server in servers))
    await node.client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    )
    assert [1, 1] == [await queues_in_route(node, server, "orders") for server in servers]


async def test_a_topic_made_by_a_message_is_in_the_routes_when_the_sender_is_answered(
    make_node: Any, servers: list[NameServer]
) -> None:
    """A consumer started then would not ask again for half a minute."""
    node = await make_node(namesrvAddr=";".join(f"127.0.0.1:{server.port}" for server in servers))
    await node.client.send("orders")
    for server in servers:
        assert await route(node, server, "orders") is not None


async def test_the_retry_topic_of_a_new_group_is_in_the_routes_when_its_first_heartbeat_is_answered(
    make_node: Any, servers: list[NameServer]
) -> None:
    """Its client asks for that route right after the start, and then not for half a minute."""
    node = await make_node(namesrvAddr=";".join(f"127.0.0.1:{server.port}" for server in servers))
    await node.client.send("orders")
    for group in ("first", "second"):
        assert ResponseCode.SUCCESS == (await node.client.heartbeat("C", group=group, topics={"orders": "*"})).code
        for server in servers:  # looked up in its table: a question over the network would give it time
            assert f"%RETRY%{group}" in server.tables.topic_queues


async def test_a_name_server_that_was_away_is_told_everything_when_it_is_back(make_node: Any, tmp_path: Path) -> None:
    first = await name_server(tmp_path / "n1")
    port = first.port
    node = await make_node(namesrvAddr=f"127.0.0.1:{port}")
    await first.stop()
    await node.client.send("orders")
    second = await name_server(tmp_path / "n1", port)
    await node.clock.advance(31)
    assert (4, 8) == (await queues_in_route(node, second, "orders"), await queues_in_route(node, second, "TBW102"))
    await node.stop()
    await second.stop()
    await node.start()


async def test_a_name_server_that_does_not_answer_keeps_no_broker_from_starting(make_node: Any) -> None:
    node = await make_node(namesrvAddr="127.0.0.1:1")
    assert not node.broker.registration.is_registered
    assert (await node.client.send("orders")).code == ResponseCode.SUCCESS


async def test_a_broker_without_write_permission_shows_that_in_its_routes(
    make_node: Any, servers: list[NameServer]
) -> None:
    node = await make_node(namesrvAddr=f"127.0.0.1:{servers[0].port}")
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n")
    found = await route(node, servers[0], "TBW102")
    assert found is not None
    assert found["queueDatas"][0]["perm"] == 4


async def test_order_topics_follow_the_list_that_name_servers_keep(make_node: Any, servers: list[NameServer]) -> None:
    from arrowmq.wire.frames import Command

    node = await make_node(namesrvAddr=f"127.0.0.1:{servers[0].port}")
    await node.client.send("orders")
    made = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": True}
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, "topicFilterType": "SINGLE_TAG"})
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}
    await node.client.remoting.invoke(
        f"127.0.0.1:{servers[0].port}", Command.request(RequestCode.PUT_KV_CONFIG, put), 5
    )
    await node.clock.advance(31)
    await node.eventually(lambda: node.broker.topics.get("orders").order)
    assert node.broker.topics.get("made").order, "an administrator made it an ordered topic; no list takes that away"

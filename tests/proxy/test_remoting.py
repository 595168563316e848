"""Producers and consumers of the remoting protocol through a proxy before two brokers: as if there were none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from remoting_cluster import Cluster, addresses_in, route_at

import arrowmq
from arrowmq.proxy.remoting.server import RemotingProxy
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.greeting import proxy_line
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import SendMessage
from waiting import until

BOTH = {"broker-a", "broker-b"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as made:
        async with made.admin() as admin:
            await admin.create_topic("orders", queues=2)
            await admin.create_group("billing")
        yield made


@pytest.fixture
async def proxy(cluster: Cluster) -> RemotingProxy:
    return await cluster.proxy()


async def test_a_route_names_the_proxy_for_every_broker(proxy: RemotingProxy) -> None:
    route = await route_at(proxy.address, "orders")
    assert dict.fromkeys(BOTH, proxy.address) == addresses_in(route)
    assert [("broker-a", 2), ("broker-b", 2)] == sorted((q.broker_name, q.write_queue_nums) for q in route.queue_datas)


async def test_an_unknown_topic_is_told_as_the_name_server_tells_it(proxy: RemotingProxy) -> None:
    async with arrowmq.Producer(proxy.address) as producer:
        with pytest.raises(arrowmq.NoRoute):
            await producer.send("nowhere", b"x")


async def test_messages_go_to_each_broker_and_come_back_from_each(cluster: Cluster, proxy: RemotingProxy) -> None:
    sent = {b"%d" % number for number in range(40)}
    async with arrowmq.Producer(proxy.address) as producer:
        receipts = [await producer.send("orders", body) for body in sorted(sent)]
    assert BOTH == {receipt.broker_name for receipt in receipts}
    stored = {name: sum(cluster.broker(name).store.max_offset("orders", q) for q in (0, 1)) for name in BOTH}
    assert {"broker-a": 20, "broker-b": 20} == stored
    async with arrowmq.Consumer(proxy.address, group="billing", topic="orders", consume_from="first") as consumer:
        found: set[bytes] = set()
        while len(found) < 40:
            message = await asyncio.wait_for(anext(consumer), 20)
            found.add(message.body)
            await message.ack()
    assert sent == found
    async with cluster.admin() as admin:
        assert 0 == sum((await admin.lag("billing", "orders")).values())


async def test_a_batch_a_delay_and_a_recall_reach_their_broker(cluster: Cluster, proxy: RemotingProxy) -> None:
    async with cluster.admin() as admin:
        await admin.create_topic("later", queues=1)
    async with arrowmq.Producer(proxy.address) as producer:
        await producer.send_batch([arrowmq.Message("orders", body) for body in (b"one", b"two", b"three")])
        kept = await producer.send("later", b"kept", delay=2)
        taken = await producer.send("later", b"taken", delay=2)
        assert taken.recall_handle is not None
        await producer.recall("later", taken.recall_handle)
    assert kept.msg_id != taken.msg_id
    async with arrowmq.Consumer(proxy.address, group="billing", topic="later", consume_from="first") as consumer:
        message = await asyncio.wait_for(anext(consumer), 20)
        await message.ack()
        assert b"kept" == message.body
        assert [] == await consumer.receive(timeout_s=1.5)


async def test_brokers_know_a_client_of_the_proxy_and_forget_it_when_it_goes(
    cluster: Cluster, proxy: RemotingProxy
) -> None:
    async with cluster.admin() as admin:
        masters = await admin.masters()
        async with arrowmq.Consumer(proxy.address, group="billing", topic="orders"):
            for address in masters.values():
                members = await admin.consumers_at(address, "billing")
                assert members is not None
                assert 1 == len(members.connection_set)
        for address in masters.values():
            assert await admin.consumers_at(address, "billing") is None


async def test_brokers_notice_at_once_a_client_that_vanishes(cluster: Cluster, proxy: RemotingProxy) -> None:
    consumer = ConsumerData(
        group_name="billing", subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")]
    )
    beat = Command.request(
        RequestCode.HEART_BEAT, None, fastjson.dumps(HeartbeatData(client_id="me", consumer_data_set=[consumer]))
    )
    remoting = RemotingClient()
    async with cluster.admin() as admin:
        masters = await admin.masters()

        async def known() -> list[bool]:
            return [await admin.consumers_at(address, "billing") is not None for address in masters.values()]

        connection = await remoting.dial(proxy.address)
        assert 0 == (await connection.request(beat, 5.0)).code
        assert [True, True] == await known()
        connection.abort()

        async def is_forgotten() -> bool:
            return [False, False] == await known()

        await until(is_forgotten, 5)
    assert [] == [upstream for link in proxy.links for upstream in link.upstreams]
    await remoting.close()


async def test_members_at_two_proxies_and_at_the_brokers_share_the_queues(
    cluster: Cluster, proxy: RemotingProxy
) -> None:
    second = await cluster.proxy()
    async with cluster.admin() as admin:
        await admin.create_topic("shared", queues=3)
    places = (proxy.address, second.address, cluster.namesrv)
    seen: list[list[bytes]] = [[], [], []]

    def handler(number: int) -> object:
        async def take(message: arrowmq.ReceivedMessage) -> None:
            seen[number].append(message.body)

        return take

    members = [
        arrowmq.PushConsumer(
            place,
            group="billing",
            topic="shared",
            handler=handler(number),
            consume_from="first",
        )
        for number, place in enumerate(places)
    ]
    async with members[0], members[1], members[2]:
        await until(lambda: [2, 2, 2] == [len(member.assignment) for member in members], 30)
        async with arrowmq.Producer(second.address) as producer:
            for number in range(60):
                await producer.send("shared", b"%d" % number)
        await until(lambda: sum(map(len, seen)) >= 60, 20)
    assert [20, 20, 20] == [len(bodies) for bodies in seen]
    assert 60 == len({body for bodies in seen for body in bodies})


async def test_order_is_locked_at_the_brokers(cluster: Cluster, proxy: RemotingProxy) -> None:
    async with cluster.admin() as admin:
        await admin.create_topic("ordered", queues=1)
    seen: list[bytes] = []

    async def take(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    options = {"group": "billing", "topic": "ordered", "consume_from": "first", "orderly": True}
    async with (
        arrowmq.PushConsumer(proxy.address, handler=take, **options),
        arrowmq.Producer(proxy.address) as producer,
    ):
        for number in range(20):
            await producer.send("ordered", b"%d" % number, queue=arrowmq.MessageQueue("ordered", "broker-a", 0))
        await until(lambda: len(seen) == 20, 20)
    assert [b"%d" % number for number in range(20)] == seen


async def test_transactions_are_decided_and_checked_at_the_broker_of_each(
    cluster: Cluster, proxy: RemotingProxy
) -> None:
    asked: list[bytes] = []

    def check(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        asked.append(message.body)
        return arrowmq.TransactionState.COMMIT

    class Lost:
        async def execute(self, message: object, transaction_id: str, argument: object) -> arrowmq.TransactionState:
            return arrowmq.TransactionState.UNKNOWN if argument is None else arrowmq.TransactionState.COMMIT

        def check(self, message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
            return check(message)

    sent = {b"%d" % number for number in range(8)}
    async with (
        arrowmq.Producer(proxy.address, group="payers", transaction_listener=Lost()) as producer,
        arrowmq.Consumer(proxy.address, group="billing", topic="orders", consume_from="first") as consumer,
    ):
        for number in range(8):
            await producer.send_in_transaction("orders", b"%d" % number, argument=None if number < 4 else "decided")
        found: set[bytes] = set()
        while len(found) < 8:
            message = await asyncio.wait_for(anext(consumer), 30)
            found.add(message.body)
            await message.ack()
    assert sent == found
    assert {b"0", b"1", b"2", b"3"} <= set(asked)


async def test_a_reply_finds_whoever_asked_at_whichever_broker_it_comes(cluster: Cluster, proxy: RemotingProxy) -> None:
    async with arrowmq.Producer(proxy.address) as asker, arrowmq.Producer(proxy.address, group="other") as replier:

        async def answer(message: arrowmq.ReceivedMessage) -> None:
            await replier.reply(message, b"re: " + message.body)

        options = {"group": "billing", "topic": "orders", "consume_from": "first"}
        async with arrowmq.PushConsumer(proxy.address, handler=answer, **options):
            replies = [await asker.request("orders", b"%d" % number, timeout_s=10) for number in range(6)]
    assert [b"re: %d" % number for number in range(6)] == [reply.body for reply in replies]


async def test_popped_messages_are_acknowledged_one_by_one_and_together(cluster: Cluster, proxy: RemotingProxy) -> None:
    async with arrowmq.Producer(proxy.address) as producer:
        for number in range(12):
            await producer.send("orders", b"%d" % number)
    found: set[bytes] = set()
    async with arrowmq.SimpleConsumer(proxy.address, group="billing", topic="orders") as consumer:
        while len(found) < 12:
            messages = await consumer.receive(max_messages=4, wait_s=5)
            found |= {message.body for message in messages}
            await asyncio.gather(*(message.ack() for message in messages))
        assert [] == await consumer.receive(max_messages=4, wait_s=0.2)
    assert 12 == len(found)


async def test_administrators_reach_a_member_behind_the_proxy(cluster: Cluster, proxy: RemotingProxy) -> None:
    """A broker's own requests to a client: what it is doing, one message to consume, a reset."""
    seen: list[bytes] = []

    async def take(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with cluster.admin() as admin, arrowmq.Producer(proxy.address) as producer:
        options = {"group": "billing", "topic": "orders", "consume_from": "first"}
        async with arrowmq.PushConsumer(proxy.address, handler=take, **options):
            receipt = await producer.send("orders", b"again", queue=arrowmq.MessageQueue("orders", "broker-a", 0))
            await until(lambda: seen == [b"again"], 20)
            client_id = (await admin.consumers("billing")).connection_set[0].client_id
            info = await admin.running_info("billing", client_id)
            assert 4 == len([queue for queue in info.mq_table if queue.topic == "orders"])
            result = await admin.consume_directly("billing", client_id, receipt.offset_msg_id)
            assert "CR_SUCCESS" == result.consume_result
            assert [b"again", b"again"] == seen
            await admin.reset_offsets("billing", "orders", 0)
            await until(lambda: seen == [b"again"] * 3, 20)


async def test_a_message_of_the_wrong_kind_is_refused_where_the_topic_says_its_kind(
    cluster: Cluster, proxy: RemotingProxy
) -> None:
    async with cluster.admin() as admin:
        await admin.create_topic("fifo", queues=1, attributes={"message.type": "FIFO"})
    async with arrowmq.Producer(proxy.address) as producer:
        with pytest.raises(arrowmq.Refused, match="the expected type is FIFO, but actual type is NORMAL"):
            await producer.send("fifo", b"x")
        await producer.send("orders", b"x", delay=1)  # a topic that says nothing takes all kinds


# --- clients that do not say which broker they mean ---------------------------------------------------------------


def unnamed_send(queue_id: int = 0) -> Command:
    header = SendMessage(producer_group="p", topic="orders", queue_id=queue_id, born_timestamp=1)
    return Command.request(RequestCode.SEND_MESSAGE, header, b"from before 5.0")


async def asked(address: str, request: Command) -> Command:
    remoting = RemotingClient()
    try:
        return await remoting.invoke(address, request, 10.0)
    finally:
        await remoting.close()


async def test_a_request_without_a_broker_is_refused_where_there_are_several(proxy: RemotingProxy) -> None:
    answer = await asked(proxy.address, unnamed_send())
    assert ResponseCode.VERSION_NOT_SUPPORTED == answer.code
    assert "remotingBrokerPorts" in (answer.remark or "")


async def test_it_is_served_where_there_is_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1) as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("orders", queues=1)
        proxy = await cluster.proxy()
        assert ResponseCode.SUCCESS == (await asked(proxy.address, unnamed_send())).code
        await cluster.start_broker("broker-b")
        await until(lambda: proxy.directory.only_broker is None, 10)
        assert ResponseCode.VERSION_NOT_SUPPORTED == (await asked(proxy.address, unnamed_send())).code


async def test_it_goes_to_the_broker_whose_port_it_came_in_by(cluster: Cluster, free_ports: list[int]) -> None:
    ports = dict(zip(("broker-a", "broker-b"), free_ports, strict=False))
    setting = ";".join(f"{name}:{port}" for name, port in ports.items())
    proxy = await cluster.proxy({"remotingBrokerPorts": setting})
    addresses = addresses_in(await route_at(proxy.address, "orders"))
    assert {name: f"127.0.0.1:{port}" for name, port in ports.items()} == addresses
    for address in (addresses["broker-b"], addresses["broker-b"], addresses["broker-a"]):
        assert ResponseCode.SUCCESS == (await asked(address, unnamed_send())).code
    stored = {name: cluster.broker(name).store.max_offset("orders", 0) for name in ports}
    assert {"broker-a": 1, "broker-b": 2} == stored


async def test_a_client_with_a_connection_to_each_port_is_one_member_at_each_broker(
    cluster: Cluster, free_ports: list[int]
) -> None:
    setting = ";".join(f"{name}:{port}" for name, port in zip(sorted(BOTH), free_ports, strict=False))
    proxy = await cluster.proxy({"remotingBrokerPorts": setting})
    seen: list[bytes] = []

    async def take(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    options = {"group": "billing", "topic": "orders", "consume_from": "first", "heartbeat_interval_s": 0.2}
    async with (
        cluster.admin() as admin,
        arrowmq.Producer(proxy.address) as producer,
        arrowmq.PushConsumer(proxy.address, handler=take, **options) as consumer,  # type: ignore[arg-type]
    ):
        await until(lambda: 4 == len(consumer.assignment), 20)
        for number in range(12):
            await producer.send("orders", b"%d" % number)
        await until(lambda: 12 == len(seen), 20)
        for address in (await admin.masters()).values():
            members = await admin.consumers_at(address, "billing")
            assert members is not None
            assert 1 == len(members.connection_set)
        assert 4 == len(consumer.assignment)


# --- addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"remotingAdvertisedAddress": "mq.example.com:9080"}, "mq.example.com:9080"),
        ({"remotingAccessAddr": "mq.example.com"}, "mq.example.com:PORT"),
        ({}, "127.0.0.1:PORT"),
    ],
)
async def test_clients_are_told_the_address_that_works_for_them(
    cluster: Cluster, settings: dict[str, str], expected: str
) -> None:
    proxy = await cluster.proxy(settings)
    told = addresses_in(await route_at(f"127.0.0.1:{proxy.port}", "orders"))
    assert {expected.replace("PORT", str(proxy.port))} == set(told.values())


async def test_behind_a_load_balancer_the_route_names_what_the_client_connected_to(proxy: RemotingProxy) -> None:
    remoting = RemotingClient()
    try:
        connection = await remoting.dial(proxy.address)
        connection.write(proxy_line(("203.0.113.9", 4711), ("203.0.113.1", 80)))
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        answer = await connection.request(request, 5.0)
    finally:
        await remoting.close()
    assert b"203.0.113.1:80" in answer.body


async def test_brokers_are_told_who_the_client_is_where_they_understand_it(cluster: Cluster) -> None:
    proxy = await cluster.proxy({"remotingProxyProtocol": "true"})
    async with cluster.admin() as admin, arrowmq.Consumer(proxy.address, group="billing", topic="orders"):
        members = (await admin.consumers("billing")).connection_set
        assert {link.client.peer_text for link in proxy.links} >= {member.client_addr for member in members}

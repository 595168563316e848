"""What remoting clients of a proxy live through: brokers that die and move, bad input, slow readers, no rights."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from remoting_cluster import PROXY, Cluster, addresses_in, route_at

import arrowmq
from arrowmq.proxy.remoting.link import UNSENT_BYTES
from arrowmq.proxy.remoting.server import RemotingProxy
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.tls.settings import OutgoingTls
from arrowmq.server import build_proxy_node
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, encode_frame
from arrowmq.wire.headers import PullMessage, SendMessage
from certificates import self_signed
from waiting import until


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


@pytest.fixture
async def remoting() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


def send_to(broker: str, body: bytes = b"x", topic: str = "orders", queue_id: int = 0) -> Command:
    header = SendMessage(producer_group="p", topic=topic, queue_id=queue_id, born_timestamp=1, bname=broker)
    return Command.request(RequestCode.SEND_MESSAGE, header, body)


async def is_serving(remoting: RemotingClient, proxy: RemotingProxy) -> bool:
    return (await remoting.invoke(proxy.address, send_to("broker-a"), 5.0)).code == ResponseCode.SUCCESS


# --- brokers ------------------------------------------------------------------------------------------------------


async def test_a_dead_broker_is_an_error_of_its_own_queues_alone(
    cluster: Cluster, proxy: RemotingProxy, remoting: RemotingClient
) -> None:
    assert ResponseCode.SUCCESS == (await remoting.invoke(proxy.address, send_to("broker-b"), 5.0)).code
    await cluster.nodes["broker-b"].stop()
    answer = await remoting.invoke(proxy.address, send_to("broker-b"), 5.0)
    assert ResponseCode.SYSTEM_ERROR == answer.code  # which makes a producer try another broker
    assert await is_serving(remoting, proxy)
    async with arrowmq.Producer(proxy.address) as producer:
        for number in range(8):
            assert "broker-a" == (await producer.send("orders", b"%d" % number)).broker_name


async def test_a_broker_that_comes_back_elsewhere_is_found(cluster: Cluster, proxy: RemotingProxy) -> None:
    seen: list[bytes] = []

    async def take(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    options = {"group": "billing", "topic": "orders", "consume_from": "first"}
    queue = arrowmq.MessageQueue("orders", "broker-b", 0)
    async with (
        arrowmq.PushConsumer(proxy.address, handler=take, **options),
        arrowmq.Producer(proxy.address) as producer,
    ):
        await producer.send("orders", b"before", queue=queue)
        await until(lambda: seen == [b"before"], 20)
        before = cluster.broker("broker-b").address.text
        await cluster.nodes["broker-b"].stop()
        assert before != (await cluster.start_broker("broker-b")).broker_address

        async def was_sent() -> bool:
            try:
                await producer.send("orders", b"after", queue=queue)
            except arrowmq.ArrowMQError:
                return False
            return True

        await until(was_sent, 20)
        await until(lambda: b"after" in seen, 30)


async def test_a_master_that_moved_is_left_although_it_still_answers(
    cluster: Cluster, proxy: RemotingProxy, remoting: RemotingClient
) -> None:
    """A controller makes another replica master: the old one stays where it is, as a slave."""
    assert await is_serving(remoting, proxy)
    upstream = next(upstream for link in proxy.links for upstream in link.upstreams)
    other = cluster.broker("broker-b").address.text
    proxy.directory._know("broker-a", {0: other})
    await until(lambda: upstream.connection.closed, 5)
    assert ResponseCode.SUCCESS == (await remoting.invoke(proxy.address, send_to("broker-a"), 5.0)).code
    assert 1 == cluster.broker("broker-b").store.max_offset("orders", 0)


async def test_a_broker_that_nobody_knows_is_said(proxy: RemotingProxy, remoting: RemotingClient) -> None:
    answer = await remoting.invoke(proxy.address, send_to("nobody"), 5.0)
    assert (ResponseCode.SYSTEM_ERROR, True) == (answer.code, "cannot find broker nobody" in (answer.remark or ""))


async def test_routes_stay_in_force_while_no_name_server_answers(cluster: Cluster, proxy: RemotingProxy) -> None:
    before = addresses_in(await route_at(proxy.address, "orders"))
    namesrv = cluster.nodes["broker-a"].namesrv
    assert namesrv is not None
    await namesrv.stop()
    assert before == addresses_in(await route_at(proxy.address, "orders"))


async def test_a_proxy_that_stops_lets_clients_go_on_at_another(cluster: Cluster) -> None:
    nodes = [build_proxy_node({**PROXY, "namesrvAddr": cluster.namesrv}) for _ in range(2)]
    for node in nodes:
        await node.start()
    fronts = [node.remoting_proxy for node in nodes]
    assert fronts[0] is not None
    assert fronts[1] is not None
    both = f"{fronts[0].address};{fronts[1].address}"
    seen: list[bytes] = []

    async def take(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    timing = {"poll_namesrv_interval_s": 0.5, "heartbeat_interval_s": 0.5}
    try:
        async with (
            arrowmq.PushConsumer(
                both,
                group="billing",
                topic="orders",
                handler=take,
                consume_from="first",
                **timing,  # type: ignore[arg-type]
            ),
            arrowmq.Producer(both, **timing) as producer,  # type: ignore[arg-type]
        ):
            await producer.send("orders", b"before")
            await until(lambda: seen == [b"before"], 20)
            await nodes[0].stop()

            async def was_sent() -> bool:
                try:
                    await producer.send("orders", b"after")
                except arrowmq.ArrowMQError:
                    return False
                return True

            await until(was_sent, 20)
            await until(lambda: b"after" in seen, 30)
    finally:
        for node in nodes:
            await node.stop()


# --- bounds -------------------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_makes_its_brokers_wait(
    cluster: Cluster, proxy: RemotingProxy, remoting: RemotingClient
) -> None:
    """40 MiB of answers are asked for and not read: they stay in the sockets and at the broker, and others go on."""
    for _ in range(10):
        assert (
            ResponseCode.SUCCESS == (await remoting.invoke(proxy.address, send_to("broker-a", bytes(400_000)), 9)).code
        )
    pull = PullMessage(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        bname="broker-a",
    )  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=1024)
    frames = [encode_frame(Command.request(RequestCode.PULL_MESSAGE, pull, opaque=number)) for number in range(100)]
    writer.write(b"".join(frames))
    await writer.drain()
    address = writer.get_extra_info("sockname")
    link = next(link for link in proxy.links if link.client.peer == address)
    await until(lambda: link._pausing is not None, 10)
    most = 0
    for _ in range(50):
        assert await is_serving(remoting, proxy)
        most = max(most, link.client.unsent_bytes)
    # What one read brought, and what was read before the pause
    assert most < UNSENT_BYTES + 2 * 1024 * 1024
    received = 0
    while received < 100 * 400_000:
        part = await asyncio.wait_for(reader.read(1 << 20), 20)
        assert part
        received += len(part)
    await until(lambda: link._pausing is None, 10)
    writer.close()


async def test_what_is_no_request_harms_its_sender_alone(
    proxy: RemotingProxy, remoting: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(20261117)
    codes = [*proxy.handlers, 1, 99999]
    for _ in range(300):
        code = chance.choice(codes)
        ext = {
            chance.choice(
                ["bname", "n", "topic", "b", "i", "queueId", "sysFlag", "consumerGroup", "recallHandle"]
            ): chance.choice(["", "broker-a", "x" * 300, "-1", "\x00", "9" * 40, "NaN"])
            for _ in range(chance.randrange(5))
        }
        body = chance.choice([b"", b"{", b"[]", b'{"mqSet":[{}]}', b'{"clientID":1}', chance.randbytes(40)])
        answer = await remoting.invoke(proxy.address, Command.request(code, ext, body), 9.0)
        assert answer.is_response
    for garbage in (b"\x00\x00\x00\x04\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, bytes(64)):
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(garbage)
        await writer.drain()
        writer.close()
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]
    assert await is_serving(remoting, proxy)


async def test_what_a_proxy_does_not_serve_is_refused_by_name(proxy: RemotingProxy, remoting: RemotingClient) -> None:
    answer = await remoting.invoke(proxy.address, Command.request(RequestCode.UPDATE_BROKER_CONFIG), 5.0)
    assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED == answer.code
    assert "UPDATE_BROKER_CONFIG is not served by this proxy" in (answer.remark or "")


# --- TLS and users ------------------------------------------------------------------------------------------------


async def test_tls_and_plain_clients_share_the_port(cluster: Cluster, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    proxy = await cluster.proxy({"tlsCertPath": str(certificate), "tlsKeyPath": str(certificate.with_name("key.pem"))})
    context: OutgoingTls = ssl.create_default_context(cafile=str(certificate))
    for tls in (context, None):
        async with arrowmq.Producer(proxy.address, tls=tls) as producer:
            await producer.send("orders", b"x")


async def test_the_way_to_brokers_is_encrypted_where_they_ask_for_it(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    server = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(certificate.with_name("key.pem"))}
    async with Cluster(tmp_path, 1, **server, **{"tls.server.mode": "enforcing", "tls.enable": "true"}) as cluster:
        async with cluster.admin(tls=_trusting()) as admin:  # type: ignore[arg-type]
            await admin.create_topic("orders", queues=1)
        proxy = await cluster.proxy({"tls.enable": "true"})
        async with arrowmq.Producer(proxy.address) as producer:
            await producer.send("orders", b"x")
    assert all(upstream.connection.closed for link in proxy.links for upstream in link.upstreams)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


@pytest.mark.parametrize("is_checking", [True, False], ids=["proxy checks", "brokers check alone"])
async def test_a_client_is_its_own_user_at_the_brokers(tmp_path: Path, is_checking: bool) -> None:
    """The signature goes on as it is: a proxy with credentials of its own that does not check lends them to nobody."""
    async with Cluster(tmp_path, 1, **USERS) as cluster:
        async with cluster.admin(credentials=("root", "root-secret")) as admin:
            for topic in ("orders", "secrets"):
                await admin.create_topic(topic, queues=1)
            await admin.create_group("billing")
            broker = cluster.broker("broker-a").address.text
            await admin.create_user(broker, "alice", "alice-secret")
            await admin.give_rights(broker, "alice", ["Topic:orders", "Group:billing"], ["Pub", "Sub"])
        inner = {"innerClientAuthenticationCredentials": USERS["innerClientAuthenticationCredentials"]}
        proxy = await cluster.proxy(USERS if is_checking else inner)
        alice = ("alice", "alice-secret")
        async with (
            arrowmq.Producer(proxy.address, credentials=alice, retries=0) as producer,
            arrowmq.Consumer(
                proxy.address, group="billing", topic="orders", consume_from="first", credentials=alice
            ) as consumer,
        ):
            await producer.send("orders", b"signed")
            message = await asyncio.wait_for(anext(consumer), 20)
            assert b"signed" == message.body
            await message.ack()
            with pytest.raises(arrowmq.ArrowMQError, match="has no permission"):
                await producer.send("secrets", b"x")
        remoting = RemotingClient()
        try:
            unsigned = await remoting.invoke(proxy.address, send_to("broker-a"), 5.0)
        finally:
            await remoting.close()
        assert ResponseCode.NO_PERMISSION == unsigned.code
        with pytest.raises(arrowmq.ArrowMQError, match="check signature failed"):
            async with arrowmq.Producer(proxy.address, credentials=("alice", "a guess"), retries=0) as stranger:
                await stranger.send("orders", b"x")
        assert 1 == cluster.broker("broker-a").store.max_offset("orders", 0)


# --- metrics ------------------------------------------------------------------------------------------------------


async def test_the_metrics_page_of_a_proxy_tells_of_both_kinds_of_clients(cluster: Cluster) -> None:
    settings = {**PROXY, "namesrvAddr": cluster.namesrv, "proxyName": "front", "metricsLabel": "room:7"}
    node = build_proxy_node({**settings, "metricsExporterType": "PROM", "metricsPromExporterPort": "0"})
    await node.start()
    try:
        assert node.metrics is not None
        assert node.remoting_proxy is not None
        async with (
            arrowmq.Producer(node.remoting_proxy.address) as producer,
            arrowmq.Consumer(node.remoting_proxy.address, group="billing", topic="orders"),
        ):
            await producer.send("orders", b"x", queue=arrowmq.MessageQueue("orders", "broker-a", 0))
            reader, writer = await asyncio.open_connection("127.0.0.1", node.metrics.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            page = (await reader.read()).decode()
            writer.close()
    finally:
        await node.stop()
    own = 'cluster="DefaultCluster",node_id="front",node_type="proxy",proxy_mode="cluster",room="7"'
    lines = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in page.splitlines()}
    assert "1.0" == lines[f"rocketmq_proxy_up{{{own}}}"]
    assert "2.0" == lines[f'arrowmq_proxy_broker_connections{{broker="broker-a",{own}}}']
    sends = [
        name for name in lines if name.startswith("arrowmq_proxy_remoting_requests_total") and "send_message_v2" in name
    ]
    assert ["1.0"] == [lines[name] for name in sends]
    kinds = {name for name in lines if name.startswith("arrowmq_proxy_remoting_clients{")}
    assert {"consumer", "producer"} == {name.partition('kind="')[2].partition('"')[0] for name in kinds}

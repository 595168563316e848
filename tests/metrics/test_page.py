"""The metrics page, read as Prometheus reads it, from a broker that did real work."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rules import acl

from arrowmq.auth.users import User
from arrowmq.metrics.label_values import labels_of
from arrowmq.remoting.client import RemotingClient
from arrowmq.server import Node, build_node
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.releases import version_name

SETTINGS = {
    "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "brokerName": "broker-a", "metricsExporterType": "PROM",
    "metricsPromExporterPort": "0", "mappedFileSizeCommitLog": str(1 << 20),
}  # fmt: skip


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = build_node(tmp_path, SETTINGS, namesrv_port=0, broker_port=0)
    await node.start()
    yield node
    await node.stop()


async def get(node: Node, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n") -> tuple[bytes, str]:
    assert node.metrics is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.metrics.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body.decode()


async def samples(node: Node) -> dict[tuple[str, str, str, str], float]:
    """Sample name, topic, group and queue id → value."""
    _, text = await get(node)
    return {
        (each.name, *(each.labels.get(label, "") for label in ("topic", "consumer_group", "queue_id"))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


async def send(client: RemotingClient, address: str, queue_id: int) -> None:
    ext = {
        "a": "P", "b": "Orders", "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1", "h": "0",
        "i": "UNIQ_KEY\x01A1\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    answer = await client.invoke(address, Command.request(RequestCode.SEND_MESSAGE_V2, ext, b"body"), 5)
    assert answer.code == 0, answer.remark


async def commit(client: RemotingClient, address: str, queue_id: int, offset: int) -> None:
    pull = {
        "consumerGroup": "billing", "topic": "Orders", "queueId": str(queue_id), "queueOffset": "0", "maxMsgNums": "2",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    assert (await client.invoke(address, Command.request(RequestCode.PULL_MESSAGE, pull), 5)).code == 0
    ext = {"consumerGroup": "billing", "topic": "Orders", "queueId": str(queue_id), "commitOffset": str(offset)}
    answer = await client.invoke(address, Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext), 5)
    assert answer.code == 0, answer.remark


async def test_the_page_parses_as_prometheus_parses_and_says_whose_it_is(node: Node) -> None:
    """Every metric names the cluster and the broker, as Apache's do."""
    head, text = await get(node)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert head.startswith(b"HTTP/1.1 200 OK")
    permission = families["rocketmq_broker_permission"].samples[0]
    assert permission.labels == {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


async def test_lag_is_what_a_group_really_lags(node: Node) -> None:
    """Ten messages in two queues; the group has consumed one of a queue and pulled two of each."""
    client = RemotingClient()
    try:
        for number in range(10):
            await send(client, node.broker_address, number % 2)
        await commit(client, node.broker_address, 0, 1)
        await commit(client, node.broker_address, 1, 0)
    finally:
        await client.close()
    found = await samples(node)
    assert found["arrowmq_queue_lag_messages", "Orders", "billing", "0"] == 4
    assert found["arrowmq_queue_lag_messages", "Orders", "billing", "1"] == 5
    assert found["rocketmq_consumer_lag_messages", "Orders", "billing", ""] == 9
    assert found["rocketmq_consumer_inflight_messages", "Orders", "billing", ""] == 3
    assert found["rocketmq_consumer_ready_messages", "Orders", "billing", ""] == 6
    assert found["rocketmq_consumer_lag_latency", "Orders", "billing", ""] >= 0
    assert found["rocketmq_messages_in_total", "Orders", "", ""] == 10
    assert found["rocketmq_messages_out_total", "Orders", "billing", ""] == 4


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", b"404"),
        (b"\r\n\r\n", b"405"),
    ],
)
async def test_anything_but_the_page_is_refused(node: Node, request_bytes: bytes, status: bytes) -> None:
    """The page serves one address and nothing else."""
    head, _ = await get(node, request_bytes)
    assert head.split(b" ")[1] == status


async def test_a_figure_that_cannot_be_told_is_an_answer_and_a_line_in_the_log(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prometheus marks the scrape as failed; the connection does not just end, and the broker goes on."""
    assert node.metrics is not None
    monkeypatch.setattr(node.metrics.broker.stats, "gather", lambda: 1 // 0)
    head, body = await get(node)
    assert (head.split(b" ")[1], "ZeroDivisionError" in body) == (b"500", True)
    assert "the metrics cannot be gathered" in caplog.text
    monkeypatch.undo()
    assert (await get(node))[0].split(b" ")[1] == b"200"


async def test_labels_of_the_operators_choice_are_on_every_sample(tmp_path: Path) -> None:
    """metricsLabel, as Apache reads it; the names that every metric has cannot be taken."""
    labels = {"metricsLabel": "zone:eu-1, rack:7,broken,cluster:mine"}
    node = build_node(tmp_path, {**SETTINGS, **labels}, namesrv_port=0, broker_port=0)
    await node.start()
    try:
        _, text = await get(node)
    finally:
        await node.stop()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert samples
    for sample in samples:
        assert ("eu-1", "7", "DefaultCluster") == tuple(sample.labels[name] for name in ("zone", "rack", "cluster"))
    assert labels_of("a b:1,2c:3,ok:4") == {"ok": "4"}


async def test_a_taken_port_gives_way_to_the_next(node: Node, tmp_path: Path) -> None:
    """Several brokers on one machine have a page each, whatever the setting says for all of them."""
    assert node.metrics is not None
    settings = {**SETTINGS, "brokerName": "broker-b", "metricsPromExporterPort": str(node.metrics.port)}
    second = build_node(tmp_path / "second", settings, namesrv_port=0, broker_port=0)
    await second.start()
    try:
        assert second.metrics is not None
        assert second.metrics.port > node.metrics.port
        head, _ = await get(second)
        assert head.startswith(b"HTTP/1.1 200 OK")
    finally:
        await second.stop()


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (513, "v5_5_0"),
        (479, "v5_3_3"),
        (413, "v5_0_0"),
        (412, "v5_0_0_snapshot"),
        (401, "v4_9_4"),
        (317, "v4_5_2"),
        (121, "v121"),
    ],
)
def test_a_release_is_named_as_rocketmq_labels_it(ordinal: int, name: str) -> None:
    """Ordinals recorded from real clients."""
    assert name == version_name(ordinal)


async def test_a_page_that_asks_who_reads_it_is_for_users_with_a_right_to_look(tmp_path: Path) -> None:
    first = json.dumps({"username": "root", "password": "the-secret-of-root"})
    settings = {**SETTINGS, "metricsAuthenticationEnabled": "true", "initAuthenticationUser": first}
    node = build_node(tmp_path, settings, namesrv_port=0, broker_port=0)
    await node.start()
    assert node.broker is not None
    node.broker.guard.book.change_now(
        lambda accounts: accounts.with_new_user(User("ann", "a")).with_new_user(User("bob", "b"))
        .with_acl(acl(("Cluster:DefaultCluster", "Get", "Allow"), user="bob"))
    )  # fmt: skip

    async def status(given: str | None) -> bytes:
        line = "" if given is None else f"Authorization: Basic {base64.b64encode(given.encode()).decode()}\r\n"
        head, body = await get(node, f"GET /metrics HTTP/1.1\r\n{line}\r\n".encode())
        assert ("rocketmq_" in body) == (b" 200 " in head)
        return head.split()[1]

    assert [b"200", b"200"] == [await status("root:the-secret-of-root"), await status("bob:b")]
    for wrong in (None, "", "root", "root:", "root:wrong", "ann:a", "nobody:x", ":"):
        assert b"401" == await status(wrong), wrong
    head, _ = await get(node, b"GET /metrics HTTP/1.1\r\nAuthorization: Basic \xff\r\n\r\n")
    assert b"401" in head
    await node.stop()

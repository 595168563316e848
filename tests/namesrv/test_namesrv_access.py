"""A NameServer that is told to check who asks, and what they may; Apache's cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from callers import Caller

from arrowmq import ArrowMQError, Producer
from arrowmq.config import ConfigError
from arrowmq.server import Node, build_node
from arrowmq.wire.codes import RequestCode, ResponseCode

ROOT, INNER = ("root", "the-secret-of-root"), ("inner", "the-secret-of-brokers")
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "namesrvAuthenticationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}
NO, OK = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS


async def started(folder: Path, **more: str) -> Node:
    node = build_node(folder, {**SETTINGS, **more}, namesrv_port=0, broker_port=0)
    await node.start()  # the broker is in the route: its registration was signed
    return node


async def test_only_who_may_is_told_where_brokers_are(tmp_path: Path) -> None:
    node = await started(tmp_path)
    address = node.namesrv_address
    root, ann, nobody = Caller(address, *ROOT), Caller(address, "ann", "a"), Caller(address)
    assert OK == (await root.create_user("ann", "a")).code
    for code in sorted(node.namesrv.handlers):  # type: ignore[union-attr]
        for caller in (nobody, Caller(address, "root", "wrong"), ann):
            answer = await caller.ask(code, {"topic": "orders", "clusterName": "DefaultCluster"})
            assert (NO, b"") == (answer.code, answer.body), RequestCode(code).name
            if caller not in (nobody, ann):
                await caller.remoting.close()
    assert OK == (await root.give("ann", "Topic:TBW102", "Pub")).code
    assert OK == (await ann.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).code
    assert NO == (await ann.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code
    assert OK == (await root.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code
    assert 0o600 == (tmp_path / "namesrv" / "accounts.json").stat().st_mode & 0o777
    for caller in (root, ann, nobody):
        await caller.remoting.close()
    await node.stop()


async def test_clients_with_credentials_work_and_others_learn_why_not(tmp_path: Path) -> None:
    node = await started(tmp_path, authenticationEnabled="true")
    async with Producer(node.namesrv_address, credentials=ROOT) as producer:
        await producer.send("orders", b"x")
    with pytest.raises(ArrowMQError, match="username cannot be null"):
        async with Producer(node.namesrv_address, retries=0, start_timeout_s=1) as producer:
            await producer.send("orders", b"x")
    await node.stop()


async def test_settings_of_a_namesrv_show_no_secret(tmp_path: Path) -> None:
    node = await started(tmp_path)
    root = Caller(node.namesrv_address, *ROOT)
    shown = (await root.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert ROOT[1] not in shown
    assert INNER[1] not in shown
    await root.remoting.close()
    await node.stop()


def test_a_setting_that_cannot_be_meant_keeps_it_from_starting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        build_node(tmp_path, {**SETTINGS, "initAuthenticationUser": "x"}, namesrv_port=0)

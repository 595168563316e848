"""Goal: a node starts in order, serves on its ports, and stops with everything persisted."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from pathlib import Path

import pytest
from oracle.ports import broker_port

from arrowmq.broker.ports import MAIN_PORT_ONLY
from arrowmq.config import ConfigError
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import ConnectFailed, ConnectionLost
from arrowmq.remoting.server import ListenFailed
from arrowmq.remoting.tls.settings import client_tls
from arrowmq.server import Component, Node, Part, build_node
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, encode_frame
from certificates import self_signed

LOCAL = {"bindAddress": "127.0.0.1", "brokerName": "broker-a", "mappedFileSizeCommitLog": "1048576"}


async def ask(address: str, code: int, ext: dict[str, str] | None = None) -> Command:
    client = RemotingClient()
    try:
        return await client.invoke(address, Command.request(code, ext), 5)
    finally:
        await client.close()


async def test_a_started_node_is_in_its_own_route(tmp_path: Path) -> None:
    node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=0)
    await node.start()
    try:
        answer = await ask(node.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        (broker,) = json.loads(answer.body)["brokerDatas"]
        assert (broker["brokerName"], broker["brokerAddrs"]) == ("broker-a", {"0": node.broker_address})
        assert (await ask(node.broker_address, RequestCode.GET_BROKER_CONFIG)).code == 0
    finally:
        await node.stop()


async def test_a_stopped_node_has_left_its_ports_and_kept_its_tables(tmp_path: Path) -> None:
    node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=0)
    await node.start()
    addresses = [node.namesrv_address, node.broker_address]
    await node.stop()
    for address in addresses:
        with pytest.raises(ConnectFailed):
            await ask(address, RequestCode.GET_BROKER_CONFIG)
    assert "TBW102" in json.loads((tmp_path / "config" / "topics.json").read_bytes())["topicConfigTable"]
    await node.stop()  # a second time is no harm


async def test_the_vip_port_serves_all_but_pulls(tmp_path: Path) -> None:
    port = broker_port()
    node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=port)
    await node.start()
    try:
        vip = f"127.0.0.1:{port - 2}"
        assert (await ask(vip, RequestCode.GET_BROKER_CONFIG)).code == 0
        for code in MAIN_PORT_ONLY:
            answer = await ask(vip, code)
            assert (answer.code, answer.remark.split(":")[0]) == (
                3, f"request type {int(code)} {code.name} is not served by this broker",
            )  # fmt: skip
        assert "ask at the main one" in (await ask(vip, RequestCode.PULL_MESSAGE)).remark
        assert (await ask(node.broker_address, RequestCode.PULL_MESSAGE)).code != 3
    finally:
        await node.stop()


async def test_a_taken_vip_port_is_no_reason_not_to_start(tmp_path: Path) -> None:
    port = broker_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port - 2))
        other.listen()
        node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=port)
        await node.start()
        try:
            assert (await ask(node.broker_address, RequestCode.GET_BROKER_CONFIG)).code == 0
        finally:
            await node.stop()


async def test_a_taken_port_is_named_and_what_had_started_is_stopped(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=port)
        with pytest.raises(ListenFailed, match=f"127.0.0.1:{port}: another program uses this port"):
            await node.start()
    again = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=0)
    await again.start()  # the store is not locked any more
    await again.stop()


async def test_a_broker_waits_for_a_nameserver_that_comes_later(tmp_path: Path) -> None:
    port = broker_port()
    broker = build_node(tmp_path / "b", {**LOCAL, "namesrvAddr": f"127.0.0.1:{port}"}, broker_port=0)
    starting = asyncio.ensure_future(broker.start())
    await asyncio.wait({starting}, timeout=0.2)
    assert not starting.done()
    namesrv = build_node(tmp_path / "n", LOCAL, namesrv_port=port)
    await namesrv.start()
    await starting
    answer = await ask(namesrv.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert answer.code == 0
    await broker.stop()
    answer = await ask(namesrv.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert "stopped and unregistered" in (answer.remark or "")
    await namesrv.stop()


async def test_one_broker_registers_with_several_nameservers(tmp_path: Path) -> None:
    first, second = (build_node(tmp_path / name, LOCAL, namesrv_port=0) for name in "ab")
    await first.start()
    await second.start()
    addresses = f"{first.namesrv_address};{second.namesrv_address}"
    broker = build_node(tmp_path / "c", {**LOCAL, "namesrvAddr": addresses}, broker_port=0)
    await broker.start()
    for namesrv in (first, second):
        answer = await ask(namesrv.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert answer.code == 0
    for node in (broker, first, second):
        await node.stop()


def test_a_node_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none was asked for"):
        build_node(tmp_path)


class Noted:
    """A component that notes what is done with it, and fails where it is told to."""

    def __init__(self, name: str, seen: list[str], fails_to: str = "") -> None:
        self.name = name
        self.seen = seen
        self.fails_to = fails_to

    async def start(self) -> None:
        self._note("start")

    async def stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        self.seen.append(f"{what} {self.name}")
        if what == self.fails_to:
            raise OSError(f"{self.name} cannot {what}")


def parts_of(*components: Component) -> list[Part]:
    return [lambda node, component=component: component for component in components]  # type: ignore[misc]


async def test_components_start_in_order_and_stop_in_the_reverse() -> None:
    seen: list[str] = []
    node = Node([*parts_of(Noted("a", seen), Noted("b", seen)), lambda node: None, *parts_of(Noted("c", seen))])
    await node.start()
    await node.stop()
    assert seen == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]
    await node.stop()
    assert len(seen) == 6


async def test_a_start_that_fails_stops_what_had_started_and_nothing_else() -> None:
    seen: list[str] = []
    node = Node(parts_of(Noted("a", seen), Noted("b", seen, "stop"), Noted("c", seen, "start"), Noted("d", seen)))
    with pytest.raises(OSError, match="c cannot start"):
        await node.start()
    assert seen == ["start a", "start b", "start c", "stop b", "stop a"]


async def test_a_component_that_fails_to_stop_does_not_keep_the_others_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    node = Node(parts_of(Noted("a", seen), Noted("b", seen, "stop"), Noted("c", seen)))
    await node.start()
    with pytest.raises(OSError, match="b cannot stop"):
        await node.stop()
    assert seen[3:] == ["stop c", "stop b", "stop a"]
    assert [record.message for record in caplog.records] == ["the b did not stop in good order"]


async def test_a_part_is_made_when_those_before_it_have_started(tmp_path: Path) -> None:
    """So that a broker can be told the port that its node's NameServer got."""
    seen: list[str] = []

    def second(node: Node) -> Component:
        seen.append("make b")
        return Noted("b", seen)

    node = Node([*parts_of(Noted("a", seen)), second])
    await node.start()
    assert seen == ["start a", "make b", "start b"]
    await node.stop()


async def test_a_broker_without_a_nameserver_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="give it one with -n"):
        await build_node(tmp_path, LOCAL, broker_port=0).start()


async def test_bad_input_on_every_port_is_not_noticed_by_others(tmp_path: Path) -> None:
    """Random bytes, half frames, huge lengths and unknown codes on all three ports, while a client goes on asking."""
    port = broker_port()
    node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=port)
    await node.start()
    client = RemotingClient()
    dice = random.Random(4)
    good = encode_frame(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}))
    codes = sorted(int(code) for code in RequestCode)
    addresses = [node.namesrv_address, node.broker_address, f"127.0.0.1:{port - 2}"]
    try:
        for number in range(300):
            host, _, text = addresses[number % 3].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(text))
            kind = number % 5
            if kind == 0:
                writer.write(dice.randbytes(dice.randrange(1, 300)))
            elif kind == 1:
                writer.write(good[: dice.randrange(1, len(good))])
            elif kind == 2:
                writer.write(b"\x7f\xff\xff\xff" + dice.randbytes(20))
            elif kind == 3:
                damaged = bytearray(good)
                damaged[dice.randrange(4, len(good))] = dice.randrange(256)
                writer.write(bytes(damaged))
            else:  # every code, with fields and a body that make no sense for it
                fields = {"topic": "\u0000", "queueId": "many", "brokerId": "-1", "namespace": "x" * 300}
                writer.write(encode_frame(Command.request(dice.choice(codes), fields, dice.randbytes(40), oneway=True)))
            writer.close()
            if number % 10 == 0:
                for address in addresses[:1]:
                    ask_route = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                    assert (await client.invoke(address, ask_route, 10)).code == 0
                assert (await client.invoke(addresses[1], Command.request(RequestCode.GET_BROKER_CONFIG), 10)).code == 0
    finally:
        await client.close()
        await node.stop()


async def test_every_code_with_senseless_fields_gets_an_answer(tmp_path: Path) -> None:
    """No request may be left without an answer, whatever is in it (those that wait for messages excepted)."""
    node = build_node(tmp_path, LOCAL, namesrv_port=0, broker_port=0)
    await node.start()
    client = RemotingClient()
    waits = {RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    try:
        for address in (node.namesrv_address, node.broker_address):
            for code in set(RequestCode) - waits:
                for fields, body in (({}, b""), ({"topic": "", "group": "%", "brokerName": "x"}, b"{]")):
                    answer = await client.invoke(address, Command.request(code, fields, body), 10)
                    assert answer.code == 0 or answer.remark, f"{code.name}: code {answer.code} without a remark"
    finally:
        await client.close()
        await node.stop()


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    certificate = self_signed(tmp_path)
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(certificate.with_name("key.pem")),
    }


async def test_a_node_that_insists_on_tls_registers_and_serves_over_it(tmp_path: Path, tls: dict[str, str]) -> None:
    node = build_node(tmp_path / "data", {**LOCAL, **tls}, namesrv_port=0, broker_port=0)
    await node.start()
    encrypted = RemotingClient(tls=client_tls({"tls.enable": "true"}))
    try:
        route = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert (await encrypted.invoke(node.namesrv_address, route, 10)).code == 0
        assert (
            await encrypted.invoke(node.broker_address, Command.request(RequestCode.GET_BROKER_CONFIG), 10)
        ).code == 0
        with pytest.raises(ConnectionLost):
            await ask(node.broker_address, RequestCode.GET_BROKER_CONFIG)
    finally:
        await encrypted.close()
        await node.stop()


def test_settings_without_effect_are_named_once_and_those_with_one_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = {"flushDiskType": "SYNC_FLUSH", "orderMessageEnable": "true", "autoCreateTopicEnable": "true"}
    settings = {**LOCAL, **known, "tls.server.mode": "permissive", "useEpollNativeSelector": "true", "misspeltKey": "1"}
    with caplog.at_level("INFO", logger="arrowmq.server"):
        build_node(tmp_path, settings, namesrv_port=0, broker_port=0)
    assert [record.message for record in caplog.records] == [
        "settings without effect here: misspeltKey, useEpollNativeSelector"
    ]


@pytest.mark.parametrize("key", ["clusterTest"])
def test_a_part_that_does_not_exist_is_refused_rather_than_left_out_in_silence(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=true"):
        build_node(tmp_path, {key: "true"}, namesrv_port=0)

"""Goal: a broker listens where it is set to, for as long as it runs, and a start that fails leaves nothing behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from in_process import SMALL_FILES
from oracle.ports import broker_port

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.broker.ports import MAIN_PORT_ONLY, BrokerPorts
from arrowmq.clock import SystemClock
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import ConnectFailed
from arrowmq.remoting.server import ListenFailed
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command


def broker_at(root: Path, port: int) -> Broker:
    settings = {**SMALL_FILES, "bindAddress": "127.0.0.1", "listenPort": str(port)}
    clock = SystemClock()
    return Broker(BrokerConfig.from_properties(settings), root, clock, ports=BrokerPorts(clock))


async def code_of(port: int, code: int) -> int:
    client = RemotingClient()
    try:
        return (await client.invoke(f"127.0.0.1:{port}", Command.request(code), 10)).code
    finally:
        await client.close()


async def test_a_broker_is_reached_on_both_ports_until_it_stops(tmp_path: Path) -> None:
    port = broker_port()
    broker = broker_at(tmp_path, port)
    await broker.start()
    for each in (port, port - 2):
        assert await code_of(each, RequestCode.GET_BROKER_CONFIG) == 0
    assert await code_of(port - 2, RequestCode.PULL_MESSAGE) == 3
    assert await code_of(port, RequestCode.PULL_MESSAGE) != 3
    await broker.stop()
    for each in (port, port - 2):
        with pytest.raises(ConnectFailed):
            await code_of(each, RequestCode.GET_BROKER_CONFIG)


async def test_a_free_port_is_advertised_and_has_no_vip_port(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, 0)
    await broker.start()
    try:
        assert broker.address.port == broker.config.listen_port > 0
        assert await code_of(broker.address.port, RequestCode.GET_BROKER_CONFIG) == 0
        with pytest.raises(ConnectFailed):
            await code_of(broker.address.port - 2, RequestCode.GET_BROKER_CONFIG)
    finally:
        await broker.stop()


async def test_each_port_has_the_fast_path_of_what_it_serves(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, 0)
    await broker.start()
    try:
        ports = broker.ports
        assert ports is not None
        assert ports.main is not None
        assert ports.vip is not None
        assert (ports.main.fast_path, ports.vip.fast_path) == (broker.fast_path, broker.vip_fast_path)
        assert set(ports.main.handlers) - set(ports.vip.handlers) == set(MAIN_PORT_ONLY) & set(broker.handlers)
    finally:
        await broker.stop()


async def test_a_broker_whose_port_is_taken_has_let_go_of_its_store(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ListenFailed, match="another program uses this port"):
            await broker_at(tmp_path, other.getsockname()[1]).start()
    again = broker_at(tmp_path, 0)
    await again.start()
    assert again.recovered is not None
    assert again.recovered.was_clean
    await again.stop()

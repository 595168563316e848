"""Clients that break rules get the protocol's answer, hold bounded memory, and disturb nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import random

import grpc
import grpc.aio
import h2.connection
import h2.events
import h2.settings
import pytest
from any_request import filled, raw, torn, works
from proxy_client import SERVICE, Clients, Stub, message

from arrowmq.config import ConfigError
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.grpc import streams
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.server import Node
from waiting import until

SEEDS = int(os.environ.get("ARROWMQ_SEEDS", "1"))
ROUNDS = 4000 if os.environ.get("ARROWMQ_SOAK") else 60


async def test_what_is_no_protobuf(client: Stub) -> None:
    for name in ("SendMessage", "AckMessage", "QueryRoute"):
        assert grpc.StatusCode.INTERNAL == await raw(client, name, b"\xff\xff\xff\xff")
    assert await works(client)


async def test_giant_metadata(clients: Clients) -> None:
    greedy, modest = clients.new(), clients.new()
    code = await raw(greedy, "Heartbeat", b"", [*greedy.metadata, ("x-giant", "v" * 200_000)])
    assert isinstance(code, grpc.StatusCode)
    assert grpc.StatusCode.OK != code
    assert await works(modest)


async def test_streams_that_are_opened_and_left(node: Node, clients: Clients) -> None:
    forgetful, other = clients.new(), clients.new()
    method = forgetful.channel.stream_stream(f"/{SERVICE}/Telemetry")
    opened = [method(metadata=forgetful.metadata) for _ in range(200)]
    assert await works(other)
    for call in opened:
        call.cancel()
    assert node.proxy is not None
    connections = node.proxy.server.connections
    await until(lambda: sum(each.core.open_streams for each in connections) == 0, 20)


async def test_streams_that_the_proxy_ended_are_forgotten(node: Node, clients: Clients) -> None:
    """Found by the fuzzer of gRPC: an hour of settings that are refused was kept in memory to the last one."""
    refused, other = clients.new(), clients.new()
    for _ in range(20):
        stream = await refused.telemetry(v2.Settings())
        with pytest.raises(grpc.aio.AioRpcError, match="no publishing or subscription"):
            await stream.next()
    assert await works(other)
    assert node.proxy is not None
    assert 0 == node.proxy.service.telemetry.streams


async def test_what_ended_calls_held_of_a_message_counts_no_more(
    node: Node, client: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is on what is held, not on what ever was."""
    monkeypatch.setattr(streams, "MAX_HELD_BYTES", 50_000)
    assert node.proxy is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.proxy.port)
    peer = h2.connection.H2Connection()
    peer.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/Telemetry"), (":authority", "x")]
    headers += [("content-type", "application/grpc"), *client.metadata]
    body = calls.TelemetryCommand(settings=v2.Settings()).SerializeToString()
    whole, part = b"\x00" + len(body).to_bytes(4, "big") + body, b"\x00" + (1 << 20).to_bytes(4, "big") + bytes(15_000)
    for _ in range(8):
        stream = peer.get_next_available_stream_id()
        peer.send_headers(stream, headers)
        peer.send_data(stream, whole)
        peer.send_data(stream, part)
        answer: dict[bytes, bytes] = {}
        while b"grpc-status" not in answer:
            writer.write(peer.data_to_send())
            async with asyncio.timeout(10):
                events = peer.receive_data(await reader.read(65536))
            for each in events:
                if isinstance(each, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    answer |= dict(each.headers)
        assert b"3" == answer[b"grpc-status"], answer
        for connection in node.proxy.server.connections:
            connection.streams.sweep(connection.heard_at)  # as is done every few seconds
    writer.close()


async def test_a_client_that_never_reads_holds_little_and_disturbs_nobody(node: Node, clients: Clients) -> None:
    """Its windows stay shut, whatever it asks for."""
    assert node.proxy is not None
    other = clients.new()
    await other.consumes("group", "normal")
    for _ in range(8):
        await other.send(message("normal", bytes(500_000)))
    _, writer = await asyncio.open_connection("127.0.0.1", node.proxy.port)
    peer = h2.connection.H2Connection()
    peer.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = 0
    peer.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/ReceiveMessage"), (":authority", "x")]
    headers += [("content-type", "application/grpc"), *other.metadata]
    body = other.receive_request("group", "normal").SerializeToString()
    for _ in range(20):
        stream = peer.get_next_available_stream_id()
        peer.send_headers(stream, headers)
        peer.send_data(stream, b"\x00" + len(body).to_bytes(4, "big") + body, end_stream=True)
    writer.write(peer.data_to_send())
    await writer.drain()
    shut = [each for each in node.proxy.server.connections if each.peer == writer.get_extra_info("sockname")]
    await until(lambda: shut[0].core.unsent_total > 0, 20)
    assert shut[0].core.unsent_total < 8 << 20
    assert await works(other)
    writer.close()
    await until(lambda: shut[0].closed, 20)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_request_gets_an_answer(client: Stub, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    """No traceback in the log, no call without an end, whatever a request holds or how it is torn."""
    chance = random.Random(seed)
    await client.consumes("group", "normal")
    caplog.set_level(logging.WARNING)
    for method in calls.DESCRIPTOR.services_by_name["MessagingService"].methods:
        if method.name == "Telemetry":
            continue
        kind = getattr(calls, method.input_type.name)
        is_stream = method.name in ("ReceiveMessage", "PullMessage")
        for _ in range(ROUNDS):
            data = filled(chance, kind()).SerializeToString()
            if chance.random() < 0.3:
                data = torn(chance, data)
            answer = await raw(client, method.name, data, stream=is_stream)
            allowed = [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED]
            if method.name == "ReceiveMessage":
                allowed.append(grpc.StatusCode.DEADLINE_EXCEEDED)  # a good request may poll for as long as it has
            assert not isinstance(answer, grpc.StatusCode) or answer in allowed, (method.name, data, answer)
    for _ in range(ROUNDS):
        settings = filled(chance, v2.Settings())
        stream = await client.telemetry(settings)
        code = None
        try:
            await stream.next(10)
        except grpc.aio.AioRpcError as ended:
            code = ended.code()
        assert code in (None, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
        stream.call.cancel()
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]
    assert await works(client)


@pytest.mark.parametrize("key", ["remotingListenPort", "remotingAdvertisedAddress", "remotingBrokerPorts"])
def test_remoting_in_a_brokers_process_is_refused_with_a_sentence(key: str) -> None:
    with pytest.raises(ConfigError, match="remoting clients connect to the broker itself"):
        ProxyConfig.from_properties({"proxyMode": "LOCAL", key: "8080"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remotingListenPort", "-2"),
        ("remotingListenPort", "65536"),
        ("remotingAdvertisedAddress", "without a port"),
        ("remotingBrokerPorts", "8091"),
        ("remotingBrokerPorts", "broker-a:0"),
        ("remotingBrokerPorts", "broker-a:8091;broker-b:8091"),
        ("remotingBrokerPorts", "broker-a:8091;broker-a:8092"),
        ("metricsExporterType", "OTLP_GRPC"),
    ],
)
def test_settings_of_remoting_that_make_no_sense_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        ProxyConfig.from_properties({key: value})

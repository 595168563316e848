"""Goal: one port serves plain, proxied and encrypted connections, told apart by their first bytes."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.config import ConfigError
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.greeting import V2_START, may_be_proxy, read_proxy
from arrowmq.remoting.handlers import Answer, Call, handles
from arrowmq.remoting.tls.settings import client_tls, server_tls
from arrowmq.wire.errors import FrameError
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from certificates import self_signed

WHO = 10


class Service:
    @handles(WHO)
    def who(self, call: Call) -> Answer:
        attributes = {key: str(value) for key, value in call.connection.attributes.items()}
        return Answer(header=attributes, body=call.body, remark=call.connection.peer_text)


async def exchange(address: str, *pieces: bytes) -> Command:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    splitter, answers = FrameSplitter(), list[Command]()
    while not answers:
        data = await reader.read(65536)
        assert data, "closed without an answer"
        answers = splitter.feed(data)
    writer.close()
    return answers[0]


REQUEST = encode_frame(Command.request(WHO, opaque=1))
V1 = b"PROXY TCP4 203.0.113.7 192.0.2.9 5000 10911\r\n"


def v2(source: str, target: str, extra: bytes = b"", command: int = 1) -> bytes:
    addresses = b"".join(ipaddress.ip_address(host).packed for host in (source, target))
    payload = addresses + (5000).to_bytes(2, "big") + (10911).to_bytes(2, "big") + extra
    family = 0x11 if "." in source else 0x21
    return V2_START + bytes([0x20 | command, family]) + len(payload).to_bytes(2, "big") + payload


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (V1, "203.0.113.7:5000"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::9 5000 10911\r\n", "[2001:db8::7]:5000"),
        (v2("203.0.113.7", "192.0.2.9"), "203.0.113.7:5000"),
        (v2("2001:db8::7", "2001:db8::9", b"\xe1\x00\x05vpc-1"), "[2001:db8::7]:5000"),
    ],
)
async def test_behind_a_proxy_the_real_peer_is_known(start_server: Any, header: bytes, peer: str) -> None:
    _, address = await start_server(Service())
    for pieces in ([header + REQUEST], [header, REQUEST], [header[:5], header[5:20], header[20:] + REQUEST]):
        answer = await exchange(address, *pieces)
        assert (answer.remark, answer.ext["proxy_protocol_server_port"]) == (peer, "10911")
        if b"vpc-1" in header:
            assert answer.ext["proxy_protocol_tlv_0xe1"] == "vpc-1"


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", v2("203.0.113.7", "192.0.2.9", command=0)])
async def test_a_proxy_that_speaks_for_itself_changes_nothing(start_server: Any, header: bytes) -> None:
    _, address = await start_server(Service())
    answer = await exchange(address, header + REQUEST)
    assert (answer.remark or "").startswith("127.0.0.1:")
    assert answer.ext == {}


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 nonsense\r\n",
        b"PROXY TCP9 203.0.113.7 192.0.2.9 5000 10911\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.9 5000 99999\r\n",
        b"PROXY " + b"x" * 200,
        V2_START + b"\x31\x11\x00\x00",
        V2_START + b"\x21\x11\x00\x02ab",
    ],
)
async def test_a_broken_proxy_header_ends_the_connection(start_server: Any, header: bytes) -> None:
    _, address = await start_server(Service())
    with pytest.raises((AssertionError, ConnectionResetError)):
        await exchange(address, header + REQUEST)


@settings(deadline=None)  # a time limit would measure how busy the machine is
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_proxy_headers(data: bytes) -> None:
    for start in (b"", b"PROXY ", V2_START):
        view = memoryview(start + data)
        if may_be_proxy(view):
            try:
                header = read_proxy(view)
            except FrameError:
                continue
            assert header is None or header.length <= len(view)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls")).parent


def tls_settings(path: Path, **more: str) -> dict[str, str]:
    return {
        "tls.server.certPath": str(path / "cert.pem"),
        "tls.server.keyPath": str(path / "key.pem"),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


async def test_a_permissive_port_serves_plain_and_encrypted_alike(start_server: Any, certificate: Path) -> None:
    _, address = await start_server(Service(), tls=server_tls(tls_settings(certificate)))
    body = bytes(range(256)) * 8000  # 2 MB, more than any buffer on the way
    for context in (None, client_tls({"tls.enable": "true"})):
        client = RemotingClient(tls=context)
        for _ in range(3):
            answer = await client.invoke(address, Command.request(WHO, body=body), 10)
            assert answer.body == body
        await client.close()


async def test_an_enforcing_port_closes_plain_connections(start_server: Any, certificate: Path) -> None:
    tls = server_tls(tls_settings(certificate, tls__server__mode="enforcing"))
    _, address = await start_server(Service(), tls=tls)
    with pytest.raises((AssertionError, ConnectionResetError)):
        await exchange(address, REQUEST)
    client = RemotingClient(tls=client_tls({"tls.enable": "true"}))
    assert (await client.invoke(address, Command.request(WHO), 10)).code == 0
    await client.close()


async def test_a_client_may_insist_on_a_known_certificate(start_server: Any, certificate: Path) -> None:
    _, address = await start_server(Service(), tls=server_tls(tls_settings(certificate)))
    known = {"tls.enable": "true", "tls.client.authServer": "true"}
    client = RemotingClient(tls=client_tls({**known, "tls.client.trustCertPath": str(certificate / "cert.pem")}))
    assert (await client.invoke(address, Command.request(WHO), 10)).code == 0
    await client.close()
    strict = ssl.create_default_context()
    strict.check_hostname = False
    client = RemotingClient(tls=strict)
    with pytest.raises(RemotingError, match="TLS failed"):
        await client.invoke(address, Command.request(WHO), 10)
    await client.close()


async def test_a_proxy_may_announce_a_client_that_speaks_tls(start_server: Any, certificate: Path) -> None:
    _, address = await start_server(Service(), tls=server_tls(tls_settings(certificate)))
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(V1)
    await writer.drain()
    tls = client_tls({"tls.enable": "true"})
    assert tls is not None
    await writer.start_tls(tls.context)
    writer.write(REQUEST)
    (answer,) = FrameSplitter().feed(await reader.read(65536))
    assert answer.remark == "203.0.113.7:5000"
    writer.close()


async def test_half_a_handshake_and_nonsense_after_the_hello_cost_only_themselves(
    start_server: Any, certificate: Path
) -> None:
    server, address = await start_server(Service(), tls=server_tls(tls_settings(certificate)))
    host, _, port = address.rpartition(":")
    for data in (b"\x16\x03\x01", b"\x16\x03\x01\x00\x05nonsense", b"\x16" + bytes(300)):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        writer.write_eof()
        try:
            while await reader.read(1000):
                continue
        except ConnectionResetError:
            continue
        finally:
            writer.close()
    assert (await exchange(address, REQUEST)).code == 0
    while len(server.connections) > 0:  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "properties",
    [
        {"tls.server.mode": "sometimes"},
        {"tls.server.mode": "enforcing"},
        {"tls.server.certPath": "nowhere.pem", "tls.server.keyPath": "nowhere.key"},
    ],
)
def test_settings_that_cannot_work_are_named(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server"):
        server_tls(properties)

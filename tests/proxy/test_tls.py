"""TLS on the port of gRPC: what a client sends with the last piece of its handshake is not lost."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc.aio
from proxy_client import SETTINGS, Stub, message

from arrowmq.client.admin import Admin
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.server import build_node, build_proxy_node
from certificates import Authority, key_of, self_signed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS_FRAME, GOAWAY_FRAME = 4, 7


async def first_frames(port: int) -> list[tuple[int, int]]:
    """Types and flags of what is answered to a preface that comes in one segment with the end of the handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(coming, going)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(going.read())
                coming.write(await reader.read(65536))
        client.write(PREFACE)
        writer.write(going.read())
        plain = b""
        while not (frames := _frames(plain)) or (SETTINGS_FRAME, 1) not in frames:
            assert GOAWAY_FRAME not in [kind for kind, _ in frames]
            got = await reader.read(65536)
            assert got, "the server hung up"
            coming.write(got)
            try:
                plain += client.read(65536)
            except ssl.SSLWantReadError:
                continue
        return frames
    finally:
        writer.close()


def _frames(data: bytes) -> list[tuple[int, int]]:
    found = []
    while len(data) >= 9:
        length = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4]))
        data = data[9 + length :]
    return found


async def test_a_preface_that_comes_with_the_end_of_the_handshake_counts(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    files = {"tlsCertPath": str(certificate), "tlsKeyPath": str(certificate.with_name("key.pem"))}
    node = build_node(tmp_path / "data", {**SETTINGS, **files}, namesrv_port=0, broker_port=0, proxy_port=0)
    await node.start()
    try:
        assert node.proxy is not None
        async with asyncio.timeout(20):
            for _ in range(20):  # it depends on the moment
                frames = await first_frames(node.proxy.port)
                assert SETTINGS_FRAME == frames[0][0]
        async with Admin(node.namesrv_address) as admin:
            await admin.create_topic("normal", queues=1)
        trust = grpc.ssl_channel_credentials(certificate.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{node.proxy.port}", trust) as channel:
            answer = await Stub(channel, "tls").send(message("normal"))
            assert v2.OK == answer.status.code
    finally:
        await node.stop()


async def test_proxies_before_a_cluster_that_speaks_tls_alone(tmp_path: Path) -> None:
    """The one in the server's process, and one of its own, which shows a certificate and checks the servers'."""
    authority = Authority(tmp_path / "authority")
    server, client = authority.make("server"), authority.make("client")
    of_client = {
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.trust),
        "tls.client.certPath": str(client),
        "tls.client.keyPath": str(key_of(client)),
    }
    of_server = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(server),
        "tls.server.keyPath": str(key_of(server)),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.trust),
    }
    files = {"tlsCertPath": str(server), "tlsKeyPath": str(key_of(server))}
    inside = build_node(
        tmp_path / "data", {**SETTINGS, **files, **of_server, **of_client}, namesrv_port=0, broker_port=0, proxy_port=0
    )
    await inside.start()
    before = build_proxy_node(
        {**SETTINGS, **files, **of_client, "grpcServerPort": "0", "namesrvAddr": inside.namesrv_address}
    )
    await before.start()
    context = ssl.create_default_context(cafile=str(authority.trust))
    context.load_cert_chain(client, key_of(client))
    try:
        async with Admin(inside.namesrv_address, tls=context) as admin:
            await admin.create_topic("normal", queues=1)
        trust = grpc.ssl_channel_credentials(authority.trust.read_bytes())
        for node in (inside, before):
            assert node.proxy is not None
            async with grpc.aio.secure_channel(f"127.0.0.1:{node.proxy.port}", trust) as channel:
                answer = await Stub(channel, "tls").send(message("normal"))
                assert v2.OK == answer.status.code, answer.status
    finally:
        for node in (before, inside):
            await node.stop()

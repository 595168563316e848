"""TLS: what contexts allow, files that change, hand-shakes that nobody finishes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.cli.tls import tls_group
from arrowmq.clock import SystemClock, VirtualClock
from arrowmq.config import ConfigError
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.endpoint import Limits
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import RemotingServer
from arrowmq.remoting.tls.reload import LOOK_S, TlsReload
from arrowmq.remoting.tls.settings import ClientTls, ServerTls, client_tls, server_tls
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from certificates import self_signed
from waiting import until


def make(folder: Path, *options: str) -> Path:
    """Certificates as `arrowmq tls make` makes them."""
    result = CliRunner().invoke(tls_group, ["make", "--dir", str(folder), *options])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of another authority."""
    return make(tmp_path_factory.mktemp("strange"))


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(folder / "server.pem"),
        "tls.server.keyPath": str(folder / "server-key.pem"),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


Serve = Callable[..., "asyncio.Future[tuple[RemotingServer, str]]"]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[RemotingServer] = []

    async def start(tls: ServerTls, **limits: int) -> tuple[RemotingServer, str]:
        table = HandlerTable()
        table.add_callback(RequestCode.GET_BROKER_RUNTIME_INFO, lambda call: None)
        server = RemotingServer(table, tls=tls, limits=Limits(**limits))
        servers.append(server)
        return server, f"127.0.0.1:{await server.start('127.0.0.1', 0)}"

    yield start  # type: ignore[misc]
    for server in servers:
        await server.close(0.1)


async def ask(address: str, tls: ssl.SSLContext | ClientTls | None) -> int:
    client = RemotingClient(tls=tls)
    try:
        return (await client.invoke(address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 10)).code
    finally:
        await client.close()


def trusting(folder: Path, **options: str) -> ClientTls:
    found = client_tls(
        {
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(folder / "ca.pem"),
            **{f"tls.client.{key}": value for key, value in options.items()},
        }
    )
    assert found is not None
    return found


async def test_who_trusts_the_authority_is_served_and_who_does_not_is_not(
    serve: Serve, made: Path, strange: Path
) -> None:
    _, address = await serve(server_tls(settings(made)))
    assert 0 == await ask(address, trusting(made))
    with pytest.raises(RemotingError, match="TLS failed"):
        await ask(address, trusting(strange))
    with pytest.raises(RemotingError):
        await ask(address, None)


async def test_a_server_may_ask_for_certificates_of_its_own_authority(serve: Serve, made: Path, strange: Path) -> None:
    mutual = settings(made) | {
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(made / "ca.pem"),
    }
    _, address = await serve(server_tls(mutual))
    mine = {"certPath": str(made / "client.pem"), "keyPath": str(made / "client-key.pem")}
    theirs = {"certPath": str(strange / "client.pem"), "keyPath": str(strange / "client-key.pem")}
    assert 0 == await ask(address, trusting(made, **mine))
    for options in ({}, theirs):
        with pytest.raises(RemotingError):
            await ask(address, trusting(made, **options))


@pytest.mark.parametrize(
    ("server", "client", "version"),
    [
        ({}, {}, "TLSv1.3"),
        ({"tls_server_maxVersion": "TLSv1.2"}, {}, "TLSv1.2"),
        ({}, {"maxVersion": "TLSv1.2"}, "TLSv1.2"),
        ({"tls_server_minVersion": "TLSv1.3"}, {"maxVersion": "TLSv1.2"}, None),
        ({"tls_server_maxVersion": "TLSv1.2", "tls_server_ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"}, {}, "TLSv1.2"),
        (
            {"tls_server_maxVersion": "TLSv1.2", "tls_server_ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"},
            {"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
            None,
        ),
    ],
)
async def test_versions_and_ciphers_are_those_that_both_sides_allow(
    serve: Serve, made: Path, server: dict[str, str], client: dict[str, str], version: str | None
) -> None:
    _, address = await serve(server_tls(settings(made, **server)))
    host, port = address.split(":")
    context = trusting(made, **client).context
    if version is None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
        return
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
    assert version == writer.get_extra_info("ssl_object").version()
    writer.close()


async def test_nothing_older_than_tls_1_2_is_spoken(serve: Serve, made: Path) -> None:
    _, address = await serve(server_tls(settings(made)))
    host, port = address.split(":")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, int(port), ssl=old, server_hostname=host)


async def test_every_cipher_that_is_spoken_is_a_good_one(serve: Serve, made: Path, tmp_path: Path) -> None:
    """Each that OpenSSL knows is tried alone, as scanners do, with a certificate of either kind of key."""
    rsa = self_signed(tmp_path)
    pairs = [made / "server.pem", rsa]
    spoken: set[str] = set()
    refused: set[str] = set()
    for certificate, key in zip(pairs, (made / "server-key.pem", rsa.with_name("key.pem")), strict=True):
        files = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(key)}
        _, address = await serve(server_tls({**settings(made), **files}))
        host, port = address.split(":")
        for name in _old_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0"):
            context = _believing()
            context.set_ciphers(f"{name}:@SECLEVEL=0")
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            try:
                _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
            except (ssl.SSLError, ConnectionError):
                refused.add(name)
                continue
            line = writer.get_extra_info("ssl_object")
            assert line.compression() is None
            spoken.add(line.cipher()[0])
            writer.close()
    assert {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"} <= spoken
    assert all(name.startswith(("ECDHE-", "DHE-")) for name in spoken), spoken  # who learns the key later reads nothing
    weak = ("NULL", "anon", "ADH", "AECDH", "RC4", "DES", "EXP", "MD5", "SEED", "IDEA", "CAMELLIA", "PSK", "SRP")
    assert [] == [name for name in spoken if any(word in name for word in weak) or name.endswith("-SHA")]
    assert {"AES128-SHA", "ADH-AES128-SHA", "NULL-SHA"} & refused


def _believing() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _old_ciphers(chosen: str) -> list[str]:
    """Those of TLSv1.2 and older, which are chosen by name."""
    context = _believing()
    context.set_ciphers(chosen)
    return [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tls.server.cretPath": "x"}, "no such setting"),
        ({"tls.server.minVersion": "TLSv1.1"}, "minVersion"),
        ({"tls.server.ciphers": "NONSENSE"}, "ciphers"),
        ({"tls.server.keyPath": "/nowhere"}, "cannot be loaded"),
        ({"tls.server.need.client.auth": "require"}, "trustCertPath"),
        ({"tls.server.need.client.auth": "sometimes"}, "expected"),
        ({"tls.server.authClient": "true"}, "need.client.auth=require"),
        ({"tls.server.authClient": "yes"}, "expected true or false"),
        (
            {
                "tls.server.authClient": "false",
                "tls.server.need.client.auth": "require",
                "tls.server.trustCertPath": "CA",
            },
            "is checked here",
        ),
        ({"tls.config.file": "/nowhere"}, "does not exist"),
        ({"tls.test.mode.enable": "true", "tls.server.certPath": ""}, "arrowmq tls make"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(made: Path, change: dict[str, str], words: str) -> None:
    change = {key: str(made / "ca.pem") if text == "CA" else text for key, text in change.items()}
    with pytest.raises(ConfigError, match=words):
        server_tls(settings(made) | change)


def test_a_key_with_a_password_is_read_with_it_and_the_password_is_not_told(made: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((made / "server-key.pem").read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"hush-hush")
    form = serialization.PrivateFormat.PKCS8
    (tmp_path / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    encrypted = settings(made) | {"tls.server.keyPath": str(tmp_path / "key.pem")}
    assert server_tls(encrypted | {"tls.server.keyPassword": "hush-hush"}).context is not None
    for password in ("", "hush-hush-hush"):
        with pytest.raises(ConfigError) as error:
            server_tls(encrypted | {"tls.server.keyPassword": password})
        assert "hush" not in str(error.value)


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_a_clear_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("pem")
    for name in ("server.pem", "server-key.pem"):
        (folder / name).write_bytes(b"-----BEGIN CERTIFICATE-----\n" + data)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        server_tls(settings(folder))


# --- files that change -----------------------------------------------------------------------------------------------


def copy(source: Path, target: Path, *names: str) -> None:
    target.mkdir(exist_ok=True)
    for name in names or ("server.pem", "server-key.pem", "ca.pem"):
        temporary = target / f".{name}"
        temporary.write_bytes((source / name).read_bytes())
        os.replace(temporary, target / name)


async def test_renewed_files_are_taken_for_new_connections_within_a_second(
    serve: Serve, made: Path, strange: Path, tmp_path: Path
) -> None:
    copy(made, tmp_path)
    clock = VirtualClock()
    tls = server_tls(settings(tmp_path))
    reload = TlsReload(settings(tmp_path), tls, None, clock)
    await reload.start()
    _, address = await serve(tls)
    open_before = RemotingClient(tls=trusting(made))
    request = RequestCode.GET_BROKER_RUNTIME_INFO
    assert 0 == (await open_before.invoke(address, Command.request(request), 10)).code
    copy(strange, tmp_path)
    await clock.advance(1.0)
    assert 0 == await ask(address, trusting(strange))
    assert 0 == (await open_before.invoke(address, Command.request(request), 10)).code, "open ones keep theirs"
    with pytest.raises(RemotingError):
        await ask(address, trusting(made))
    await open_before.close()
    await reload.stop()


async def test_a_bad_pair_is_refused_with_a_line_and_the_old_one_stays(
    made: Path, strange: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy(made, tmp_path)
    clock = VirtualClock()
    tls = server_tls(settings(tmp_path))
    before = tls.context
    reload = TlsReload(settings(tmp_path), tls, None, clock)
    await reload.start()
    copy(strange, tmp_path, "server.pem")  # without its key
    with caplog.at_level(logging.INFO):
        await clock.advance(5.0)
    assert before is tls.context
    lines = [record.getMessage() for record in caplog.records]
    assert ["TLS files changed and cannot be used"] == [line[:36] for line in lines], "told once, not at every look"
    (tmp_path / "server-key.pem").unlink()
    await clock.advance(1.0)
    assert before is tls.context
    copy(strange, tmp_path)
    await clock.advance(1.0)
    assert before is not tls.context
    await reload.stop()


async def test_a_certificate_and_its_key_written_one_after_the_other_are_taken_together(
    made: Path, strange: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy(made, tmp_path)
    clock = VirtualClock()
    tls = server_tls(settings(tmp_path))
    before = tls.context
    reload = TlsReload(settings(tmp_path), tls, None, clock)
    await reload.start()
    copy(strange, tmp_path, "server.pem")
    await clock.advance(LOOK_S)
    copy(strange, tmp_path, "server-key.pem")
    with caplog.at_level(logging.ERROR):
        await clock.advance(1.0)
    assert before is not tls.context
    assert "" == caplog.text
    await reload.stop()


async def test_what_a_client_trusts_is_renewed_too(serve: Serve, made: Path, strange: Path, tmp_path: Path) -> None:
    copy(made, tmp_path)
    properties = {
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(tmp_path / "ca.pem"),
    }
    tls = client_tls(properties)
    assert tls is not None
    clock = VirtualClock()
    reload = TlsReload(properties, None, tls, clock)
    await reload.start()
    _, address = await serve(server_tls(settings(strange)))
    with pytest.raises(RemotingError):
        await ask(address, tls)
    copy(strange, tmp_path, "ca.pem")
    await clock.advance(1.0)
    assert 0 == await ask(address, tls)
    await reload.stop()


# --- hand-shakes that nobody finishes --------------------------------------------------------------------------------


def half_open(address: str) -> socket.socket:
    """The beginning of a hello, and then nothing."""
    host, port = address.split(":")
    peer = socket.create_connection((host, int(port)))
    peer.send(b"\x16\x03\x01\x02\x00\x01")
    return peer


async def test_healthy_clients_are_served_beside_500_half_open_hand_shakes(serve: Serve, made: Path) -> None:
    server, address = await serve(server_tls(settings(made)))
    peers = [half_open(address) for _ in range(500)]
    await until(lambda: len(server._endpoint.handshakes) == 500)
    for _ in range(20):
        assert 0 == await ask(address, trusting(made))
    for peer in peers:
        peer.close()
    await until(lambda: not server._endpoint.handshakes)


async def test_who_does_not_finish_gives_way_to_who_comes(serve: Serve, made: Path) -> None:
    server, address = await serve(server_tls(settings(made)), handshakes=10)
    peers = [half_open(address) for _ in range(50)]
    await until(lambda: sum(_is_closed(peer) for peer in peers) >= 40)
    assert len(server._endpoint.handshakes) <= 10
    assert 0 == await ask(address, trusting(made))
    for peer in peers:
        peer.close()


def _is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_a_reload_under_load_loses_no_request(serve: Serve, made: Path, tmp_path: Path) -> None:
    """Clients come and go while the certificate is exchanged, ten times; it is always of the same authority."""
    copy(made, tmp_path)
    clock = SystemClock()
    tls = server_tls(settings(tmp_path))
    reload = TlsReload(settings(tmp_path), tls, None, clock)
    _, address = await serve(tls)
    answers: list[int] = []
    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            answers.append(await ask(address, trusting(made)))

    workers = [asyncio.ensure_future(work()) for _ in range(4)]
    contexts = {id(tls.context)}
    for _ in range(10):
        enough = len(answers) + 4
        copy(made, tmp_path)
        reload.check()
        reload.check()
        contexts.add(id(tls.context))
        await until(lambda enough=enough: len(answers) >= enough)  # type: ignore[misc]
    stop.set()
    await asyncio.gather(*workers)
    assert {0} == set(answers)
    assert len(contexts) > 1

"""Java's own client by TLS at our servers: every mode, certificates of either side, and renewal under load."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from oracle import arrow, hands
from oracle.hand import Refusal
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.scene import Listener, Producer

import arrowmq
import arrowmq.sync
from certificates import Authority, key_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240), pytest.mark.xdist_group("java tls")]

TOPIC = "by_tls"
BELIEVING: dict[str, Value] = {"tls.enable": True}  # its default: it takes whoever answers


class Places:
    """The addresses of a server."""

    def __init__(self, namesrv: str, broker: str) -> None:
        self.namesrv, self.broker = namesrv, broker


@contextmanager
def served(folder: Path, settings: dict[str, Value]) -> Iterator[Places]:
    names, port = free_port(), broker_port()
    config: dict[str, Value] = {"mappedFileSizeCommitLog": 16 << 20, **settings}
    with arrow.server(folder, names, port, **config):
        yield Places(f"{HOST}:{names}", f"{HOST}:{port}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strange"), "another")


def files(side: str, certificate: Path) -> dict[str, Value]:
    return {f"tls.{side}.certPath": certificate, f"tls.{side}.keyPath": key_of(certificate)}


def checking(authority: Authority) -> dict[str, Value]:
    """A Java client that checks who answers."""
    return {
        "tls.enable": True,
        "tls.test.mode.enable": False,
        "tls.client.authServer": True,
        "tls.client.trustCertPath": authority.trust,
    }


def works(places: Places, folder: Path, properties: dict[str, Value], flavour: str = "java-5.5-json") -> bool:
    """A Java client with these properties sends and receives; a first request may be late on a busy machine, which
    gives a fresh JVM three seconds for all of it."""
    return tried(places, folder, properties, flavour, until_s=60)


def fails(places: Places, folder: Path, properties: dict[str, Value]) -> bool:
    """It does neither, however often it tries for a while."""
    return not tried(places, folder, properties, "java-5.5-json", until_s=8)


def tried(places: Places, folder: Path, properties: dict[str, Value], flavour: str, until_s: float) -> bool:
    topic = f"{TOPIC}_{time.monotonic_ns()}"
    deadline = time.monotonic() + until_s
    with hands.start(flavour, places.namesrv, places.broker, folder, jvm=properties) as hand:
        producer = Producer(hand, "p", "producers", retries=0)
        while not is_sent(producer, topic):
            if time.monotonic() > deadline:
                return False
        listener = Listener(hand, "l", f"{topic}_group", topic)
        return "b" in {record["body"] for record in listener.until({"b"}, until_s)}


def is_sent(producer: Producer, topic: str) -> bool:
    try:
        (receipt,) = producer.send(topic, [{"key": "k", "body": "b"}])
    except Refusal:
        return False
    return bool(receipt.get("status") == "SEND_OK")


@pytest.mark.parametrize(
    ("mode", "by_plain", "by_tls"), [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)]
)
def test_each_mode_serves_whom_it_says(
    mode: str, by_plain: bool, by_tls: bool, authority: Authority, tmp_path: Path
) -> None:
    """Plain, by TLS as the client does unless told otherwise, and by TLS with a look at the certificate."""
    settings = {"tls.server.mode": mode, **files("server", authority.make("server"))}
    with served(tmp_path / "server", settings) as places:
        assert works(places, tmp_path, {}) if by_plain else fails(places, tmp_path, {})
        assert works(places, tmp_path, BELIEVING) if by_tls else fails(places, tmp_path, BELIEVING)
        if by_tls:
            assert works(places, tmp_path, checking(authority))
            assert works(places, tmp_path, BELIEVING, "java-4.9-binary")


def test_a_java_client_refuses_a_server_of_another_authority_or_whose_time_is_over(
    authority: Authority, strange: Authority, tmp_path: Path
) -> None:
    for number, certificate in enumerate((strange.make("server"), authority.make("old", timedelta(hours=-1)))):
        settings = {"tls.server.mode": "enforcing", **files("server", certificate)}
        with served(tmp_path / str(number), settings) as places:
            assert fails(places, tmp_path, checking(authority))
            assert works(places, tmp_path, BELIEVING), "it is served, if it does not look"


def test_a_server_that_asks_for_certificates_serves_java_clients_of_its_authority_alone(
    authority: Authority, strange: Authority, tmp_path: Path
) -> None:
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": True,
        "tls.server.trustCertPath": authority.trust,
        **files("server", authority.make("server")),
        "tls.client.authServer": True,
        "tls.client.trustCertPath": authority.trust,
        **files("client", authority.make("broker")),
    }
    expired = authority.make("expired", timedelta(hours=-1))
    with served(tmp_path / "server", settings) as places:
        mine = checking(authority)
        assert works(places, tmp_path, {**mine, **files("client", authority.make("client"))})
        for shown in ({}, files("client", strange.make("client")), files("client", expired)):
            assert fails(places, tmp_path, {**mine, **shown}), shown


def test_certificates_are_renewed_under_a_java_clients_load_and_no_message_is_lost(
    authority: Authority, tmp_path: Path
) -> None:
    """It sends and listens all the time; each new certificate is seen by a new client, which sends as well."""
    folder = tmp_path / "files"
    settings = {"tls.server.mode": "enforcing", **files("server", authority.make("server", folder=folder))}
    context = ssl.create_default_context(cafile=str(authority.trust))
    context.check_hostname = False
    with served(tmp_path / "server", settings) as places:
        namesrv = places.namesrv
        with arrowmq.sync.Admin(namesrv, tls=context) as admin:
            admin.create_topic(TOPIC, queues=4)
        with hands.start("java-5.5-json", namesrv, places.broker, tmp_path, jvm=checking(authority)) as hand:
            listener = Listener(hand, "l", "group", TOPIC)
            producer = Producer(hand, "p", "producers")
            expected: set[str] = set()
            for turn in range(5):
                batch = [{"key": f"k{turn}-{n}", "body": f"{turn}-{n}"} for n in range(400)]
                sending = hand.begin("send", producer=producer.name, topic=TOPIC, messages=batch, how="sync")
                renewed = authority.make("server", folder=tmp_path / "next")
                shown = served_certificate(places.broker, context)
                for source, name in ((renewed, "server.pem"), (key_of(renewed), "server-key.pem")):
                    os.replace(source, folder / name)
                deadline = time.monotonic() + 20
                while served_certificate(places.broker, context) == shown:
                    assert time.monotonic() < deadline, "the new certificate was not taken"
                    time.sleep(0.05)
                with arrowmq.sync.Producer(namesrv, tls=context) as another:
                    another.send(TOPIC, f"other-{turn}".encode())
                assert {"SEND_OK"} == {receipt["status"] for receipt in sending.result(120)}
                expected |= {each["body"] for each in batch} | {f"other-{turn}"}
            assert expected == {record["body"] for record in listener.until(expected)}


def served_certificate(address: str, context: ssl.SSLContext) -> bytes | None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain) as line:
        return line.getpeercert(binary_form=True)

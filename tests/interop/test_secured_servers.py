"""The Python client and servers that want to know who it is, or encrypt: TLS and access keys.

The servers are real: Apache 5.5 with its users (ACL 2.0), Apache 4.9 with plain_acl.yml (ACL 1.0), and TLS at Apache
5.5 and at ArrowMQ.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from oracle import apache, arrow
from oracle.ports import HOST, broker_port, free_port

import arrowmq
import arrowmq.sync
from certificates import self_signed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

ADMIN = ("AdminKey", "12345678secret")
USER = ("UserKey", "87654321secret")


def round_trip(namesrv: str, **options: Any) -> None:
    """Messages of several shapes go out, come in, and one is given back and comes again."""
    topic, group = f"secured_{time.monotonic_ns()}", f"secured_group_{time.monotonic_ns()}"
    with arrowmq.sync.Admin(namesrv, **options) as admin:
        admin.create_topic(topic, queues=2)
        admin.create_group(group)
    with arrowmq.sync.Producer(namesrv, **options) as producer:
        producer.send(topic, "тело".encode(), tag="t", keys=["k"], properties={"city": "北京"})
        producer.send(topic, b"long " * 2000)
        producer.send_batch([arrowmq.Message(topic, b"b%d" % n) for n in range(3)])
        for n in range(20):
            producer.send(topic, b"%d" % n)
        producer.send_oneway(topic, b"oneway")
    seen: list[tuple[bytes, int]] = []
    with arrowmq.sync.Consumer(namesrv, group=group, topic=topic, consume_from="first", **options) as consumer:
        while len(seen) < 26 + 1:
            some = consumer.receive(timeout_s=60)
            assert some, f"only {seen} came"
            for message in some:
                seen.append((message.body, message.reconsume_times))
                if message.body == b"7" and not message.reconsume_times:
                    message.nack(delay_level=1)
                else:
                    message.ack()
    assert {"тело".encode(), b"long " * 2000, b"b0", b"19", b"oneway"} <= {body for body, _ in seen}
    assert [0, 1] == [times for body, times in seen if body == b"7"]


# -- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls")).parent


@pytest.fixture(scope="module", params=["apache-5.5", "arrowmq"])
def encrypted(
    request: pytest.FixtureRequest, certificate: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A NameServer and a broker that take no plain connection."""
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate / "cert.pem",
        "tls.server.keyPath": certificate / "key.pem",
    }
    folder = tmp_path_factory.mktemp("encrypted")
    with ExitStack() as stack:
        if request.param == "arrowmq":
            port = free_port()
            stack.enter_context(arrow.server(folder, port, broker_port(), **settings))
            yield f"{HOST}:{port}"
        else:
            jvm = {**settings, "tls.test.mode.enable": False, "tls.enable": True, "tls.client.authServer": False}
            names = stack.enter_context(apache.namesrv(folder / "namesrv", free_port(), jvm))
            stack.enter_context(apache.broker(folder / "broker", broker_port(), names.address, jvm))
            yield names.address


def test_an_encrypted_cluster_serves_who_trusts_its_certificate(encrypted: str, certificate: Path) -> None:
    round_trip(encrypted, tls=ssl.create_default_context(cafile=certificate / "cert.pem"))


def test_an_encrypted_cluster_refuses_who_does_not_encrypt_or_does_not_trust(encrypted: str) -> None:
    with pytest.raises(arrowmq.NamesrvUnreachable), arrowmq.sync.Producer(encrypted, start_timeout_s=0.5):
        pass
    stranger = ssl.create_default_context()
    with (
        pytest.raises(arrowmq.NamesrvUnreachable, match=r"CERTIFICATE_VERIFY_FAILED|TLS failed"),
        arrowmq.sync.Producer(encrypted, start_timeout_s=0.5, tls=stranger),
    ):
        pass


# -- access keys


def _acl_2(folder: Path) -> dict[str, Any]:
    """Apache 5.5: users in the broker's own book."""
    admin = {"username": ADMIN[0], "password": ADMIN[1]}
    auth = "org.apache.rocketmq.auth.authentication"
    return {
        "authenticationEnabled": True,
        "authenticationProvider": f"{auth}.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{auth}.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps(admin),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": ADMIN[0], "secretKey": ADMIN[1]}),
        "authConfigPath": folder / "auth",
    }


def _acl_1(folder: Path) -> dict[str, Any]:
    """Apache 4.9: accounts in conf/plain_acl.yml."""
    conf = folder / "broker" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    accounts = [f"- accessKey: {key}\n  secretKey: {secret}\n  admin: true\n" for key, secret in (ADMIN, USER)]
    (conf / "plain_acl.yml").write_text("accounts:\n" + "".join(accounts))
    return {"aclEnable": True}


@pytest.fixture(scope="module", params=["servers", "servers4"], ids=["apache-5.5", "apache-4.9"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster whose broker wants to see signatures."""
    folder = tmp_path_factory.mktemp("guarded")
    config = _acl_1(folder) if request.param == "servers4" else _acl_2(folder)
    with (
        apache.namesrv(folder / "namesrv", free_port(), profile=request.param) as names,
        apache.broker(folder / "broker", broker_port(), names.address, profile=request.param, **config),
    ):
        yield names.address


def test_a_guarded_broker_serves_who_signs_with_the_right_key(guarded: str) -> None:
    round_trip(guarded, credentials=ADMIN)


@pytest.mark.parametrize("credentials", [None, (ADMIN[0], "a wrong secret"), ("nobody", "at all")])
def test_a_guarded_broker_refuses_everybody_else_and_the_error_says_so(
    guarded: str, credentials: tuple[str, str] | None
) -> None:
    topic = f"secured_{time.monotonic_ns()}"
    with arrowmq.sync.Admin(guarded, credentials=ADMIN) as admin:
        admin.create_topic(topic, queues=1)
    with (
        arrowmq.sync.Producer(guarded, credentials=credentials, retries=0) as producer,
        pytest.raises(
            arrowmq.ArrowMQError, match=r"NO_PERMISSION|credentials|[Ss]ignature|AccessKey|accessKey|No acl config"
        ) as refusal,
    ):
        producer.send(topic, b"x")
    assert "127.0.0.1" in str(refusal.value)

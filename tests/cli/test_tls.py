"""The command by TLS: with the server's certificate known, with another one, and without TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arrowmq.server import build_node
from arrowmq.sync.loop_thread import LoopThread
from certificates import self_signed

from .conftest import Command


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The NameServer of a cluster that takes TLS connections only, and its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    trusted = self_signed(folder / "known")
    settings = {
        "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "brokerName": "broker-a",
        "mappedFileSizeCommitLog": str(1 << 20), "tls.server.mode": "enforcing",
        "tls.server.certPath": str(trusted), "tls.server.keyPath": str(trusted.with_name("key.pem")),
    }  # fmt: skip
    thread = LoopThread("a node with TLS")
    node = build_node(folder / "data", settings, namesrv_port=0, broker_port=0)
    thread.call(node.start)
    yield node.namesrv_address, trusted
    thread.call(node.stop)
    thread.stop()


def test_everything_goes_by_tls(guarded: tuple[str, Path], name: str) -> None:
    """A topic made, a message sent, found, consumed by nobody, and a doctor who is content with the connection."""
    namesrv, trusted = guarded
    command = Command(namesrv)
    by_tls = ("--tls", "--tls-ca", str(trusted))
    command("topic", "create", name, "--queues", "1", *by_tls)
    sent = command.json("message", "send", name, "secret", *by_tls)
    assert sent["msgId"] in command("message", "find", name, "--from", "1h", *by_tls)
    assert "broker-a" in command("cluster", "show", *by_tls)
    assert "broker-a" in command("cluster", "show", "--tls")  # encrypted, the server taken at its word
    result = command.run("doctor", "--watch", "0", "--json", *by_tls)
    faults = {finding["name"] for finding in json.loads(result.stdout)["findings"]}
    assert not {fault for fault in faults if fault.startswith(("namesrv", "broker-unreachable"))}


def test_without_tls_it_is_a_sentence(guarded: tuple[str, Path]) -> None:
    result = Command(guarded[0]).run("topic", "list", "--timeout", "1")
    assert result.exit_code in (3, 4)
    assert "--tls" in result.stderr
    assert 1 == result.stderr.count("\n")


def test_a_certificate_that_is_not_known_is_a_sentence(guarded: tuple[str, Path], tmp_path: Path) -> None:
    other = self_signed(tmp_path / "other")
    said = Command(guarded[0]).fails(3, "topic", "list", "--tls-ca", str(other), "--timeout", "2")
    assert "certificate" in said.lower()
    assert 1 == said.count("\n")


def test_tls_to_a_server_without_it_is_a_sentence(command: Command) -> None:
    said = command.fails(3, "topic", "list", "--tls", "--timeout", "2")
    assert "TLS" in said
    assert 1 == said.count("\n")

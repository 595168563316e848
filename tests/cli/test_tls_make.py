"""`arrowmq tls make` and `--bind`: two commands encrypt a cluster; one option closes a server to the network."""

from __future__ import annotations

from pathlib import Path

from arrowmq.testing import BrokerThread

from .conftest import Command


def test_two_commands_give_an_encrypted_cluster(command: Command, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    said = command("tls", "make", "--dir", str(folder), "--host", "broker.example", "--mutual")
    assert f"--set tls.config.file={folder / 'tls.properties'}" in said
    assert 0o600 == (folder / "server-key.pem").stat().st_mode & 0o777
    settings = {"tls.config.file": str(folder / "tls.properties"), "tls.server.need.client.auth": "none"}
    with BrokerThread(settings=settings) as broker:
        # The file asks clients for a certificate, and wins over the setting beside it, as at Apache.
        refused = Command(broker.namesrv).fails(
            3, "topic", "list", "--tls-ca", str(folder / "ca.pem"), "--timeout", "2"
        )
        assert "TLS" in refused or "closed" in refused
    command("tls", "make", "--dir", str(folder), "--force")
    with BrokerThread(settings=settings) as broker:
        by_tls = ("--tls-ca", str(folder / "ca.pem"))
        own = Command(broker.namesrv)
        own("topic", "create", name, *by_tls)
        assert name in own("topic", "list", *by_tls)
        assert "--tls" in own.fails(3, "topic", "list", "--timeout", "2")


def test_the_command_shows_a_certificate_where_servers_ask_for_one(command: Command, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    command("tls", "make", "--dir", str(folder), "--mutual")
    trusting = ("--tls-ca", str(folder / "ca.pem"))
    shown = ("--tls-cert", str(folder / "client.pem"), "--tls-key", str(folder / "client-key.pem"))
    with BrokerThread(settings={"tls.config.file": str(folder / "tls.properties")}) as broker:
        own = Command(broker.namesrv)
        own("topic", "create", name, *trusting, *shown)
        assert name in own("topic", "list", *trusting, *shown)
        own.fails(3, "topic", "list", *trusting, "--timeout", "2")
        assert "--tls-cert" in own.fails(2, "topic", "list", *trusting, "--tls-key", "x")


def test_files_that_are_there_are_not_replaced_unasked(command: Command, tmp_path: Path) -> None:
    command("tls", "make", "--dir", str(tmp_path))
    before = (tmp_path / "ca.pem").read_bytes()
    assert "--force" in command.fails(1, "tls", "make", "--dir", str(tmp_path))
    assert before == (tmp_path / "ca.pem").read_bytes()


def test_bind_is_the_address_of_every_server_of_the_process() -> None:
    from arrowmq.cli.serve import running
    from arrowmq.cli.serve.command import server

    seen: dict[str, str] = {}
    context = server.make_context("server", ["--bind", "127.0.0.1", "--set", "bindAddress=0.0.0.0"])
    with context:
        seen.update(running.read_settings(None, ("bindAddress=0.0.0.0",), {}))
    assert "127.0.0.1" == seen["bindAddress"]

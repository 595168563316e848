"""The HA port by TLS: the same log through it, and nobody whom the settings do not want."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from datetime import timedelta
from pathlib import Path

import pytest
from pairs import Cluster, caught_up, follower_of, log_bytes, replication_of, store_of
from test_pair import queues_of, send
from trios import Trio, broker_of

from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import server_tls
from arrowmq.replica.analytic import AnalyticReplica
from arrowmq.replica.encrypted import MOST_ARRIVING, TlsSocket, ha_tls
from arrowmq.server import Node
from certificates import Authority, key_of
from waiting import until


def settings(authority: Authority, mode: str = "enforcing", name: str = "broker") -> dict[str, str]:
    """A broker's: its own certificate for either side, and it wants to see one of the same authority."""
    own = authority.folder / f"{name}.pem"
    if not own.exists():
        authority.make(name)
    files = {
        f"tls.{side}.{key}": str(path)
        for side in ("server", "client")
        for key, path in (("certPath", own), ("keyPath", key_of(own)), ("trustCertPath", authority.trust))
    }
    checks = {"tls.server.need.client.auth": "optional", "tls.client.authServer": "true"}
    return {"tls.ha.mode": mode, **files, **checks}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def lines_of(master: Node) -> list[bool]:
    """Of each slave, whether its connection is encrypted."""
    return [isinstance(feed._socket, TlsSocket) for feed in replication_of(master).feeds.all]


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_pair_by_tls_has_the_same_log(tmp_path: Path, authority: Authority, mode: str) -> None:
    """From the first byte on, several files long, and what is sent while the slave is there."""
    async with Cluster(tmp_path, settings(authority, mode)) as cluster:
        master = await cluster.master()
        await send(cluster, 300)
        slave = await cluster.slave()
        await caught_up(master, slave)
        assert [True] == lines_of(master)
        await send(cluster, 900)
        await caught_up(master, slave)
        ours, theirs = store_of(master), store_of(slave)
        assert ours.appended > 3 * ours.commit_log.file_bytes
        assert queues_of(ours) == queues_of(theirs)
        end = int(ours.appended)
        assert log_bytes(tmp_path / "master", 0, end) == log_bytes(tmp_path / "slave1", 0, end)


async def test_senders_of_a_sync_master_are_answered_when_its_slave_has_it_by_tls(
    tmp_path: Path, authority: Authority
) -> None:
    sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    async with Cluster(tmp_path, settings(authority)) as cluster:
        master = await cluster.master(sync)
        slave = await cluster.slave()
        await until(lambda: len(replication_of(master).feeds.in_sync()) == 1, 20)
        await send(cluster, 50)
        assert int(store_of(slave).appended) == int(store_of(master).appended)


async def test_nobody_reads_the_log_off_the_wire(tmp_path: Path, authority: Authority) -> None:
    """All that passes between the two is seen by somebody between them."""
    async with Cluster(tmp_path, settings(authority)) as cluster:
        master = await cluster.master()
        await send(cluster, 20)
        seen = bytearray()

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                seen.extend(data)
                writer.write(data)
            writer.close()

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs = await asyncio.open_connection("127.0.0.1", replication_of(master).config.ha_port)
            await asyncio.gather(carry(reader, theirs[1]), carry(theirs[0], writer), return_exceptions=True)

        listener = await asyncio.start_server(between, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        slave = await cluster.slave({"haMasterAddress": f"127.0.0.1:{port}"})
        await caught_up(master, slave)
        assert len(seen) > int(store_of(master).appended)
        assert b"orders" not in seen
        listener.close()


async def test_plain_slaves_are_served_beside_encrypted_ones_where_the_mode_permits_it(
    tmp_path: Path, authority: Authority
) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(settings(authority, "permissive"))
        slaves = [await cluster.slave(settings(authority, "permissive")), await cluster.slave(number=2)]
        await send(cluster, 100)
        for slave in slaves:
            await caught_up(master, slave)
        assert [False, True] == sorted(lines_of(master))


async def test_a_slave_that_may_use_tls_copies_from_a_master_without_it(tmp_path: Path, authority: Authority) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master()
        slave = await cluster.slave(settings(authority, "permissive"))
        await send(cluster, 50)
        await caught_up(master, slave)
        assert [False] == lines_of(master)


async def test_where_tls_is_enforced_neither_side_speaks_plain(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path / "master-enforces") as cluster:
        master = await cluster.master(settings(authority))
        await send(cluster, 10)
        slave = await cluster.slave()
        await until(lambda: replication_of(master).feeds.refused > 0, 20)
        assert "it does not speak TLS, and tls.ha.mode is enforcing" in caplog.text
        assert 0 == store_of(slave).appended
    async with Cluster(tmp_path / "slave-enforces") as cluster:
        master = await cluster.master()
        await send(cluster, 10)
        slave = await cluster.slave(settings(authority))
        await until(lambda: follower_of(slave).state == "waiting" and follower_of(slave).reason != "", 20)
        assert 0 == store_of(slave).appended


async def test_a_wrong_certificate_is_refused_by_either_side(tmp_path: Path, authority: Authority) -> None:
    strange = Authority(tmp_path / "strange", "another")
    expired = {**settings(authority), "tls.server.certPath": str(authority.make("old", timedelta(hours=-1)))}
    expired["tls.server.keyPath"] = str(key_of(authority.folder / "old.pem"))
    trusts_master = {**settings(strange, name="slave"), "tls.client.trustCertPath": str(authority.trust)}
    required = {**settings(authority), "tls.server.need.client.auth": "require"}
    for number, (of_master, of_slave, why) in enumerate(
        (
            (settings(strange), settings(authority), "CERTIFICATE_VERIFY_FAILED"),
            (expired, settings(authority), "certificate has expired"),
            (required, trusts_master, ""),
        )
    ):
        async with Cluster(tmp_path / str(number)) as cluster:
            plain = {"tls.server.mode": "permissive"}
            master = await cluster.master({**of_master, **plain})
            await send(cluster, 5)
            slave = await cluster.slave({**of_slave, **plain})
            follower = follower_of(slave)
            if why:
                await until(lambda: why in follower.reason, 20)  # noqa: B023
            else:
                await until(lambda: replication_of(master).feeds.refused > 0, 20)  # noqa: B023
            assert 0 == store_of(slave).appended
            assert [] == replication_of(master).feeds.in_sync()


async def test_renewed_certificates_are_taken_for_the_next_connection_and_the_open_one_goes_on(
    tmp_path: Path, authority: Authority
) -> None:
    """First both sides trust two authorities, then the master's certificate is of the other one, then the slave's."""
    other = Authority(tmp_path / "other", "the next")
    both = tmp_path / "both.pem"
    both.write_bytes(authority.trust.read_bytes() + other.trust.read_bytes())
    wanted = settings(authority) | {
        "tls.server.trustCertPath": str(both),
        "tls.client.trustCertPath": str(both),
        "tls.server.need.client.auth": "require",
    }
    async with Cluster(tmp_path, wanted | {"tls.server.mode": "permissive"}) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 20)
        await caught_up(master, slave)
        (before,) = replication_of(master).feeds.all
        made = other.make("broker")
        for source, name in ((made, "broker.pem"), (key_of(made), "broker-key.pem")):
            os.replace(source, authority.folder / name)
        both.write_bytes(other.trust.read_bytes())  # who still showed the old one would be refused now
        assert slave.broker is not None
        tls = follower_of(slave).tls
        assert tls is not None
        context = tls.client.context
        await until(lambda: tls.client.context is not context, 10)
        await send(cluster, 20)
        await caught_up(master, slave)
        assert [before] == replication_of(master).feeds.all
        before.close("a test")
        await until(lambda: replication_of(master).feeds.all not in ([], [before]), 20)
        await send(cluster, 20)
        await caught_up(master, slave)
        (feed,) = replication_of(master).feeds.all
        assert isinstance(feed._socket, TlsSocket)
        shown = ssl.DER_cert_to_PEM_cert(feed._socket._line.getpeercert(binary_form=True) or b"")
        assert shown.strip() in (authority.folder / "broker.pem").read_text()


async def test_hand_shakes_that_nobody_finishes_keep_no_slave_out(tmp_path: Path, authority: Authority) -> None:
    async with Cluster(tmp_path, settings(authority)) as cluster:
        master = await cluster.master()
        place = ("127.0.0.1", replication_of(master).config.ha_port)
        strangers = []
        for number in range(3 * MOST_ARRIVING):
            strangers.append(socket.create_connection(place))
            strangers[-1].sendall(b"\x16\x03\x01" if number % 2 else b"")
            await asyncio.sleep(0)
        slave = await cluster.slave()
        await send(cluster, 20)
        await caught_up(master, slave)
        arrivals = replication_of(master).feeds.arrivals
        assert arrivals is not None
        assert len(arrivals._arriving) <= MOST_ARRIVING
        for stranger in strangers:
            stranger.close()


async def test_tls_does_not_stand_in_for_the_ticket(tmp_path: Path, authority: Authority) -> None:
    """With users on, a connection by TLS that does not prove who it is reads nothing."""
    users = {
        "authenticationEnabled": "true",
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"the-secret"}',
    }
    async with Cluster(tmp_path, settings(authority) | users) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await until(lambda: len(replication_of(master).feeds.in_sync()) == 1, 20)
        believing = ssl.create_default_context(cafile=str(authority.trust))
        port = replication_of(master).config.ha_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=believing)
        writer.write(struct.pack(">q", 0))
        assert b"" == await asyncio.wait_for(reader.read(12), 10)
        writer.close()
        assert [True] == lines_of(master)
        assert follower_of(slave).state == "copying"


async def test_brokers_under_a_controller_elect_and_copy_by_tls(tmp_path: Path, authority: Authority) -> None:
    async with Trio(tmp_path, settings(authority)) as trio:
        await trio.start_all(2)
        await trio.in_sync(1, 2)
        master = await trio.master()
        replication = broker_of(master).extensions[0]
        feeds = replication.feeds.all  # type: ignore[attr-defined]
        assert [True] == [isinstance(feed._socket, TlsSocket) for feed in feeds]


async def test_an_analytic_replica_copies_a_cluster_that_speaks_tls_alone(tmp_path: Path, authority: Authority) -> None:
    wanted = settings(authority) | {"tls.server.mode": "enforcing"}
    async with Cluster(tmp_path, wanted) as cluster:
        master = await cluster.master()
        replica = AnalyticReplica(
            cluster.namesrv.namesrv_address,
            "broker-a",
            tmp_path / "archive",
            {
                "tls.enable": "true",
                "tls.ha.mode": "enforcing",
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": str(authority.trust),
            },
        )
        await replica.start()
        try:
            await until(lambda: [True] == lines_of(master), 20)
        finally:
            await replica.stop()


def test_a_mode_without_a_certificate_keeps_a_broker_from_starting(authority: Authority) -> None:
    for wrong, words in (({"tls.ha.mode": "sometimes"}, "expected"), ({"tls.ha.mode": "permissive"}, "certPath")):
        with pytest.raises(ConfigError, match=words):
            ha_tls(wrong, server_tls(wrong), None)
    disabled = {**settings(authority), "tls.server.mode": "disabled"}
    with pytest.raises(ConfigError, match="other than disabled"):
        ha_tls(disabled, server_tls(disabled), None)

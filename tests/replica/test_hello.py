"""Who counts as a slave: those who proved it, where users are on; and nobody twice."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

from pairs import Cluster, caught_up, follower_of, replication_of
from test_pair import send

from arrowmq.clock import SystemClock
from arrowmq.replica.analytic import AnalyticReplica
from arrowmq.replica.hello import HELLO, MOST_TICKETS, Greeting, Tickets
from arrowmq.server import Node
from waiting import until

INNER = json.dumps({"accessKey": "inner", "secretKey": "the-secret"})
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": INNER,
}


async def shown_to(master: Node, data: bytes) -> bytes:
    """What the HA port answers to these bytes, until it closes or has sent a header."""
    assert master.broker is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", master.broker.config.ha_listen_port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(12), 10)
    finally:
        writer.close()


def test_a_hello_is_taken_off_however_it_is_cut() -> None:
    for cut in range(1, 24):
        tickets = Tickets(SystemClock())
        data = HELLO + bytes.fromhex(tickets.give(3))
        greeting = Greeting(tickets)
        assert greeting.take(data[:cut]) is None
        assert greeting.take(data[cut:] + b"rest") == b"rest"
        assert greeting.broker_id == 3


def test_what_is_no_hello_is_apaches_protocol_from_its_first_byte() -> None:
    greeting = Greeting(Tickets(SystemClock()))
    assert greeting.take(b"\x00" * 3) == b"\x00" * 3
    assert greeting.is_over
    assert greeting.broker_id is None
    assert not greeting.is_forged


def test_a_ticket_is_good_once_and_only_so_many_are_kept() -> None:
    tickets = Tickets(SystemClock())
    oldest = bytes.fromhex(tickets.give(1))
    others = [bytes.fromhex(tickets.give(2)) for _ in range(MOST_TICKETS)]
    assert tickets.take(oldest) is None
    assert tickets.take(others[0]) == 2
    assert tickets.take(others[0]) is None


async def test_with_users_on_only_who_proves_it_is_fed_and_counts(tmp_path: Path) -> None:
    sync = {**AUTH, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(sync), await cluster.slave(settings=AUTH)
        await until(lambda: len(replication_of(master).feeds.in_sync()) == 1, 20)
        (feed,) = replication_of(master).feeds.all
        assert feed.greeting.broker_id == 1
        assert follower_of(slave).state == "copying"
        report = struct.pack(">q", 0)
        assert await shown_to(master, report) == b""  # closed: no ticket
        assert await shown_to(master, HELLO + b"x" * 16 + report) == b""  # one that nobody gave
        assert replication_of(master).feeds.all == [feed]
        assert master.broker is not None
        master.broker.config.ha_slave_addresses = "127.0.0.1"  # so an Apache slave is let in
        assert len(await shown_to(master, struct.pack(">q", 0))) in (0, 12)
        await until(lambda: replication_of(master).feeds.all == [feed], 20)


async def test_a_slave_without_the_right_is_refused_with_users_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(AUTH)
        wrong = {**AUTH, "innerClientAuthenticationCredentials": INNER.replace("the-secret", "another")}
        slave = await cluster.slave(settings=wrong)
        await until(lambda: follower_of(slave).reason != "" or replication_of(master).feeds.refused > 0, 20)
        assert replication_of(master).feeds.in_sync() == []


async def test_an_analytic_replica_beside_a_slave_never_counts_in_its_place(tmp_path: Path) -> None:
    """It comes from the host of a registered slave, and first; and with users on it shows who it is."""
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(AUTH)
        replica = AnalyticReplica(
            cluster.namesrv.namesrv_address,
            "broker-a",
            tmp_path / "archive",
            {"innerClientAuthenticationCredentials": INNER},
        )
        await replica.start()
        try:
            slave = await cluster.slave(settings=AUTH)
            feeds = replication_of(master).feeds
            await until(lambda: len(feeds.all) == 2 and len(feeds.in_sync()) == 1, 20)
            assert [feed.greeting.broker_id for feed in feeds.in_sync()] == [1]
            assert follower_of(slave).state == "copying"
        finally:
            await replica.stop()


async def test_without_users_a_hello_says_which_slave_it_is(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master()
        slaves = [await cluster.slave(number=number) for number in (1, 2)]
        await send(cluster, 3)
        for slave in slaves:
            await caught_up(master, slave)
        feeds = replication_of(master).feeds
        await until(lambda: len(feeds.in_sync()) == 2, 20)
        assert {1, 2} == {feed.greeting.broker_id for feed in feeds.in_sync()}

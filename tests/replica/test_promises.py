"""What a SYNC_MASTER promises, and what senders hear when replicas are late, missing or too few."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from pairs import Cluster, caught_up, replication_of, store_of
from test_tables import ask

import arrowmq
from arrowmq.replica.protocol import REPORT
from arrowmq.server import Node
from arrowmq.store.positions import Promise
from arrowmq.wire.codes import RequestCode, ResponseCode
from waiting import until

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "700"}
OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE, SYSTEM_ERROR = 0, 12, 11, 1


async def send(
    node: Node, body: bytes = b"body", *, properties: str = "", code: int = RequestCode.SEND_MESSAGE_V2
) -> int:
    """By the native fast path (V2) or, as SEND_MESSAGE, by the general one; the answer's code."""
    header: dict[str, object] = {
        "a": "P", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties, "j": 0,
        "k": "false", "m": "false",
    }  # fmt: skip
    if code == RequestCode.SEND_MESSAGE:
        header = {
            "producerGroup": "P", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": properties,
        }  # fmt: skip
    return (await ask(node, code, header, body)).code


async def member(cluster: Cluster, master: Node, slave: Node) -> None:
    await until(lambda: len(replication_of(master).feeds.in_sync()) == 1, 10)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_is_answered_once_two_brokers_have_it(tmp_path: Path, code: int) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(SYNC), await cluster.slave()
        await member(cluster, master, slave)
        for number in range(50):
            assert await send(master, f"{number}".encode(), code=code) == OK
            assert store_of(slave).appended == store_of(master).appended


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_without_a_slave_a_sender_hears_so_at_once_and_readers_see_nothing(tmp_path: Path, code: int) -> None:
    """Apache's master lets it wait for its time-out first."""
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master({**SYNC, "slaveTimeout": "60000"})
        async with asyncio.timeout(20):
            assert await send(master, code=code) == SLAVE_NOT_AVAILABLE
            assert await send(master, code=code) == SLAVE_NOT_AVAILABLE
        assert store_of(master).max_offset("orders", 0) == 0
        slave = await cluster.slave()
        await caught_up(master, slave)
        await until(lambda: store_of(master).max_offset("orders", 0) == 2, 10)
        assert await send(master, code=code) == OK


async def test_a_master_that_is_back_before_its_slave_goes_on_where_it_was(tmp_path: Path) -> None:
    """It took every queue for empty until a slave came: readers were sent back to the beginning, delivered timers came
    again in spite of their recall, and a level with delayed messages stood still."""
    async with Cluster(tmp_path, {"messageDelayLevel": "1s 1h"}) as cluster:
        master, slave = await cluster.master(SYNC), await cluster.slave()
        await member(cluster, master, slave)
        for number in range(3):
            assert await send(master, f"{number}".encode()) == OK
        assert await send(master, b"soon", properties="DELAY\x011\x02") == OK
        assert await send(master, b"late", properties="DELAY\x012\x02") == OK
        assert await send(master, b"timed", properties="TIMER_DELAY_MS\x011000\x02") == OK
        await until(lambda: store_of(master).max_offset("orders", 0) == 5, 10)
        await cluster.stop(slave)
        await cluster.stop(master)
        master = await cluster.master(SYNC)
        assert master.broker is not None
        store, services = store_of(master), master.broker.services
        assert store.max_offset("orders", 0) == 5
        assert [1, 0] == [level.offset for level in services.delay_levels.levels]
        assert (1, 1) == (services.delay_levels.pending(2), services.timer.queue_offset)
        assert await send(master, b"not safe") == SLAVE_NOT_AVAILABLE
        assert store.max_offset("orders", 0) == 5
        pull = {
            "consumerGroup": "G", "topic": "orders", "queueId": 0, "queueOffset": 5, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
        }  # fmt: skip
        assert ResponseCode.PULL_NOT_FOUND == (await ask(master, RequestCode.PULL_MESSAGE, pull)).code


class SilentSlave:
    """Speaks Apache's bytes, takes what comes, and acknowledges only what it is told to."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)

    def report(self, offset: int) -> None:
        self.socket.send(REPORT.pack(offset))

    async def close(self) -> None:
        self.socket.close()


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_slave_that_does_not_acknowledge_makes_a_sender_wait_for_the_timeout(tmp_path: Path, code: int) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master({**SYNC, "haSlaveAddresses": "127.0.0.1"})
        silent = SilentSlave(replication_of(master).config.ha_port)
        silent.report(0)
        await until(lambda: len(replication_of(master).feeds.in_sync()) == 1, 10)
        assert await send(master, code=code) == FLUSH_SLAVE_TIMEOUT
        end = int(store_of(master).appended)
        silent.report(end)
        await until(lambda: store_of(master).confirmed == end, 10)
        await silent.close()


async def test_who_is_no_member_copies_but_does_not_count(tmp_path: Path) -> None:
    """Whoever sends eight bytes is a slave to Apache's master; here nobody knows it, so its word is worth nothing."""
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(SYNC)
        stranger = SilentSlave(replication_of(master).config.ha_port)
        stranger.report(0)
        feeds = replication_of(master).feeds
        await until(lambda: feeds.all and feeds.all[0].session.is_begun, 10)
        assert await send(master) == SLAVE_NOT_AVAILABLE
        await until(lambda: feeds.all[0].session.next_offset == store_of(master).appended, 10)
        stranger.report(int(store_of(master).appended))
        await until(lambda: feeds.all[0].acknowledged == store_of(master).appended, 10)
        assert store_of(master).confirmed == 0
        await stranger.close()


async def test_too_few_replicas_refuse_before_anything_is_written(tmp_path: Path) -> None:
    acting = {**SYNC, "enableSlaveActingMaster": "true", "minInSyncReplicas": "2"}
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(acting)
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            answer = await send(master, code=code)
            assert answer == SYSTEM_ERROR
        assert store_of(master).appended == 0
        assert await send(master, properties="WAIT\x01false\x02") == OK


async def test_the_number_follows_the_replicas_that_are_there(tmp_path: Path) -> None:
    acting = {**SYNC, "enableSlaveActingMaster": "true", "enableAutoInSyncReplicas": "true"}
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master(acting)
        positions = store_of(master).positions
        assert await send(master) == OK
        assert positions.promised == Promise()
        slave = await cluster.slave()
        await until(lambda: positions.promised == Promise(replicas=1), 10)
        assert await send(master) == OK
        assert store_of(slave).appended == store_of(master).appended
        await cluster.stop(slave)
        await until(lambda: positions.promised == Promise(), 10)
        assert await send(master) == OK


async def test_a_sync_flush_slave_acknowledges_what_is_on_its_disk(tmp_path: Path) -> None:
    flushing = {"flushDiskType": "SYNC_FLUSH"}
    async with Cluster(tmp_path, flushing) as cluster:
        master, slave = await cluster.master(SYNC), await cluster.slave()
        await member(cluster, master, slave)
        for _ in range(5):
            assert await send(master) == OK
            assert store_of(slave).flushed_position == store_of(slave).appended == store_of(master).appended


async def test_a_waiting_reader_of_a_slave_is_woken_by_the_copy(tmp_path: Path) -> None:
    """The master is gone for readers of this test; what comes with the log ends their wait."""
    async with Cluster(tmp_path, {"slaveReadEnable": "true"}) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
            await producer.send("orders", b"first")
            await caught_up(master, slave)
            assert slave.broker is not None
            theirs = slave.broker
            await until(lambda: "orders" in theirs.topics.table, 10)
            theirs.role.master_is_there = False
            queues = range(theirs.topics.table["orders"].read_queue_nums)
            pulls = [
                asyncio.ensure_future(
                    ask(
                        slave,
                        RequestCode.PULL_MESSAGE,
                        {
                            "consumerGroup": "G", "topic": "orders", "queueId": queue_id,
                            "queueOffset": theirs.store.max_offset("orders", queue_id), "maxMsgNums": 32, "sysFlag": 6,
                            "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0, "subscription": "*",
                        },
                    )
                )
                for queue_id in queues
            ]  # fmt: skip
            await until(lambda: theirs.longpoll.count == len(queues), 10)
            await producer.send("orders", b"second")
            done, left = await asyncio.wait(pulls, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert [each.result().code for each in done] == [0]
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)

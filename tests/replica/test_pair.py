"""A master and its slave: the same log, byte for byte, and what is made from it."""

from __future__ import annotations

from pathlib import Path

from pairs import Cluster, caught_up, follower_of, log_bytes, replication_of, store_of

import arrowmq
from arrowmq.inspect.doctor.facts import BrokerFacts, Facts, NamesrvFacts
from arrowmq.inspect.doctor.replicas import REPLICA_CHECKS, slaves_follow
from arrowmq.store import MessageStore
from waiting import until

SYNC_OF_ONE = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}


def queues_of(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    found = {
        (topic, queue_id): [
            (entry.physical_offset, entry.size, entry.tags_code)
            for entry in store.entries(topic, queue_id, 0, store.max_offset(topic, queue_id))
        ]
        for topic, queue_ids in store.queues().items()
        for queue_id in queue_ids
    }
    return {queue: entries for queue, entries in found.items() if entries}


async def send(cluster: Cluster, count: int, topic: str = "orders", size: int = 1000) -> None:
    async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
        for number in range(count):
            await producer.send(topic, f"{number}".encode() * size, tag="t", keys=[f"k{number}"])


async def test_a_slave_has_its_masters_log_queues_and_index(tmp_path: Path) -> None:
    """Several files long, with a slave that is there from the beginning."""
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 500)
        await caught_up(master, slave)
        ours, theirs = store_of(master), store_of(slave)
        assert ours.appended > 3 * ours.commit_log.file_bytes
        assert queues_of(ours) == queues_of(theirs)
        now = 1 << 60
        assert [bytes(each) for each in ours.query("orders", "k17", 8, 0, now)] == [
            bytes(each) for each in theirs.query("orders", "k17", 8, 0, now)
        ]
        end = int(ours.appended)
        assert log_bytes(tmp_path / "master", 0, end) == log_bytes(tmp_path / "slave1", 0, end)


async def test_a_slave_that_joins_late_gets_everything_from_the_first_byte_on(tmp_path: Path) -> None:
    """Apache's master sends one that has nothing its last file only; ours asks for all that is there."""
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master()
        await send(cluster, 500)
        slave = await cluster.slave()
        await caught_up(master, slave)
        assert store_of(slave).min_physical_offset == 0
        assert queues_of(store_of(master)) == queues_of(store_of(slave))
        end = int(store_of(master).appended)
        assert log_bytes(tmp_path / "master", 0, end) == log_bytes(tmp_path / "slave1", 0, end)


async def test_a_slave_may_begin_with_the_last_file_as_apaches_does(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master()
        await send(cluster, 500)
        slave = await cluster.slave({"haCopyWholeLog": "false"})
        await caught_up(master, slave)
        begin = store_of(slave).min_physical_offset
        assert begin == store_of(master).commit_log.segments[-1].start > 0
        end = int(store_of(master).appended)
        assert log_bytes(tmp_path / "master", begin, end) == log_bytes(tmp_path / "slave1", begin, end)
        for queue_id in store_of(master).queues()["orders"]:
            highest = store_of(master).max_offset("orders", queue_id)
            assert store_of(slave).max_offset("orders", queue_id) == highest
            lowest = store_of(slave).min_offset("orders", queue_id)
            assert 0 < lowest <= highest


async def test_both_sides_go_on_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 100)
        await caught_up(master, slave)
        await cluster.stop(slave)
        await send(cluster, 100)
        slave = await cluster.slave()
        await caught_up(master, slave)
        await cluster.stop(master)
        master = await cluster.master()
        await send(cluster, 100)
        await caught_up(master, slave)
        assert queues_of(store_of(master)) == queues_of(store_of(slave))


async def test_a_master_made_anew_is_not_followed(tmp_path: Path) -> None:
    """What the slave has is another history: it says so, and keeps its own."""
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 50)
        await caught_up(master, slave)
        end = store_of(slave).appended
        await cluster.stop(master)
        master = await cluster.start("another", {"brokerRole": "ASYNC_MASTER"})
        await send(cluster, 10)
        follower = follower_of(slave)
        await until(lambda: follower.state == "refused")
        assert "ends at" in follower.reason
        assert "start this broker as the master" in follower.reason
        await send(cluster, 200)  # now the other log is the longer one
        await until(lambda: "another record" in follower.reason)
        assert store_of(slave).appended == end


async def test_a_pair_can_be_seen(tmp_path: Path) -> None:
    """In the runtime info, in GET_BROKER_HA_STATUS, and by the doctor's checks."""
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 20)
        await caught_up(master, slave)
        ours, theirs = replication_of(master), replication_of(slave)
        await until(lambda: ours.report().in_sync_slave_nums == 1, 10)
        await until(lambda: ours.report().ha_connection_info[0].diff == 0, 10)
        assert ours.report().master is True
        assert theirs.report().ha_client_runtime_info.activated is True
        assert theirs.report().ha_client_runtime_info.max_offset == store_of(master).appended
        assert theirs.runtime()["haState"] == "copying"
        facts = Facts(0, 0)
        facts.brokers = [
            BrokerFacts("broker-a", "c", 0, "m", runtime={"commitLogMaxOffset": "900000000"}, config=SYNC_OF_ONE),
            BrokerFacts("broker-a", "c", 1, "s", runtime={**theirs.runtime(), "commitLogMaxOffset": "5"}),
            BrokerFacts("broker-b", "c", 1, "t", runtime=theirs.runtime()),
        ]
        facts.namesrvs = [
            NamesrvFacts("one", brokers={"broker-a": {0: "m"}}),
            NamesrvFacts("two", brokers={"broker-a": {0: "n"}}),
        ]
        names = {finding.name for check in REPLICA_CHECKS.values() for finding in check(facts)}
        assert {"slave-far-behind", "two-masters", "sync-master-waits-for-nobody"} == names
        facts.brokers[1].runtime["haState"] = "refused"
        assert {"slave-not-connected"} == {finding.name for finding in slaves_follow(facts)}

"""The analytic replica: a growing copy that no client knows of."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import Cluster, log_bytes, replication_of, store_of
from test_pair import queues_of, send

from arrowmq.replica.analytic import AnalyticReplica, NoMaster
from arrowmq.testing.broker import RoomyDisk
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from waiting import until


async def test_a_replica_grows_with_its_broker_and_is_in_no_route(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}) as cluster:
        master = await cluster.master({"brokerRole": "ASYNC_MASTER"})
        await send(cluster, 300)
        replica = AnalyticReplica(cluster.namesrv.namesrv_address, "broker-a", tmp_path / "replica", disk=RoomyDisk())
        await replica.start()
        try:
            assert replica.store is not None
            copy = replica.store
            await until(lambda: copy.appended == store_of(master).appended, 20)
            await send(cluster, 100)
            await until(lambda: copy.appended == store_of(master).appended, 20)
            await until(lambda: queues_of(copy) == queues_of(store_of(master)), 10)
            end = int(copy.appended)
            assert log_bytes(tmp_path / "replica", 0, end) == log_bytes(tmp_path / "master", 0, end)
            assert copy.config.mapped_file_size_commit_log == store_of(master).config.mapped_file_size_commit_log
            assert replication_of(master).members.addresses.keys() <= {0}
            assert replication_of(master).feeds.in_sync() == []
        finally:
            await replica.stop()


async def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.master()
        replica = AnalyticReplica(cluster.namesrv.namesrv_address, "broker-x", tmp_path / "replica")
        with pytest.raises(NoMaster, match="knows no broker broker-x; it knows broker-a"):
            await replica.start()
        await replica.stop()


class WithFalsePort(AnalyticReplica):
    """Hears of an HA port that the master does not have."""

    said = ""

    async def _ask(self, address: str, code: RequestCode) -> Command:
        answer = await super()._ask(address, code)
        if code == RequestCode.GET_BROKER_CONFIG:
            answer.body += b"\nhaListenPort=%s\n" % self.said.encode()
        return answer


@pytest.mark.parametrize("port", ["ten", "0", "70000", "-1"])
async def test_a_master_with_a_port_that_is_none_is_named(tmp_path: Path, port: str) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.master()
        replica = WithFalsePort(cluster.namesrv.namesrv_address, "broker-a", tmp_path / "replica")
        replica.said = port
        with pytest.raises(NoMaster, match=f"says haListenPort={port}, which is no port"):
            await replica.start()
        await replica.stop()

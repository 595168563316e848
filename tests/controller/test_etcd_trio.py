"""Real brokers under two controllers on a real etcd of three members, all of them processes: whatever is killed or
paused, controllers and members of etcd included, messages are taken, none that was acknowledged is lost, and no epoch
has two masters.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from etcd_cluster import EtcdCluster
from oracle import arrow
from oracle.ports import broker_port, free_port
from oracle.process import Server
from oracle.raw import Asking

import arrowmq
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicas, BrokerReplicasInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import GetMetaDataResult
from arrowmq.wire.headers.declare import decode_header
from waiting import until

pytestmark = [pytest.mark.xdist_group("etcd"), pytest.mark.timeout(240)]

NAME, TOPIC = "broker-a", "orders"
SETTINGS = {
    "enableControllerMode": True,
    "allAckInSyncStateSet": True,
    "minInSyncReplicas": 2,
    "mappedFileSizeCommitLog": 1024 * 1024 * 16,
    "controllerHeartBeatTimeoutMills": 3000,
    "brokerHeartbeatInterval": 300,
    "syncBrokerMetadataPeriod": 500,
}
PATIENCE_S = 60.0


class Cluster:
    def __init__(self, folder: Path, etcd: EtcdCluster, stack: ExitStack) -> None:
        self.names = arrow.namesrv(folder / "namesrv", free_port())
        self.controllers = {
            name: arrow.controller(
                folder / name, free_port(), etcd=etcd.endpoints, controllerDLegerSelfId=name, etcdLeaseMs=2000
            )
            for name in ("n0", "n1")
        }
        for server in (self.names, *self.controllers.values()):
            stack.enter_context(server)
        addresses = ";".join(controller.address for controller in self.controllers.values())
        self.brokers: dict[int, Server] = {}
        for number in (1, 2, 3):
            port = broker_port()
            self.brokers[number] = stack.enter_context(
                arrow.broker(
                    *(folder / f"broker-{number}", port, self.names.address),
                    name=NAME,
                    haListenPort=port + 1,
                    controllerAddr=addresses,
                    **SETTINGS,
                )
            )

    async def leader(self) -> str | None:
        """The controller that says of itself that it leads."""
        for name, controller in self.controllers.items():
            found = await _ask(controller.address, RequestCode.CONTROLLER_GET_METADATA_INFO, b"", 1)
            if found is not None and decode_header(GetMetaDataResult, found[0]).is_leader:
                return name
        return None

    async def decided(self) -> BrokerReplicas | None:
        leader = await self.leader()
        if leader is None:
            return None
        body = fastjson.dumps([NAME])
        found = await _ask(self.controllers[leader].address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body, 5)
        return None if found is None else fastjson.loads(found[1], BrokerReplicasInfo).replicas_info_table.get(NAME)

    async def wait(self, is_so: Callable[[BrokerReplicas], bool]) -> BrokerReplicas:
        kept: list[BrokerReplicas] = []

        async def found() -> bool:
            decided = await self.decided()
            if decided is None or not is_so(decided):
                return False
            kept.append(decided)
            return True

        await until(found, PATIENCE_S)
        return kept[-1]

    async def all_in_sync(self) -> BrokerReplicas:
        return await self.wait(lambda decided: len(decided.in_sync_replicas) == 3)

    def masters_by_epoch(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for number, broker in self.brokers.items():
            said = broker.output.read_text(errors="replace")
            for epoch in re.findall(r"this broker is master epoch=(\d+)", said):
                found.setdefault(int(epoch), set()).add(number)
        return found


async def _ask(address: str, code: int, body: bytes, timeout_s: float) -> tuple[dict[str, str], bytes] | None:
    async with Asking(address) as asking:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asking.ask(code, {}, body)
        except (RemotingError, TimeoutError):
            return None
        return (answer.ext, answer.body) if answer.code == ResponseCode.SUCCESS else None


class Load:
    """Sends one message after another, and repeats what failed."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self.acknowledged: list[str] = []
        self._task = asyncio.ensure_future(self._send())
        self._is_over = False

    async def _send(self) -> None:
        async with arrowmq.Producer(self._namesrv, timeout_s=5) as producer:
            number = 0
            while not self._is_over:
                try:
                    receipt = await producer.send(TOPIC, f"{number}".encode())
                except arrowmq.ArrowMQError:
                    await asyncio.sleep(0.05)
                    continue
                if receipt.status.name == "SEND_OK":
                    self.acknowledged.append(f"{number}")
                    number += 1
                await asyncio.sleep(0.005)

    async def goes_on(self) -> None:
        assert not self._task.done(), "the load has ended"
        so_far = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > so_far + 10, PATIENCE_S)

    async def stop(self) -> None:
        self._is_over = True
        await self._task


async def delivered(namesrv: str, wanted: set[str]) -> list[str]:
    found: list[str] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        arrowmq.Consumer(namesrv, group="all", topic=TOPIC, consume_from="first") as consumer,
    ):
        async for message in consumer:
            found.append(message.body.decode())
            await message.ack()
            if wanted <= set(found):
                break
    return found


async def test_brokers_fail_over_while_controllers_and_members_of_etcd_are_killed_and_paused(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", 3) as etcd, ExitStack() as stack:
        cluster = Cluster(tmp_path, etcd, stack)
        await cluster.all_in_sync()
        load = Load(cluster.names.address)
        await load.goes_on()

        leader = await cluster.leader()
        assert leader is not None
        cluster.controllers[leader].kill()
        await load.goes_on()
        first = await cluster.all_in_sync()  # the other leads by now, with what was decided
        assert first.master_broker_id is not None
        cluster.controllers[leader].start()

        etcd.kill(etcd.leader())
        cluster.brokers[first.master_broker_id].kill()
        second = await cluster.wait(lambda decided: decided.master_epoch > first.master_epoch)
        assert second.master_broker_id not in (None, first.master_broker_id)
        await load.goes_on()
        cluster.brokers[first.master_broker_id].start()
        etcd.mend()
        second = await cluster.all_in_sync()
        assert second.master_broker_id is not None

        # The one that leads stands still, and the master is lost: the other controller elects, and when the first
        # wakes, what it would decide has no effect.
        leader = await cluster.leader()
        assert leader is not None
        paused = cluster.controllers[leader].pid
        os.kill(paused, signal.SIGSTOP)
        try:
            cluster.brokers[second.master_broker_id].kill()
            third = await cluster.wait(lambda decided: decided.master_epoch > second.master_epoch)
            await load.goes_on()
        finally:
            os.kill(paused, signal.SIGCONT)
        await load.goes_on()
        cluster.brokers[second.master_broker_id].start()
        last = await cluster.all_in_sync()
        assert (third.master_broker_id, third.master_epoch) == (last.master_broker_id, last.master_epoch)

        await load.stop()
        wanted = set(load.acknowledged)
        assert wanted <= set(await delivered(cluster.names.address, wanted))
        masters = cluster.masters_by_epoch()
        assert {first.master_epoch, second.master_epoch, third.master_epoch} <= masters.keys()
        assert all(len(numbers) == 1 for numbers in masters.values()), masters

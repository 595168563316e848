"""Acknowledged means kept by two: the master is killed (-9) again and again under load, and its slave has everything.

The short form kills a few times; ARROWMQ_KILLS says how often (`make replica-soak`: 50 times and more).
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from oracle.ports import broker_port
from pairs import SMALL, Cluster, follower_of, store_of

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.server import Node
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import decode_record
from waiting import until

KILLS = int(os.environ.get("ARROWMQ_KILLS", "4"))
LANES = 16

pytestmark = pytest.mark.timeout(60 + 60 * KILLS)


class MasterProcess:
    """A SYNC_MASTER in a process of its own, on a port that it keeps."""

    def __init__(self, folder: Path, namesrv: str, port: int, settings: dict[str, str]) -> None:
        self.address = f"127.0.0.1:{port}"
        words = [f"--set={key}={value}" for key, value in {**SMALL, **settings, "brokerRole": "SYNC_MASTER"}.items()]
        where = ["-n", namesrv, "--port", str(port), "--dir", str(folder)]
        code = "import sys; from arrowmq.cli import main; sys.exit(main())"
        self._command = [sys.executable, "-c", code, "broker", *where, *words, "--stop-with-stdin"]
        self._log = folder.parent / "master.log"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as errors:
            self.process = await asyncio.to_thread(
                subprocess.Popen, self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line.startswith(b"ready"), self._log.read_text()[-2000:]

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await asyncio.to_thread(self.process.communicate)


class Load:
    """Sends without an end; what was answered with success is acknowledged."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: set[bytes] = set()
        self.is_over = False
        self._number = 0

    async def lane(self, name: int) -> None:
        client = RemotingClient()
        while not self.is_over:
            self._number += 1
            body = b"%d-%d" % (name, self._number)
            header = {
                "a": "P", "b": "orders", "c": "TBW102", "d": "4", "e": str(name % 4), "f": "0", "g": "1", "h": "0",
                "i": "", "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            try:
                answer = await client.invoke(
                    self.address, Command.request(RequestCode.SEND_MESSAGE_V2, header, body), 5
                )
            except (RemotingError, OSError):
                await asyncio.sleep(0.02)
                continue
            if answer.code == 0:
                self.acknowledged.add(body)
            else:
                await asyncio.sleep(0.01)
        await client.close()


def bodies_of(node: Node) -> set[bytes]:
    store = store_of(node)
    found = set()
    for queue_id in store.queues().get("orders", []):
        # A slave that comes late begins with the master's last file: its queues do not begin at 0 then.
        first, end = store.min_offset("orders", queue_id), store.max_offset("orders", queue_id)
        for entry in store.entries("orders", queue_id, first, end - first):
            data = store.record_bytes_at(entry.physical_offset)
            assert data is not None
            found.add(bytes(decode_record(data).body))
    return found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_the_slave_has_every_acknowledged_message_whenever_the_master_is_killed(
    tmp_path: Path, flush: str
) -> None:
    chance = random.Random(7)
    settings = {"inSyncReplicas": "2", "slaveTimeout": "3000", "flushDiskType": flush}
    async with Cluster(tmp_path, {"flushDiskType": flush}) as cluster:
        slave = await cluster.slave()
        port = broker_port()
        master = MasterProcess(tmp_path / "master", cluster.namesrv.namesrv_address, port, settings)
        await master.start()
        load = Load(master.address)
        lanes = [asyncio.ensure_future(load.lane(number)) for number in range(LANES)]
        try:
            for _ in range(KILLS):
                enough = len(load.acknowledged) + chance.randrange(50, 600)
                await until(lambda enough=enough: len(load.acknowledged) >= enough, 60)
                await master.kill()
                # What it acknowledged, the slave has already: nothing that comes later is waited for.
                assert load.acknowledged <= bodies_of(slave)
                await master.start()
        finally:
            load.is_over = True
            await asyncio.gather(*lanes, return_exceptions=True)
            await master.kill()
        assert load.acknowledged <= bodies_of(slave)
        assert follower_of(slave).state != "refused"

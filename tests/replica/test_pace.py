"""How often a master sends: what nobody waits for gathers, what somebody waits for does not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pairs import Cluster, replication_of
from test_pair import send

from arrowmq.replica.feeds import TICK_S
from arrowmq.replica.protocol import PACKET, REPORT
from arrowmq.server import Node


class PromptSlave:
    """Acknowledges every packet as soon as it has it."""

    def __init__(self) -> None:
        self.packets = 0

    async def follow(self, master: Node) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", replication_of(master).config.ha_port)
        writer.write(REPORT.pack(0))
        try:
            while True:
                offset, size = PACKET.unpack(await reader.readexactly(PACKET.size))
                if size:
                    await reader.readexactly(size)
                    self.packets += 1
                writer.write(REPORT.pack(offset + size))
        finally:
            writer.close()


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_an_acknowledgement_brings_no_packet_of_its_own(role: str, tmp_path: Path) -> None:
    """Once each acknowledgement brought what had come since: hundreds of packets a second, of a few records each."""
    async with Cluster(tmp_path) as cluster:
        settings = {"haSlaveAddresses": "127.0.0.1", "inSyncReplicas": "2" if role == "SYNC_MASTER" else "1"}
        master = await cluster.master({**settings, "brokerRole": role})
        slave = PromptSlave()
        following = asyncio.ensure_future(slave.follow(master))
        await send(cluster, 20)
        before, began = slave.packets, time.monotonic()
        await send(cluster, 400, size=10)
        looks = (time.monotonic() - began) / TICK_S
        sent = slave.packets - before
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    if role == "ASYNC_MASTER":
        assert sent <= looks + 2
    else:
        assert sent >= 400  # one after the other, each of them waited for

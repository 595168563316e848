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
    """Acknowledges every packet as soon as it has it, or the one before it."""

    def __init__(self, *, is_behind: bool = False) -> None:
        self.packets = 0
        self._is_behind = is_behind

    async def follow(self, master: Node) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", replication_of(master).config.ha_port)
        writer.write(REPORT.pack(0))
        try:
            while True:
                offset, size = PACKET.unpack(await reader.readexactly(PACKET.size))
                if size:
                    await reader.readexactly(size)
                    self.packets += 1
                writer.write(REPORT.pack(offset if self._is_behind else offset + size))
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


async def test_a_slave_that_keeps_up_is_not_counted_as_late_because_it_is_never_level(tmp_path: Path) -> None:
    """Under load there is always something that was written since it was last sent anything. Once its lag in seconds
    was the time since it was last level, and under a controller that decided whether it stayed in the set."""
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master()
        slave = PromptSlave(is_behind=True)
        following = asyncio.ensure_future(slave.follow(master))
        began = time.monotonic()
        while time.monotonic() < began + 2 or slave.packets < 20:
            await send(cluster, 50, size=10)
        (feed,) = replication_of(master).feeds.all
        behind_s = replication_of(master).lag_s()
        assert feed.lag > 0
        assert behind_s < 1
        assert master.broker is not None
        assert master.broker.clock.monotonic() - feed.caught_up_s < 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

"""How often a master sends: what nobody waits for gathers, what somebody waits for does not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pairs import Cluster, log_bytes, replication_of
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


async def test_a_slave_is_woken_by_the_rest_of_a_packet_however_small_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the rest of a packet as a whole. Once it still waited for that of the packet before, where it had
    let others have their turn amid the next: the last messages before a pause came with the next ones."""
    monkeypatch.setattr("arrowmq.replica.follower.BYTES_AN_ITERATION", 100_000)
    async with Cluster(tmp_path / "source") as cluster:
        await cluster.master()
        await send(cluster, 220)
        log = log_bytes(tmp_path / "source" / "master", 0, 210_000)
    reported: asyncio.Queue[int] = asyncio.Queue()

    async def until_reported(end: int) -> None:
        while await reported.get() < end:
            pass

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def hear() -> None:
            while data := await reader.readexactly(REPORT.size):
                reported.put_nowait(REPORT.unpack(data)[0])

        hearing = asyncio.ensure_future(hear())
        try:
            writer.write(PACKET.pack(0, 200_000) + log[:1000])
            await until_reported(1000)
            writer.write(log[1000:200_000] + PACKET.pack(200_000, 3000))
            await until_reported(200_000)
            writer.write(log[200_000:203_000])
            await until_reported(203_000)
            is_there.set()
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
            writer.close()

    is_there = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Cluster(tmp_path / "copy") as cluster:
        await cluster.slave({"haMasterAddress": address})
        await asyncio.wait_for(is_there.wait(), 10)
    server.close()

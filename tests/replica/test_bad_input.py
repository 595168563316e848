"""Whatever comes to the HA port: closed or bounded, said in the log, and nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from pathlib import Path

import pytest
from pairs import FILE_BYTES, Cluster, caught_up, follower_of, replication_of, store_of
from test_pair import send

from arrowmq.config import ConfigError
from arrowmq.replica.controlled.epochs import EpochFile
from arrowmq.replica.controlled.identity import IdentityFiles
from arrowmq.replica.controlled.protocol import (
    EPOCH_ENTRY,
    MASTER_HANDSHAKE,
    MOST_HANDSHAKES,
    EpochMasterSession,
    slave_handshake,
)
from arrowmq.replica.protocol import PACKET, REPORT, LogBounds, MasterSession, Packet, ProtocolError, SlaveSession
from arrowmq.server import Node
from arrowmq.store.copied_log import CopiedLog, CopyRefused
from arrowmq.store.disk import Disk
from waiting import until

LOG = LogBounds(1000, 5000, 1000)


def port_of(node: Node) -> int:
    return replication_of(node).config.ha_port


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(node))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "ends at"),
        (REPORT.pack(-5), "which is none"),
        (REPORT.pack(1 << 60), "ends at"),
        (b"\xff" * 4096, "which is none"),
        (REPORT.pack(0) + REPORT.pack(1 << 40), "was sent no more"),
    ],
)
async def test_garbage_is_said_and_closed_and_the_slave_goes_on(
    tmp_path: Path, data: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 5)
        reader, writer = await connect(master)
        writer.write(data)
        while await reader.read(65536):  # it may be sent the log first, and then the end
            pass
        writer.close()
        assert says in caplog.text
        await send(cluster, 5)
        await caught_up(master, slave)


async def test_half_a_report_and_silence_are_closed_after_the_housekeeping_time(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master = await cluster.master({"haHousekeepingInterval": "300"})
        silent, half = await connect(master), await connect(master)
        half[1].write(REPORT.pack(0)[:5])
        for reader, writer in (silent, half):
            assert await reader.read() == b""
            writer.close()
        assert replication_of(master).feeds.all == []


async def test_a_slave_that_never_reads_costs_no_memory_and_holds_nobody_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        stuck = socket.create_connection(("127.0.0.1", port_of(master)))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.send(REPORT.pack(0))
        await send(cluster, 1500, size=4000)
        await caught_up(master, slave)
        feeds = replication_of(master).feeds
        behind = max(feeds.all, key=lambda feed: feed.lag)
        assert behind.lag == store_of(master).appended  # it acknowledged nothing
        assert len(behind._header) <= PACKET.size
        stuck.close()
        await until(lambda: len(feeds.all) == 1, 10)


class FalseMaster:
    """Speaks Apache's bytes, and says what a test wants it to."""

    def __init__(self, *packets: bytes) -> None:
        self.packets = packets
        self.reports: list[int] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.reports.append(REPORT.unpack(await reader.readexactly(REPORT.size))[0])
            for packet in self.packets:
                writer.write(packet)
            while await reader.read(4096):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (PACKET.pack(0, 64) + b"\x7f" * 64, "no record starts here"),
        (PACKET.pack(0, 16) + struct.pack(">II", 1 << 30, 0xDAA320A7) + bytes(8), "say they are a record of"),
        (PACKET.pack(-8, 4) + bytes(4), "cannot be"),
        (PACKET.pack(0, -1), "cannot be"),
        (PACKET.pack(0, 1 << 30), "cannot be"),
        (PACKET.pack(FILE_BYTES // 2, 64) + bytes(64), "begins at the start of a file"),
    ],
)
async def test_a_slave_says_what_is_wrong_with_a_master_and_keeps_nothing_of_it(
    tmp_path: Path, packet: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    false = FalseMaster(packet)
    port = await false.start()
    async with Cluster(tmp_path) as cluster:
        slave = await cluster.slave({"haMasterAddress": f"127.0.0.1:{port}"})
        await until(lambda: says in caplog.text, 20)
        await until(lambda: len(false.reports) > 1, 20)  # it comes again
        assert store_of(slave).queues().get("orders") is None
        assert follower_of(slave).received_bytes < 1 << 20
    await false.stop()


def test_a_master_session_takes_reports_in_any_pieces() -> None:
    session = MasterSession()
    data = REPORT.pack(2000) + REPORT.pack(2000)
    for place in range(len(data)):
        session.take(data[place : place + 1], LOG)
    assert session.next_offset == 2000
    assert session.packet(LOG, 10_000) == Packet(2000, 1000)  # never over the end of a file
    session.header(Packet(2000, 1000))
    assert session.take(REPORT.pack(2500)[:3], LOG) is False
    assert session.take(REPORT.pack(2500)[3:], LOG) is True
    assert session.acknowledged == 2500
    with pytest.raises(ProtocolError, match="was sent no more"):
        session.take(REPORT.pack(3001), LOG)


@pytest.mark.parametrize(("asked", "begins"), [(0, 5000), (1000, 1000), (5000, 5000)])
def test_where_a_master_begins(asked: int, begins: int) -> None:
    """As Apache's does: one that has nothing gets the last file."""
    session = MasterSession()
    session.take(REPORT.pack(asked), LOG)
    assert session.next_offset == begins


@pytest.mark.parametrize("asked", [-1, 999, 5001, 1 << 62])
def test_offsets_that_a_master_does_not_have_are_refused(asked: int) -> None:
    with pytest.raises(ProtocolError):
        MasterSession().take(REPORT.pack(asked), LOG)


def test_a_slave_session_refuses_what_cannot_be() -> None:
    session = SlaveSession(1000)
    assert session.packet(PACKET.pack(0, 1000)) == Packet(0, 1000)
    for offset, size in ((-1, 0), (0, -1), (0, 1001)):
        with pytest.raises(ProtocolError):
            session.packet(PACKET.pack(offset, size))


async def test_a_copy_refuses_gaps_and_wrong_offsets(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await send(cluster, 5)
        await caught_up(master, slave)
        copy = follower_of(slave).copy
        assert isinstance(copy, CopiedLog)
        end = int(copy.end)
        for offset in (0, end - 1, end + 1):
            with pytest.raises(CopyRefused, match="this log ends at"):
                copy.place(offset, 10)
        with pytest.raises(CopyRefused, match="cannot begin again"):
            copy.begin_at(0)
        assert copy.end == end


def test_a_master_answers_only_so_many_handshakes(tmp_path: Path) -> None:
    """Each answer is as long as the list of epochs: one that only shakes hands, and never reads, would fill memory."""
    epochs = EpochFile(tmp_path / "epochs", Disk())
    for number in range(100):
        epochs.append(number, number)
    session = EpochMasterSession(epochs, lambda: 0)
    hello = slave_handshake(2, wants_last_file=False, is_learner=False)
    session.take(hello * MOST_HANDSHAKES, LOG)  # Apache's slave repeats it until it is answered
    answers = len(session.replies())
    with pytest.raises(ProtocolError, match="asks for nothing"):
        session.take(hello * 1000, LOG)
    assert answers == MOST_HANDSHAKES * (MASTER_HANDSHAKE.size + 100 * EPOCH_ENTRY.size)
    assert b"" == session.replies()


@pytest.mark.parametrize("broker_id", ["", "0", "-1", "²", "x", "1#more"])
def test_an_identity_that_makes_no_sense_is_named(tmp_path: Path, broker_id: str) -> None:
    """A digit in another script counts as one, and is no number."""
    path = tmp_path / "brokerIdentity"
    path.write_text(f"cluster#broker-a#{broker_id}")
    with pytest.raises(ConfigError, match="is damaged"):
        IdentityFiles(path, Disk(), "cluster", "broker-a").load()

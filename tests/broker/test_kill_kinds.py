"""The broker as a process, killed (-9) in the middle: no committed transaction is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frame import Command
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.record import decode_records

pytestmark = pytest.mark.timeout(170)
COMMIT, ROLLBACK = 8, 12


def free_ports() -> tuple[int, int]:
    """A port for the NameServer, and one for the broker, which takes the one two below as well."""
    for port in range(random.randrange(20_000, 50_000), 60_000, 7):
        with socket.socket() as broker, socket.socket() as fast, socket.socket() as names:
            try:
                broker.bind(("127.0.0.1", port))
                fast.bind(("127.0.0.1", port - 2))
                names.bind(("127.0.0.1", 0))
            except OSError:
                continue
            return int(names.getsockname()[1]), port
    raise AssertionError("no free ports")


class Process:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names_port, self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        self.client = RemotingClient()

    def start(self) -> None:
        settings = [
            "brokerIP1=127.0.0.1",
            "brokerName=broker-a",
            "mappedFileSizeCommitLog=1048576",
            "maxHashSlotNum=5000",
            "maxIndexNum=20000",
        ]
        program = "import sys; from arrowmq.cli import main; sys.exit(main())"
        where = ["--dir", str(self.folder), "--namesrv-port", str(self.names_port), "--port", str(self.port)]
        options = [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "server", *where, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("ready"):
                return
        raise AssertionError("".join(said))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    async def crash(self) -> None:
        self.kill()
        await self.client.close()
        self.client = RemotingClient()
        await asyncio.to_thread(self.start)

    async def ask(self, code: int, header: dict[str, Any], body: bytes = b"") -> Command | None:
        """The answer, or None if the broker died before it gave one."""
        texts = {name: str(value) for name, value in header.items()}
        try:
            return await self.client.invoke(self.address, Command.request(code, texts, body), 10)
        except RemotingError:
            return None

    async def send(self, body: bytes, properties: str, queue_id: int = 0) -> Command | None:
        header = {
            "producerGroup": "P", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "bornTimestamp": 1, "properties": properties,
        }  # fmt: skip
        answer = await self.ask(RequestCode.SEND_MESSAGE, header, body)
        assert answer is None or answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def bodies(self, topic: str = "orders") -> list[bytes]:
        """Everything in queue 0 of a topic."""
        found: list[bytes] = []
        while True:
            header = {
                "consumerGroup": "G", "topic": topic, "queueId": 0, "queueOffset": len(found), "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
            }  # fmt: skip
            answer = await self.ask(RequestCode.PULL_MESSAGE, header)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return found
            found += [record.body for record in decode_records(answer.body)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    process.start()
    yield process
    process.kill()


async def killed_while(broker: Process, work: Any, after_s: float) -> None:
    """Lets some work run and kills the broker in the middle of it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=after_s)
    broker.kill()
    await task
    await broker.crash()


async def test_every_transaction_is_decided_once_whatever_is_killed(broker: Process) -> None:
    chance = random.Random(5)
    halves: dict[bytes, tuple[int, int, int]] = {}

    async def begin_and_end(number: int) -> None:
        for index in range(400):
            name, how = b"%d-%d" % (number, index), chance.choice((COMMIT, ROLLBACK))
            answer = await broker.send(name, "TRAN_MSG\x01true\x02PGROUP\x01P\x02")
            if answer is None:
                return
            place = parse_offset_message_id(answer.ext["msgId"]).physical_offset
            halves[name] = (int(answer.ext["queueOffset"]), place, how)
            await end(name)

    async def end(name: bytes) -> Command | None:
        offset, place, how = halves[name]
        header = {
            "producerGroup": "P", "tranStateTableOffset": offset, "commitLogOffset": place, "commitOrRollback": how,
            "fromTransactionCheck": "false", "msgId": "",
        }  # fmt: skip
        return await broker.ask(RequestCode.END_TRANSACTION, header)

    for number in range(4):
        await killed_while(broker, begin_and_end(number), 0.1 + chance.random() * 0.4)
    assert len(halves) > 4
    for _ in range(2):
        for name in halves:  # every end again, and again: some were lost, the others are repeated
            answer = await end(name)
            assert answer is not None
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    published = await broker.bodies()
    wanted = [name for name, (_, _, how) in halves.items() if how == COMMIT]
    assert sorted(published) == sorted(wanted)


async def test_every_delayed_message_comes_once_and_in_order_whatever_is_killed(broker: Process) -> None:
    chance = random.Random(6)
    stored: list[bytes] = []

    async def send(number: int) -> None:
        for index in range(5000):
            name = b"%d-%d" % (number, index)
            if await broker.send(name, "DELAY\x011\x02") is None:
                return
            stored.append(name)

    for number in range(4):
        await killed_while(broker, send(number), 1.1 + chance.random() * 0.5)  # deliveries are under way by then
    came: list[bytes] = []
    while not set(stored) <= set(came):
        came = await broker.bodies()
        await asyncio.sleep(0)
    # One send of each round may have been stored without its answer.
    assert [name for name in came if name in set(stored)] == stored
    assert len(set(came)) == len(came) <= len(stored) + 4

"""A broker as a process of its own that is killed (-9) at seeded moments while clients work with it.

ARROWMQ_SEEDS says how many seeds each scene is played with (one by default; `make kinds-soak` takes more), ARROWMQ_SEED
which is the first.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from oracle.ports import broker_port, free_port

from arrowmq.client.errors import ArrowMQError
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record, decode_records
from waiting import pause

FIRST_SEED = int(os.environ.get("ARROWMQ_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("ARROWMQ_SEEDS", "1")))
KILLS = 3
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}
#: Clients that notice a new broker within a second instead of half a minute.
ALERT: dict[str, Any] = {"heartbeat_interval_s": 0.5, "poll_namesrv_interval_s": 1.0, "request_timeout_s": 1.0}


class BrokerProcess:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.chance = random.Random(seed)
        self.names_port, self.port = free_port(), broker_port()
        self.namesrv, self.address = f"127.0.0.1:{self.names_port}", f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        self.client = RemotingClient()

    def start(self) -> None:
        program = "import sys; from arrowmq.cli import main; sys.exit(main())"
        where = ["--dir", str(self.folder), "--namesrv-port", str(self.names_port), "--port", str(self.port)]
        options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "server", "--no-proxy", *where, *options],
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

    async def killed_while(self, work: Coroutine[Any, Any, Any], *, kills: int = KILLS, every_s: float = 0.6) -> None:
        """Lets work run that goes on over crashes, and kills the broker several times in the middle of it."""
        task = asyncio.ensure_future(work)
        for _ in range(kills):
            await asyncio.wait([task], timeout=every_s * (0.5 + self.chance.random()))
            await self.crash()
        await task

    async def ask(self, code: int, header: dict[str, Any], body: bytes = b"") -> Command | None:
        """The answer, or None if the broker died before it gave one."""
        texts = {name: str(value) for name, value in header.items()}
        try:
            return await self.client.invoke(self.address, Command.request(code, texts, body), 10)
        except RemotingError:
            return None

    async def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Everything in a queue."""
        found: list[Record] = []
        while True:
            header = {
                "consumerGroup": "G", "topic": topic, "queueId": queue_id, "queueOffset": len(found), "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
            }  # fmt: skip
            answer = await self.ask(RequestCode.PULL_MESSAGE, header)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return found
            found += decode_records(answer.body)

    async def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in await self.records(topic, queue_id)]


async def insistently(deed: Callable[[], Awaitable[Any]]) -> Any:
    """A deed again and again until the broker is there and does it, as a program that must not lose anything does."""
    while True:
        try:
            return await deed()
        except (ArrowMQError, RemotingError):
            await pause()

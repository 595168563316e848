"""A NameServer of ours with a master and a slave, each of them ours or Apache's, and what is asked of both."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import arrowmq
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import KVTable
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from oracle import apache, arrow
from oracle.ports import broker_port, free_port
from oracle.process import Server
from oracle.scene import SOAK
from waiting import until

FILE_BYTES = 1 << 20
CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "slaveReadEnable": True,
    "timerWheelEnable": True,
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "defaultTopicQueueNums": 4,
}
APACHE_ONLY: dict[str, Any] = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30000}
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
PAIRS = [("arrowmq", "arrowmq"), ("apache", "arrowmq"), ("arrowmq", "apache")]
if SOAK:
    PAIRS.append(("apache", "apache"))  # what its own pair shows in the same script


def broker(kind: str, folder: Path, port: int, namesrv: str, **config: Any) -> Server:
    if kind == "apache":
        return apache.broker(folder, port, namesrv, None, **{**CONFIG, **APACHE_ONLY, **config})
    return arrow.broker(folder, port, namesrv, **{**CONFIG, **config})


class Pair:
    def __init__(self, stack: ExitStack, folder: Path, master: str, slave: str) -> None:
        self.folder = folder
        self.names = stack.enter_context(arrow.namesrv(folder / "namesrv", free_port()))
        roles = {"master": {"brokerRole": "ASYNC_MASTER"}, "slave": {"brokerRole": "SLAVE", "brokerId": 1}}
        self.master = broker(master, folder / "master", broker_port(), self.names.address, **roles["master"])
        self.slave = broker(slave, folder / "slave", broker_port(), self.names.address, **roles["slave"])
        self.remoting = RemotingClient()
        for server in (self.master, self.slave):
            stack.callback(server.stop)

    async def ask(self, server: Server, code: int, ext: dict[str, Any] | None = None) -> Command:
        texts = {name: str(value) for name, value in (ext or {}).items()}
        return await self.remoting.invoke(server.address, Command.request(code, texts), 10)

    async def bounds(self, server: Server) -> tuple[int, int]:
        answer = await self.ask(server, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = fastjson.loads(answer.body, type=KVTable).table
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])

    async def caught_up(self, timeout_s: float = 60) -> None:
        async def same() -> bool:
            master = (await self.bounds(self.master))[1]
            return (await self.bounds(self.slave))[1] == master > 0

        await until(same, timeout_s)

    def log(self, side: str, begin: int, end: int) -> bytes:
        data = bytearray()
        for path in sorted((self.folder / side / "store" / "commitlog").iterdir()):
            start = int(path.name)
            if start < end and start + FILE_BYTES > begin:
                data += path.read_bytes()[max(0, begin - start) : end - start]
        return bytes(data)

    async def max_offsets(self, server: Server, topic: str, queues: int) -> list[int]:
        found = []
        for queue_id in range(queues):
            answer = await self.ask(server, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
            found.append(int(answer.ext.get("offset", "-1")))
        return found

    async def has(self, topic: str, wanted: list[int]) -> bool:
        """Whether the slave's queues of a topic end there."""
        return await self.max_offsets(self.slave, topic, len(wanted)) == wanted


async def flood(pair: Pair, topic: str, begin: int, end: int) -> None:
    """Messages of all kinds: plain, batched, with delays, timers and transactions; and pops, half of them in flight."""
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(
            arrowmq.Producer(
                pair.names.address, timeout_s=10, transaction_checker=lambda half: arrowmq.TransactionState.COMMIT
            )
        )
        popping: arrowmq.SimpleConsumer | None = None
        number = begin
        while number < end:
            batch = [
                arrowmq.Message(topic, f"{each}".encode() + b"x" * 200, keys=[f"k{each}"], tag=f"t{each % 3}")
                for each in range(number, min(end, number + 40))
            ]
            await producer.send_batch(batch)
            singles = [producer.send(topic, f"s{number + each}".encode() * 20) for each in range(8)]
            await asyncio.gather(*singles)
            if number % 400 == 0:
                await producer.send(topic, b"delayed", delay_level=1)
                await producer.send(topic, b"timed", delay=2)
                async with producer.transaction(topic, b"half"):
                    pass
                if popping is None:
                    popping = await stack.enter_async_context(
                        arrowmq.SimpleConsumer(
                            pair.names.address, group="poppers", topic=topic, invisible_s=15, wait_s=1
                        )
                    )
                for popped in (await popping.receive(16))[::2]:
                    await popped.ack()
            number += 40

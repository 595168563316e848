"""What messages that wait cost a broker beside disk: delays, open transactions, retries.

    python -m benchmarks.pending [DELAYS [TRANSACTIONS [RETRIES]]]      a million, 100,000 and 100,000; --rest SECONDS

Starts `arrowmq server`, lets it rest, stores the waiting messages of each kind, lets it rest again, and states its own
memory (anonymous pages: mapped files are the disk's) and the CPU it uses at rest. Exit code 1 if a kind has cost more
than 50 MB, or if the CPU at rest is more than half a percent of a core above what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from oracle.ports import broker_port, free_port

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_offset_message_id
from benchmarks.silent_connections import cpu_s

AT_ONCE = 256
WARM = 2_000
MEMORY_LIMIT_MB = 50.0
CPU_LIMIT_PERCENT = 0.5
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    # Nobody would answer a check, and every check writes the half message anew: what is measured is waiting.
    "transactionTimeOut": "86400000",
}


def anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not tell how much memory a process has of its own")


class Broker:
    def __init__(self, folder: str) -> None:
        port = broker_port()
        options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        where = ["--dir", folder, "--namesrv-port", str(free_port()), "--port", str(port)]
        program = [sys.executable, "-c", "import sys; from arrowmq.cli import main; sys.exit(main())"]
        self.process = subprocess.Popen(
            [*program, "server", *where, *options, "--log-level", "error"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ready"):
                break
        else:
            raise RuntimeError("the server did not start")
        self.address, self.pid = f"127.0.0.1:{port}", self.process.pid
        self.client = RemotingClient()

    async def ask(self, code: int, header: dict[str, str], body: bytes = b"") -> Command:
        answer = await self.client.invoke(self.address, Command.request(code, header, body), 60)
        if answer.code != 0:
            raise RuntimeError(f"{code}: {answer.code} {answer.remark}")
        return answer

    async def send(self, number: int, properties: str, sys_flag: int = 0) -> Command:
        header = {
            "producerGroup": "P", "topic": "pending", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": str(number % 4), "sysFlag": str(sys_flag), "bornTimestamp": "1", "flag": "0",
            "properties": f"UNIQ_KEY\x01{number:032X}\x02{properties}",
        }  # fmt: skip
        return await self.ask(RequestCode.SEND_MESSAGE, header, b"x" * 100)

    async def delay(self, number: int) -> None:
        await self.send(number, "DELAY\x0118\x02")

    async def transaction(self, number: int) -> None:
        await self.send(number, "TRAN_MSG\x01true\x02PGROUP\x01P\x02", sys_flag=4)

    async def retry(self, number: int) -> None:
        header = {"offset": str(self.place), "group": "waiting", "delayLevel": "18", "originTopic": "pending"}
        await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**header, "unitMode": "false"})

    async def prepare(self) -> None:
        answer = await self.send(0, "")
        self.place = parse_offset_message_id(answer.ext["msgId"]).physical_offset
        body = b'{"groupName":"waiting","retryQueueNums":1,"retryMaxTimes":16}'
        await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        for deed in (self.delay, self.transaction, self.retry):
            await many(deed, 0, WARM)

    async def at_rest(self, rest_s: float) -> tuple[float, float]:
        """Its own memory in MB, and the CPU it uses while nobody asks anything, in percent of a core."""
        before, began = cpu_s(self.pid), time.perf_counter()
        await asyncio.sleep(rest_s)
        percent = 100 * (cpu_s(self.pid) - before) / (time.perf_counter() - began)
        return anonymous_kib(self.pid) * 1024 / 1e6, percent

    async def end(self) -> None:
        await self.client.close()
        self.process.terminate()
        self.process.wait()


async def many(deed: Callable[[int], Awaitable[None]], first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def lane() -> None:
        for number in numbers:
            await deed(number)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


async def measure(counts: dict[str, int], rest_s: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="arrowmq-pending-") as folder:
        broker = Broker(folder)
        try:
            await broker.prepare()
            memory, percent = first_memory, first_percent = await broker.at_rest(rest_s)
            print(f"{'at first':<28} memory {memory:7.1f} MB                  CPU at rest {percent:5.2f} %", flush=True)
            is_good = True
            deeds = {"delays": broker.delay, "open transactions": broker.transaction, "retries": broker.retry}
            for kind, count in counts.items():
                began = time.perf_counter()
                await many(deeds[kind], WARM, count)
                took_s, before = time.perf_counter() - began, memory
                memory, percent = await broker.at_rest(rest_s)
                is_good &= memory - before < MEMORY_LIMIT_MB and percent - first_percent < CPU_LIMIT_PERCENT
                print(
                    f"{count:>9,} {kind:<18} memory {memory:7.1f} MB ({memory - before:+6.1f})"
                    f"   CPU at rest {percent:5.2f} %   stored in {took_s:.0f} s",
                    flush=True,
                )
            print(f"{'all together':<28} memory {memory - first_memory:+7.1f} MB")
            return is_good
        finally:
            await broker.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("delays", type=int, nargs="?", default=1_000_000)
    parser.add_argument("transactions", type=int, nargs="?", default=100_000)
    parser.add_argument("retries", type=int, nargs="?", default=100_000)
    parser.add_argument("--rest", type=float, default=10.0, metavar="SECONDS", help="how long each rest is watched")
    given = parser.parse_args()
    counts = {"delays": given.delays, "open transactions": given.transactions, "retries": given.retries}
    return 0 if asyncio.run(measure(counts, given.rest)) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What an operator reads in the log at the default level: a line for each event worth a question, and nothing else."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arrowmq import Admin, Consumer, Producer

ARROWMQ = "import sys; from arrowmq.cli import main; sys.exit(main())"
SETTINGS = ("brokerIP1=127.0.0.1", "brokerName=broker-a", "metricsPromExporterPort=0", "warmMapedFileEnable=true")


class Server:
    """The real command; its log is read as it comes."""

    def __init__(self, folder: Path) -> None:
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        where = ["--dir", str(folder / "data"), "--namesrv-port", "0", "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", ARROWMQ, "server", "--no-proxy", *where, *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = re.search(r"NameServer (\S+), broker \S+ at \S+:(\d+)", self.process.stdout.readline())
        assert ready is not None
        self.namesrv, self.port = ready[1], int(ready[2])
        self.lines: list[str] = []

    async def until(self, pattern: str) -> str:
        """Reads on to a line, in a thread: the clients of this test go on meanwhile."""
        async with asyncio.timeout(30):
            return await asyncio.to_thread(self._until, pattern)

    def _until(self, pattern: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return self.lines[-1]
        raise AssertionError("\n".join([f"the log ended without {pattern}:", *self.lines]))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    yield running
    running.stop()


def masked(line: str) -> str:
    """Without the time, and with ids, addresses and durations replaced."""
    line = re.sub(r"^\S+ ", "", line)
    line = re.sub(r"client=\S+", "client=…", line)
    line = re.sub(r"127\.0\.0\.1:\d+|(?<=port )\d+", "…", line)
    return re.sub(r"seconds=\S+", "seconds=…", line)


DOOMED = """
import asyncio, sys
from arrowmq import Consumer

async def main():
    async with Consumer(sys.argv[1], group="doomed", topic="orders") as consumer:
        async for _ in consumer:
            print("got one", flush=True)

asyncio.run(main())
"""


def kill_a_consumer(namesrv: str) -> None:
    """One that is in the middle of its work, and has no time for a farewell."""
    doomed = subprocess.Popen([sys.executable, "-c", DOOMED, namesrv], stdout=subprocess.PIPE, text=True)
    assert doomed.stdout is not None
    doomed.stdout.readline()
    doomed.kill()
    doomed.wait()


async def test_a_day_in_the_life_of_a_server_is_one_line_an_event(server: Server) -> None:
    async with Admin(server.namesrv) as admin:
        await admin.create_topic("orders", queues=2)
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send("orders", b"hello")
        await server.until("producer joined")
        async with Consumer(server.namesrv, group="billing", topic="orders") as consumer:
            async for message in consumer:
                await message.ack()
                break
    await server.until("producer left")
    kill_a_consumer(server.namesrv)
    await server.until("consumer left group=doomed")
    with socket.create_connection(("127.0.0.1", server.port)):
        pass  # a health check connects and says nothing, and so does the log
    with socket.create_connection(("127.0.0.1", server.port)) as stray:
        stray.sendall(b"GET / HTTP/1.1\r\n\r\n")
        await server.until("connection closed")
    server.process.terminate()
    await server.until("arrowmq stopped")
    joined = "group=billing client=… peer=… language=PYTHON"
    assert [masked(line) for line in server.lines] == [
        "INFO arrowmq.server settings without effect here: warmMapedFileEnable",
        "WARNING arrowmq.server everybody who reaches port … may use this broker: set authenticationEnabled and "
        "authorizationEnabled, or serve this machine only with --bind 127.0.0.1",
        "INFO arrowmq.namesrv.service broker registered name=broker-a id=0 address=… cluster=DefaultCluster topics=13",
        "INFO arrowmq.broker.registration registered with NameServer … as broker-a at …",
        "INFO arrowmq.metrics.page metrics at http://…/metrics",
        "INFO arrowmq.broker.topics.admin topic created topic=orders readQueues=2 writeQueues=2 perm=6 by=…",
        "INFO arrowmq.broker.clients.table producer joined group=shop client=… peer=… language=PYTHON members=1",
        "INFO arrowmq.broker.groups.table group created group=billing reason=a consumer came with it",
        "INFO arrowmq.broker.topics.table topic created topic=%RETRY%billing writeQueues=1 reason=it was used",
        f"INFO arrowmq.broker.clients.table consumer joined {joined} members=1",
        f"INFO arrowmq.broker.clients.table consumer left {joined} members=0 reason=it said goodbye",
        "INFO arrowmq.broker.clients.table producer left group=shop client=… peer=… language=PYTHON members=0 "
        "reason=it said goodbye",
        "INFO arrowmq.broker.groups.table group created group=doomed reason=a consumer came with it",
        "INFO arrowmq.broker.topics.table topic created topic=%RETRY%doomed writeQueues=1 reason=it was used",
        "INFO arrowmq.broker.clients.table consumer joined group=doomed client=… peer=… language=PYTHON members=1",
        "INFO arrowmq.broker.clients.table consumer left group=doomed client=… peer=… language=PYTHON members=0 "
        "reason=its connection ended",
        "WARNING arrowmq.remoting.connection connection closed peer=… "
        "reason=a frame of 1195725856 bytes; allowed are 4 to 16777212",
        "INFO arrowmq stopping signal=SIGTERM",
        "INFO arrowmq.namesrv.service broker left name=broker-a address=… reason=stopped and unregistered",
        "INFO arrowmq stopped seconds=…",
    ]

"""`make load`: every kind of work at once for as long as one likes, with memory and latency looked at all the time.

    python tests/chaos/held_load.py --minutes 3 --queues 10000

A broker in a process of its own; senders, readers, poppers, delays, timers, transactions and topics that come and go
(`crash_kinds`, without faults), and one after the other in the middle of it what a broker must bear: consumers that
stop reading, a producer faster than the disk, a thousand consumers that join at once, a topic deleted under load,
queues by the thousand. At the end a table says what was seen, what was allowed, and whether it held.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), *(str(TESTS / name) for name in ("interop", "sim", "broker", "chaos"))]

from crash_calls import Calls, Line  # noqa: E402
from crash_clusters import Cluster  # noqa: E402
from crash_kinds import Deals, Delays, Kind, Orders, Pops, Readers, Timers, Topics  # noqa: E402

from arrowmq.remoting.client import RemotingClient  # noqa: E402
from arrowmq.remoting.errors import RemotingError  # noqa: E402
from arrowmq.wire import fastjson  # noqa: E402
from arrowmq.wire.codes import RequestCode, ResponseCode  # noqa: E402
from arrowmq.wire.frames import Command, encode_frame  # noqa: E402

SAMPLE_S = 1.0
MIB = 1 << 20
MOST_GROWTH_MIB = 48  # of anonymous memory, over the run and in each scene, besides what queues are known to take
MOST_SLOWER = 3.0  # the median of the last third over that of the first
BIG = b"x" * 64_000


class Row(NamedTuple):
    what: str
    seen: str
    allowed: str
    held: bool


class HeldLoad:
    def __init__(self, cluster: Cluster, queues: int, members: int) -> None:
        self.cluster, self.queues, self.members = cluster, queues, members
        self.line = Line(lambda: cluster.address)
        self.calls = Calls(self.line)
        orders = Orders(self.calls, 1)
        others: list[Kind] = [kind(self.calls, 1) for kind in (Delays, Deals, Timers, Pops, Topics)]
        self.kinds = [orders, Readers(self.calls, 1, orders), *others]
        self.latencies: list[tuple[float, float]] = []  # when, how long
        self.memory: list[tuple[float, float]] = []  # when, MiB
        self.rows: list[Row] = []

    def own_mib(self) -> float:
        return self.cluster.master.memory_kib()["anonymous"] / 1024

    async def play(self, minutes: float) -> list[Row]:
        await self.line.start()
        client = RemotingClient()
        for kind in self.kinds:
            for topic in kind.topics:
                assert await self.calls.make_topic(client, topic)
            for group in kind.groups:
                assert await self.calls.make_group(client, group)
        work = [asyncio.ensure_future(kind.run(lane)) for kind in self.kinds for lane in range(kind.lanes)]
        work += [asyncio.ensure_future(self._look()), asyncio.ensure_future(self._knock(client))]
        began_s = time.monotonic()
        await asyncio.sleep(min(20.0, minutes * 60 / 6))  # until everything that is made once is made
        for scene in (
            self.stalled_readers,
            self.fast_producer,
            self.many_members,
            self.deleted_topic,
            self.many_queues,
        ):
            await scene()
        await asyncio.sleep(max(10.0, began_s + minutes * 60 - time.monotonic()))
        self.calls.is_over = True
        await asyncio.gather(*work)
        await self._judge()
        await client.close()
        await self.line.close()
        return self.rows

    async def _look(self) -> None:
        while not self.calls.is_over:
            self.memory.append((time.monotonic(), self.own_mib()))
            await asyncio.sleep(SAMPLE_S)

    async def _knock(self, client: RemotingClient) -> None:
        """One send after the other, for how long they take."""
        while not self.calls.is_over:
            began_s = time.monotonic()
            if await self.calls.send(client, "orders", 3, b"knock") is not None:
                self.latencies.append((began_s, time.monotonic() - began_s))
            await asyncio.sleep(0.02)

    def _held(
        self, what: str, began_s: float, before_mib: float, seen: str, *, is_right: bool, known_mib: float = 0
    ) -> None:
        """A row of one scene: what happened, how much memory it took, and how long the others' sends took meanwhile."""
        during = [took for at, took in self.latencies if at >= began_s]
        peak = max([mib for at, mib in self.memory if at >= began_s] + [self.own_mib()])
        slow_ms = 1000 * max(during, default=0.0)
        grown = peak - before_mib
        text = f"{seen}; memory {grown:+.0f} MiB; slowest send of others {slow_ms:.0f} ms"
        self.rows.append(
            Row(
                what,
                text,
                f"memory +{MOST_GROWTH_MIB + known_mib:.0f} MiB",
                is_right and grown <= MOST_GROWTH_MIB + known_mib,
            )
        )

    def _frame(self, code: int, header: dict[str, Any], body: bytes = b"") -> bytes:
        return encode_frame(Command.request(code, {name: str(value) for name, value in header.items()}, body))

    def _dial(self) -> socket.socket:
        host, _, port = self.cluster.address.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setblocking(False)
        return connection

    def _send_header(self, topic: str, queue_id: int) -> dict[str, Any]:
        return {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
        }  # fmt: skip

    async def stalled_readers(self) -> None:
        """Forty connections ask for 2 MiB forty times each, and read nothing of it: 3 GiB of answers."""
        client = RemotingClient()
        await self.calls.make_topic(client, "big", 1)
        for _ in range(64):
            await self.calls.send(client, "big", 0, BIG)
        began_s, before = time.monotonic(), self.own_mib()
        pull = {
            "consumerGroup": "stalled", "topic": "big", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*", "expressionType": "TAG",
        }  # fmt: skip
        frames = self._frame(RequestCode.PULL_MESSAGE, pull) * 40
        sockets = [self._dial() for _ in range(40)]
        loop = asyncio.get_running_loop()
        for connection in sockets:
            with suppress(OSError):
                await loop.sock_sendall(connection, frames)
        await asyncio.sleep(5)
        served = await self.calls.pull(client, "big", 0, 0)
        self._held(
            "40 consumers stop reading", began_s, before, "others are served" if served else "nobody is served",
            is_right=bool(served), known_mib=80,  # an answer of 2 MiB may wait at each
        )  # fmt: skip
        for connection in sockets:
            connection.close()
        await client.close()

    async def fast_producer(self) -> None:
        """Eight connections send 64 kB a message for five seconds as fast as they can, and wait for no answer."""
        began_s, before = time.monotonic(), self.own_mib()
        frame = self._frame(RequestCode.SEND_MESSAGE, self._send_header("big", 0), BIG)
        loop, sent, answered = asyncio.get_running_loop(), 0, 0

        async def flood(connection: socket.socket) -> None:
            nonlocal sent
            while time.monotonic() < began_s + 5:
                await loop.sock_sendall(connection, frame)
                sent += 1

        async def drain(connection: socket.socket) -> None:
            nonlocal answered
            with suppress(OSError):
                while data := await loop.sock_recv(connection, 1 << 16):
                    answered += data.count(b'"opaque"')

        sockets = [self._dial() for _ in range(8)]
        readers = [asyncio.ensure_future(drain(connection)) for connection in sockets]
        await asyncio.gather(*(flood(connection) for connection in sockets), return_exceptions=True)
        deadline = time.monotonic() + 60
        while answered < sent and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for reader, connection in zip(readers, sockets, strict=True):
            reader.cancel()
            connection.close()
        self._held(
            "a producer faster than the disk", began_s, before,
            f"{sent * len(BIG) // MIB} MiB sent, {answered}/{sent} answered", is_right=answered == sent,
        )  # fmt: skip

    async def many_members(self) -> None:
        began_s, before = time.monotonic(), self.own_mib()
        clients = [RemotingClient() for _ in range(self.members)]
        subscription = {
            "topic": "orders", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG",
        }  # fmt: skip
        consumer = {
            "groupName": "crowd", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
        }  # fmt: skip

        async def join(number: int) -> bool:
            body = fastjson.dumps(
                {"clientID": f"member-{number}", "producerDataSet": [], "consumerDataSet": [consumer]}
            )
            answer = await self._patient(clients[number], RequestCode.HEART_BEAT, {}, body)
            return answer is not None and answer.code == ResponseCode.SUCCESS

        joined = sum(await asyncio.gather(*map(join, range(self.members))))
        took_s = time.monotonic() - began_s
        listed = await self._patient(clients[0], RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "crowd"})
        found = len(fastjson.loads(listed.body)["consumerIdList"]) if listed is not None and listed.body else 0
        self._held(
            f"{self.members} consumers join at once", began_s, before,
            f"{joined} joined in {took_s:.1f} s, {found} listed", is_right=joined == found == self.members,
        )  # fmt: skip
        await asyncio.gather(*(client.close() for client in clients))

    async def _patient(
        self, client: RemotingClient, code: int, header: dict[str, Any], body: bytes = b""
    ) -> Command | None:
        """An answer, if it takes a minute: a busy machine may let a connection wait."""
        texts = {name: str(value) for name, value in header.items()}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return await client.invoke(self.cluster.address, Command.request(code, texts, body), 60)
            except (RemotingError, OSError):
                await asyncio.sleep(0.2)
        return None

    async def deleted_topic(self) -> None:
        """A topic goes while eight lanes send to it, ten times over."""
        began_s, before, codes = time.monotonic(), self.own_mib(), set[int]()
        admin = RemotingClient()
        await self.calls.make_topic(admin, "goes")
        is_over = False

        async def send(lane: int) -> None:
            client = RemotingClient()
            while not is_over:
                answer = await self._patient(
                    client, RequestCode.SEND_MESSAGE, self._send_header("goes", lane % 4), b"x" * 100
                )
                codes.add(-1 if answer is None else answer.code)
            await client.close()

        lanes = [asyncio.ensure_future(send(lane)) for lane in range(8)]
        deleted = 0
        for _ in range(10):
            await asyncio.sleep(0.2)
            answer = await self._patient(admin, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "goes"})
            deleted += answer is not None and answer.code == ResponseCode.SUCCESS
            while not await self.calls.make_topic(admin, "goes"):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        is_over = True
        await asyncio.gather(*lanes)
        await admin.close()
        expected = {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}
        names = ", ".join(sorted("no answer" if code < 0 else ResponseCode(code).name for code in codes))
        self._held(
            "a topic deleted under load", began_s, before, f"deleted {deleted} times; senders heard {names}",
            is_right=deleted == 10 and codes <= expected,
        )  # fmt: skip

    async def many_queues(self) -> None:
        """A message into each of so many queues, a hundred a topic."""
        began_s, before = time.monotonic(), self.own_mib()
        clients = [RemotingClient() for _ in range(8)]
        topics = [f"wide-{number}" for number in range(self.queues // 100)]
        stored = 0

        async def fill(client: RemotingClient, mine: list[str]) -> None:
            nonlocal stored
            for topic in mine:
                while not await self.calls.make_topic(client, topic, 100):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                answers = await asyncio.gather(
                    *(
                        self._patient(client, RequestCode.SEND_MESSAGE, self._send_header(topic, at), b"x")
                        for at in range(100)
                    )
                )
                stored += sum(1 for answer in answers if answer is not None and answer.code == ResponseCode.SUCCESS)

        await asyncio.gather(*(fill(client, topics[number::8]) for number, client in enumerate(clients)))
        took_s = time.monotonic() - began_s
        probe = await self.calls.read(topics[-1], 99)
        await asyncio.gather(*(client.close() for client in clients))
        self._held(
            f"{self.queues} queues", began_s, before,
            f"{stored} filled in {took_s:.0f} s, the last one read: {len(probe)}",
            is_right=stored == len(topics) * 100 and len(probe) == 1, known_mib=self.queues * 8 / 1024,
        )  # fmt: skip

    async def _judge(self) -> None:
        def thirds(samples: list[tuple[float, float]]) -> tuple[float, float]:
            count = max(1, len(samples) // 3)
            values = [value for _, value in samples]
            return statistics.median(values[:count]), statistics.median(values[-count:])

        early_s, late_s = thirds(self.latencies)
        self.rows.append(
            Row(
                "latency of a send over the run",
                f"median {early_s * 1000:.1f} ms at first, {late_s * 1000:.1f} ms at the end",
                f"{MOST_SLOWER:g} times", late_s <= MOST_SLOWER * early_s,
            )
        )  # fmt: skip
        early, late = thirds(self.memory)
        known = self.queues * 8 / 1024
        self.rows.append(
            Row(
                "memory over the run", f"{early:.0f} MiB at first, {late:.0f} MiB at the end",
                f"+{MOST_GROWTH_MIB + known:.0f} MiB", late - early <= MOST_GROWTH_MIB + known,
            )
        )  # fmt: skip
        for kind in self.kinds:
            if isinstance(kind, Orders):
                kind.audit.sent.add(b"knock")
            verdict = await kind.judge()
            wrong = {name: verdict[name] for name in kind.promised if verdict[name]}
            counts = ", ".join(f"{name} {count}" for name, count in verdict.items() if name not in kind.promised)
            self.rows.append(
                Row(type(kind).__name__.lower(), counts + (f"; {wrong}" if wrong else ""), "none lost", not wrong)
            )


def table(rows: list[Row]) -> str:
    lines = ["| what | seen | allowed | held |", "|---|---|---|---|"]
    return "\n".join(
        lines + [f"| {row.what} | {row.seen} | {row.allowed} | {'yes' if row.held else 'NO'} |" for row in rows]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--flush", choices=("sync", "async"), default="async")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    settings = {"flushDiskType": f"{options.flush.upper()}_FLUSH", "mappedFileSizeCommitLog": 64 * MIB}
    with (
        tempfile.TemporaryDirectory(prefix="arrowmq-load-") as folder,
        Cluster("arrowmq", Path(folder), settings) as cluster,
    ):
        rows = asyncio.run(HeldLoad(cluster, options.queues, options.members).play(options.minutes))
    print(table(rows))
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(table(rows) + "\n")
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

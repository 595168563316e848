"""`make chaos`: one broker, ours or Apache's, killed (-9) or stopped (SIGSTOP) again and again under a seeded load.

    python tests/chaos/crash_machine.py --on apache --flush sync --kills 20 --seed 7

Senders wait for each answer; an auditor holds every acknowledgement, and compares it with what the broker has at the
end: messages, delays, transactions that were decided. `--history FILE` writes each call as it began and ended, for a
checker of histories (`tests/chaos/porcupine`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "interop"), str(TESTS / "sim")]

from auditor import Auditor  # noqa: E402
from oracle.target import KINDS, Target  # noqa: E402

from arrowmq.remoting.client import RemotingClient  # noqa: E402
from arrowmq.remoting.errors import RemotingError  # noqa: E402
from arrowmq.wire.codes import RequestCode, ResponseCode  # noqa: E402
from arrowmq.wire.frames import Command  # noqa: E402
from arrowmq.wire.ids import parse_offset_message_id  # noqa: E402
from arrowmq.wire.records import decode_records  # noqa: E402

BROKER, ORDERS, LATER, DEALS = "broker-a", "orders", "later", "deals"
LANES, QUEUES = 8, 4
COMMIT, ROLLBACK = 8, 12
SETTINGS = {"messageDelayLevel": "1s 2s 3s", "mappedFileSizeCommitLog": 1 << 20, "flushCommitLogLeastPages": 0}


@dataclass
class Crashes:
    """The load, what happened to the broker meanwhile, and what came of it."""

    target: Target
    chance: random.Random
    audit: Auditor = field(default_factory=Auditor)
    delayed: set[bytes] = field(default_factory=set)
    fates: dict[bytes, int] = field(default_factory=dict)  # whose end was answered
    history: list[dict[str, Any]] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)  # from a kill to the next acknowledgement
    counts: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    _fault_s: float | None = None

    async def ask(self, client: RemotingClient, code: int, header: dict[str, Any], body: bytes = b"") -> Command | None:
        texts = {name: str(value) for name, value in header.items()}
        try:
            return await client.invoke(self.target.broker, Command.request(code, texts, body), 5)
        except (RemotingError, OSError):
            self.counts["unanswered"] += 1
            await asyncio.sleep(0.02)
            return None

    async def send(self, client: RemotingClient, topic: str, queue_id: int, body: bytes, **more: Any) -> Command | None:
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
            "unitMode": "false", "batch": "false", **more,
        }  # fmt: skip
        answer = await self.ask(client, RequestCode.SEND_MESSAGE, header, body)
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            self.counts[ResponseCode(answer.code).name] += 1
            await asyncio.sleep(0.02)
        return answer if answer is not None and answer.code == ResponseCode.SUCCESS else None

    async def lane(self, lane: int) -> None:
        """One message after the other into one queue; now and then a delayed one or a transaction."""
        client, number = RemotingClient(), 0
        while not self.is_over:
            number += 1
            body = b"%d-%d:" % (lane, number) + b"x" * self.chance.choice((0, 100, 2000))
            kind = self.chance.random()
            if kind < 0.1:
                level = self.chance.choice((1, 2, 3))
                if await self.send(client, LATER, 0, body, properties=f"DELAY\x01{level}\x02"):
                    self.delayed.add(body)
            elif kind < 0.2:
                await self._deal(client, body)
            else:
                await self._order(client, lane, body)
        await client.close()

    async def _order(self, client: RemotingClient, lane: int, body: bytes) -> None:
        queue_id, began_s = lane % QUEUES, time.monotonic()
        self.audit.sent.add(body)
        answer = await self.send(client, ORDERS, queue_id, body)
        call = {"process": lane, "queue": queue_id, "value": _name(body), "call": began_s}
        if answer is not None:
            offset = int(answer.ext["queueOffset"])
            self.audit.acknowledge(str(lane), body, (BROKER, queue_id), offset)
            if self._fault_s is not None:
                self.back_s.append(time.monotonic() - self._fault_s)
                self._fault_s = None
            call |= {"return": time.monotonic(), "offset": offset}
        self.history.append(call)

    async def _deal(self, client: RemotingClient, body: bytes) -> None:
        half = await self.send(client, DEALS, 0, body, sysFlag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
        if half is None:
            return
        how = self.chance.choice((COMMIT, ROLLBACK))
        header = {
            "producerGroup": "P", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": how,
            "commitLogOffset": parse_offset_message_id(half.ext["msgId"]).physical_offset, "msgId": "",
            "fromTransactionCheck": "false", "transactionId": half.ext.get("transactionId", ""),
        }  # fmt: skip
        answer = await self.ask(client, RequestCode.END_TRANSACTION, header)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self.fates[body] = how

    async def harm(self, faults: int, harms: list[str]) -> None:
        for _ in range(faults):
            enough = len(self.audit.acknowledged) + self.chance.randrange(20, 400)
            deadline = time.monotonic() + 60
            while len(self.audit.acknowledged) < enough and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            harm = self.chance.choice(harms)
            self.counts[harm] += 1
            if harm == "kill":
                await asyncio.to_thread(self.target.server.kill)
                self._fault_s = time.monotonic()
                await asyncio.to_thread(self.target.server.start)
            else:
                os.kill(self.target.server.pid, signal.SIGSTOP)
                await asyncio.sleep(self.chance.uniform(0.2, 2.0))
                os.kill(self.target.server.pid, signal.SIGCONT)

    async def read(self, topic: str, queue_id: int) -> list[bytes]:
        client, bodies = RemotingClient(), list[bytes]()
        for _ in range(100_000):
            header = {
                "consumerGroup": "AUDIT", "topic": topic, "queueId": queue_id, "queueOffset": len(bodies),
                "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
                "subscription": "*", "expressionType": "TAG",
            }  # fmt: skip
            answer = await self.ask(client, RequestCode.PULL_MESSAGE, header)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                break
            bodies += [record.body for record in decode_records(answer.body)]
        await client.close()
        return bodies

    async def play(self, faults: int, harms: list[str]) -> dict[str, Any]:
        client = RemotingClient()
        for topic in (ORDERS, LATER, DEALS):
            header = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            made = await self.ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert made is not None
            assert made.code == ResponseCode.SUCCESS, made.remark
        await client.close()
        lanes = [asyncio.ensure_future(self.lane(number)) for number in range(LANES)]
        await self.harm(faults, harms)
        self.is_over = True
        await asyncio.gather(*lanes)
        return await self.judge()

    def _resolve(self, found: dict[tuple[str, int], list[bytes]]) -> None:
        """Of calls without an answer, those count that are found, with an answer at the end; and the reads of all."""
        end_s = time.monotonic()
        places = {(queue, _name(body)): at for (_, queue), bodies in found.items() for at, body in enumerate(bodies)}
        for call in self.history:
            if "return" not in call and (at := places.get((call["queue"], call["value"]))) is not None:
                call |= {"return": end_s, "offset": at}
        self.history = [call for call in self.history if "return" in call]
        for (queue, name), at in places.items():
            read = {"kind": "read", "process": LANES, "queue": queue, "value": name, "offset": at}
            self.history.append({**read, "call": end_s, "return": end_s + 1})

    async def judge(self) -> dict[str, Any]:
        found = {(BROKER, queue_id): await self.read(ORDERS, queue_id) for queue_id in range(QUEUES)}
        self._resolve(found)
        deadline = time.monotonic() + 30
        later: list[bytes] = []
        while time.monotonic() < deadline:
            later = await self.read(LATER, 0)
            if self.delayed <= set(later):
                break
            await asyncio.sleep(0.5)
        deals = Counter(await self.read(DEALS, 0))
        lost = [body for body, (queue, at) in self.audit.acknowledged.items() if found[queue][at : at + 1] != [body]]
        try:
            self.audit.check_stored(found)
            fault = ""
        except AssertionError as failure:
            fault = str(failure)[:200]
        back = sorted(self.back_s)
        return {
            "acknowledged": len(self.audit.acknowledged),
            "lost": len(lost),
            "fault": fault,
            "delayed": len(self.delayed),
            "delayed lost": len(self.delayed - set(later)),
            "delayed twice": sum(1 for count in Counter(later).values() if count > 1),
            "decided": len(self.fates),
            "committed lost": sum(1 for body, how in self.fates.items() if how == COMMIT and not deals[body]),
            "rolled back there": sum(1 for body, how in self.fates.items() if how == ROLLBACK and deals[body]),
            "committed twice": sum(1 for count in deals.values() if count > 1),
            "back s": [round(statistics.median(back), 2), round(back[-1], 2)] if back else [],
            **self.counts,
        }


def _name(body: bytes) -> str:
    return body.partition(b":")[0].decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=KINDS, default="arrowmq")
    parser.add_argument("--flush", choices=("sync", "async"), default="async")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--harms", default="kill,stop")
    parser.add_argument("--history", type=Path)
    options = parser.parse_args()
    settings = {**SETTINGS, "flushDiskType": f"{options.flush.upper()}_FLUSH"}
    with (
        tempfile.TemporaryDirectory(prefix="arrowmq-chaos-") as folder,
        Target(options.on, Path(folder), **settings) as target,
    ):
        crashes = Crashes(target, random.Random(options.seed))
        verdict = asyncio.run(crashes.play(options.kills, options.harms.split(",")))
    print(json.dumps({"on": options.on, "flush": options.flush, "seed": options.seed, **verdict}))
    if options.history:
        options.history.write_text("".join(json.dumps(call) + "\n" for call in crashes.history))
    return 1 if verdict["lost"] or verdict["fault"] else 0


if __name__ == "__main__":
    sys.exit(main())

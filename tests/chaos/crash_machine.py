"""`make chaos`: brokers, ours or Apache's, killed (-9), stopped, cut off and started again under a seeded load.

    python tests/chaos/crash_machine.py --cluster trio --on apache --flush sync --faults 20 --seed 7

One broker, a pair, or a trio under its controller. Lanes send, read, pop, transact, delay, take back, reset offsets,
make and delete topics (`crash_kinds`); an auditor holds every answer and compares it with what is there at the end.
`--history FILE` writes each send as it began and ended, for a checker of histories (`tests/chaos/porcupine`);
`--results FILE` adds the verdict as a line. A seed gives the same deeds and the same faults again; how real processes
interleave is the machine's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), *(str(TESTS / name) for name in ("interop", "sim", "broker", "chaos"))]

from crash_calls import Calls, Line  # noqa: E402
from crash_clusters import CLUSTERS, Cluster, SmallDisk  # noqa: E402
from crash_kinds import Deals, Delays, Kind, Orders, Pops, Readers, Resets, Timers, Topics  # noqa: E402
from oracle.target import KINDS  # noqa: E402

from arrowmq.remoting.client import RemotingClient  # noqa: E402
from arrowmq.wire.codes import RequestCode, ResponseCode  # noqa: E402

LOOK_S = 0.05


class CrashMachine:
    """The load, what happens to the cluster meanwhile, and what came of it."""

    def __init__(self, cluster: Cluster, seed: int, kinds: list[str] | None = None) -> None:
        self.cluster, self.chance = cluster, random.Random(seed)
        self.line = Line(lambda: cluster.address)
        self.calls = Calls(self.line)
        self.orders = Orders(self.calls, seed)
        others: list[Kind] = [
            Readers(self.calls, seed, self.orders),
            *(kind(self.calls, seed) for kind in (Delays, Deals, Timers, Pops)),
        ]
        if cluster.name != "trio":  # of a trio, tables of groups and topics follow their master every few seconds
            others += [Resets(self.calls, seed, self.orders), Topics(self.calls, seed)]
        self.kinds = [self.orders, *(kind for kind in others if not kinds or type(kind).__name__.lower() in kinds)]
        self.behind = 0  # acknowledged messages that a slave did not have when its master was killed

    async def play(
        self, faults: int, harms: list[str] | None = None, longest_s: float = float("inf")
    ) -> dict[str, Any]:
        self._last_s = time.monotonic() + longest_s
        await self.line.start()
        client = RemotingClient()
        for topic in (topic for kind in self.kinds for topic in kind.topics):
            while not await self.calls.make_topic(client, topic):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        for group in (group for kind in self.kinds for group in kind.groups):
            while not await self.calls.make_group(client, group):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        for topic in (topic for kind in self.kinds for topic in kind.topics):
            for at in self.cluster.followers:  # a slave of Apache's asks its master for topics every ten seconds
                await self._until_known(client, topic, at)
        await client.close()
        following = asyncio.ensure_future(self._follow())
        lanes = [asyncio.ensure_future(kind.run(lane)) for kind in self.kinds for lane in range(kind.lanes)]
        try:
            await self._harm(faults, harms or [*self.cluster.harms, "cut"])
        finally:
            self.calls.is_over = True
            await asyncio.gather(*lanes)
        verdict = await self.judge()
        following.cancel()
        await self.line.close()
        return verdict

    async def _until_known(self, client: RemotingClient, topic: str, at: str) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = await self.calls.ask(client, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, at=at)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{at} does not know {topic}")

    async def _follow(self) -> None:
        """Clients ask the NameServer where the master is; with a new one, old connections end."""
        while True:
            before = self.cluster.address
            await asyncio.to_thread(self.cluster.look)
            if self.cluster.address != before:
                self.line.cut()
            await asyncio.sleep(LOOK_S)

    async def _harm(self, faults: int, harms: list[str]) -> None:
        acknowledged = self.orders.audit.acknowledged
        for number in range(faults):
            if time.monotonic() > self._last_s:
                break
            enough, harm = len(acknowledged) + self.chance.randrange(20, 400), self.chance.choice(harms)
            pause_s = self.chance.uniform(0.2, 2.0)
            deadline = time.monotonic() + 60
            while len(acknowledged) < enough and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            self.calls.counts[harm] += 1
            print(f"{number + 1}/{faults} {harm}, {len(acknowledged)} acknowledged", file=sys.stderr, flush=True)
            if harm == "cut":
                self.line.cut()
                self.calls.begin_harm(harm)
                continue
            await asyncio.to_thread(self.cluster.begin, harm, self.chance)
            self.calls.begin_harm(harm)
            if harm == "kill" and self.cluster.name == "pair":
                await self._look_behind()
            if harm in ("stop", "fill"):
                await asyncio.sleep(pause_s)
            await asyncio.to_thread(self.cluster.heal, harm)

    async def _look_behind(self) -> None:
        """The master is dead: what it acknowledged is at the slave, once that has dispatched what it has."""
        client = RemotingClient()
        for at in self.cluster.followers:
            for queue_id, end in self.orders.ends().items():
                for _ in range(50):
                    header = {"topic": "orders", "queueId": queue_id}
                    answer = await self.calls.ask(client, RequestCode.GET_MAX_OFFSET, header, at=at)
                    has = int(answer.ext.get("offset", 0)) if answer is not None else 0
                    if has >= end:
                        break
                    await asyncio.sleep(0.1)
                self.behind += max(0, end - has)
        await client.close()

    async def judge(self) -> dict[str, Any]:
        await asyncio.to_thread(self.cluster.settle)
        self.orders.replicas = self.cluster.followers
        verdict: dict[str, Any] = {}
        for kind in self.kinds:
            verdict |= await kind.judge()
        if self.cluster.name == "pair":
            verdict["behind at a kill"] = self.behind
        back = {harm: sorted(found) for harm, found in self.calls.back_s.items()}
        verdict["back s"] = {
            harm: [round(statistics.median(found), 2), round(found[-1], 2)] for harm, found in sorted(back.items())
        }
        verdict |= {"fault": self.orders.fault, **self.calls.counts}
        verdict["broken"] = [name for name in (*self.promised, "behind at a kill") if verdict.get(name)]
        return verdict

    @property
    def promised(self) -> list[str]:
        return [name for kind in self.kinds for name in kind.promised]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=KINDS, default="arrowmq")
    parser.add_argument("--cluster", choices=CLUSTERS, default="one")
    parser.add_argument("--flush", choices=("sync", "async"), default="async")
    parser.add_argument("--faults", "--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--harms", help="of those that the cluster knows, with commas; default: all")
    parser.add_argument("--kinds", help="orders and these, with commas: readers, delays, deals, timers, pops, …")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no further faults after that")
    parser.add_argument("--history", type=Path)
    parser.add_argument("--results", type=Path, help="add the verdict to this file, as a line of JSON")
    options = parser.parse_args()
    settings = {"flushDiskType": f"{options.flush.upper()}_FLUSH"}
    harms = options.harms.split(",") if options.harms else None
    small_disk = options.on == "arrowmq" and options.cluster == "one" and SmallDisk.can_be_made()
    began_s = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this
    with (
        tempfile.TemporaryDirectory(prefix="arrowmq-chaos-") as folder,
        CLUSTERS[options.cluster](options.on, Path(folder), settings, small_disk=small_disk) as cluster,
    ):
        machine = CrashMachine(cluster, options.seed, options.kinds.split(",") if options.kinds else None)
        verdict = asyncio.run(machine.play(options.faults, harms, options.minutes * 60))
    told = {name: getattr(options, name) for name in ("on", "cluster", "flush", "seed")}
    line = json.dumps({**told, "took s": round(time.monotonic() - began_s), **verdict})
    print(line)
    if options.history:
        options.history.write_text("".join(json.dumps(call) + "\n" for call in machine.orders.history))
    if options.results:
        with options.results.open("a") as results:
            results.write(line + "\n")
    return 1 if verdict["broken"] or verdict["fault"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.failover [PART …] [--systems NAME …] [--rounds N]`: how long a lost master is missed.

A trio of ArrowMQ's brokers with its controller and NameServer, then one of Apache's, each with a Java producer (2
threads) and our Python producer (two tasks) that send one message after another and repeat what failed after 5 ms. The
Java producer asks for routes every 100 ms (pollNameServerInterval): by default, every 30 s, that wait would be all that
there is to see.

  killed     the master is killed (-9); default settings
  stopped    it stands still (SIGSTOP); the fast settings of docs/failover.md, producers with a time-out of a second
  cut        its network is cut, nobody is told; the same settings
  slow       as stopped, with the default settings: a lease of 10 seconds, producers with a time-out of 3
  switched   a planned switch: failed sends, and the longest pause between two acknowledgements

Of each round, in milliseconds from the deed: the controller has noticed; another is elected; it has taken the role; the
NameServer tells clients of it; the first acknowledgement of either producer after its silence. Median and worst of the
rounds. Run it alone on the machine; what it prints goes to bench-results/failover-PART-SYSTEM.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from oracle import hands
from oracle.audit import Audit, silence_ms
from oracle.java import Value
from oracle.scene import Scene
from oracle.trio import ARROW, FAST, JAVA, NAME, Trio

from arrowmq import ArrowMQError, Producer
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from benchmarks.__main__ import RESULTS, say

HARMS = {"killed": "kill", "stopped": "pause", "cut": "cut", "slow": "pause", "switched": "switch"}
ROUNDS = {"killed": 20, "stopped": 20, "cut": 20, "slow": 5, "switched": 20}
FAST_PARTS = ("stopped", "cut")
STEPS = ("noticed", "elected", "role taken", "route changed", "Java back", "Python back")
PATIENCE_S = 60.0
JAVA_POLL_MS = 100
#: How the servers say it themselves: the controller that it misses a master, a broker that it has become one.
NOTICED = {ARROW: r"broker gone", JAVA: r"broker inactive event|not active|channel.*(?:clos|inactive|destroy)"}
TAKEN = {ARROW: r"this broker is master", JAVA: r"Change ha to master success|[Cc]hange to master.*success"}
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3})")


class PythonSends(threading.Thread):
    """Our producer at work, in a thread of its own."""

    def __init__(self, namesrv: str, topic: str, timeout_s: float) -> None:
        super().__init__(name="python producer", daemon=True)
        self._namesrv, self._topic, self._timeout_s = namesrv, topic, timeout_s
        self.acknowledged: list[float] = []
        self.failures = 0
        self.is_over = False

    def run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        async with Producer(self._namesrv, group="bench_python", timeout_s=self._timeout_s) as producer:
            await asyncio.gather(*(self._send(producer) for _ in range(2)))

    async def _send(self, producer: Producer) -> None:
        while not self.is_over:
            try:
                await producer.send(self._topic, b"p" * 100)
                self.acknowledged.append(time.time() * 1000)
            except ArrowMQError:
                self.failures += 1
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.002)


class Watch(threading.Thread):
    """Asks NameServer and controller every few milliseconds, and notes when what they say changes."""

    def __init__(self, trio: Trio) -> None:
        super().__init__(name="watch", daemon=True)
        self._trio = trio
        self.routes: list[tuple[float, str]] = []
        self.elections: list[tuple[float, int]] = []
        self.is_over = False

    def run(self) -> None:
        asyncio.run(self._watch_both())

    async def _watch_both(self) -> None:
        client = RemotingClient()

        async def route() -> None:
            command = Command.request(
                RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "DefaultCluster", "brokerName": NAME}
            )
            answer = await client.invoke(self._trio.names.address, command, 1)
            addresses: Any = fastjson.loads(answer.body, dict[str, Any])["brokerMemberGroup"]["brokerAddrs"]
            _note(self.routes, addresses.get("0", addresses.get(0, "")))

        async def election() -> None:
            command = Command.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": NAME})
            answer = await client.invoke(self._trio.controller.address, command, 1)
            if answer.ext.get("masterBrokerId"):
                _note(self.elections, int(answer.ext.get("masterEpoch", 0)))

        async def repeat(ask: Callable[[], Awaitable[None]]) -> None:
            while not self.is_over:
                with suppress(RemotingError, KeyError):
                    await ask()
                await asyncio.sleep(0.004)

        await asyncio.gather(repeat(route), repeat(election))
        await client.close()


def _note(seen: list[tuple[float, Any]], value: Any) -> None:
    if not seen or seen[-1][1] != value:
        seen.append((time.time() * 1000, value))


def _first_said(path: Path, pattern: str, after_ms: float) -> float | None:
    """When a log first says something after a moment, in milliseconds."""
    found = re.compile(pattern)
    if not path.exists():
        return None
    for line in path.read_text(errors="replace").splitlines():
        stamp = _TIME.match(line)
        if stamp and found.search(line):
            at_ms = datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}").timestamp() * 1000 + int(stamp[3])
            if at_ms >= after_ms - 1:
                return at_ms
    return None


class Rounds:
    """One part on one system."""

    def __init__(self, part: str, trio: Trio, folder: Path, count: int) -> None:
        self._part, self._trio, self._folder, self._count = part, trio, folder, count
        self._kind = trio.kinds[0]
        self._watch = Watch(trio)
        self._moments: list[dict[str, Any]] = []
        self._timeout_ms = 1000 if part in FAST_PARTS else 3000

    def play(self) -> dict[str, Any]:
        trio = self._trio
        with (
            hands.start("java-5.5-json", trio.names.address, trio.brokers[1].address, self._folder / "hand") as hand,
            Scene(hand, "bench") as scene,
        ):
            master = trio.master()
            assert master is not None
            trio.wait_route(master)
            topic, other = scene.topic(queues=4), scene.topic(queues=4)
            for each in (topic, other):
                trio.wait_topic(each)
            producer = scene.producer(hand, timeout=self._timeout_ms, retries=0, poll=JAVA_POLL_MS)
            hand.do("pulse", name="pulse", producer=producer.name, topic=topic, keys=2, timeout=self._timeout_ms)
            python = PythonSends(trio.names.address, other, self._timeout_ms / 1000)
            python.start()
            self._watch.start()
            chance = random.Random(7)

            def last_java_ms() -> float:
                last: str = hand.do("pulse-last", name="pulse")["last"]
                return float(last.split("@")[2]) if last else 0.0

            def both_are_back(since_ms: float) -> bool:
                return last_java_ms() > since_ms and bool(python.acknowledged) and python.acknowledged[-1] > since_ms

            began_ms = time.time() * 1000
            trio.wait("producers send", lambda: both_are_back(began_ms))
            for number in range(self._count):
                time.sleep(chance.uniform(0.3, 0.8))
                self._round(number, python, lambda: hand.do("pulse-last", name="pulse")["failures"], both_are_back)
            self._watch.is_over = python.is_over = True
            audit = Audit(hand.do("stop-pulse", name="pulse")["acknowledged"])
            python.join(10)
        return self._figures([float(send.acknowledged) for send in audit.sends], python.acknowledged)

    def _round(
        self,
        number: int,
        python: PythonSends,
        java_failures: Callable[[], int],
        both_are_back: Callable[[float], bool],
    ) -> None:
        trio, harm = self._trio, HARMS[self._part]
        master = trio.master()
        if harm == "cut" and master != 1:
            trio.switch(1)
            trio.wait_route(1)
            trio.wait("all are in sync", lambda: trio.in_sync() == set(trio.brokers), 180)
            settled_ms = time.time() * 1000
            trio.wait("producers are back", lambda: both_are_back(settled_ms))
            time.sleep(0.3)
            master = 1
        assert master is not None
        failed = (java_failures(), python.failures)
        epoch = trio.epoch()
        moment = time.time() * 1000
        trio.harm(master, harm)
        trio.wait(
            "another is elected", lambda: trio.epoch() > epoch and trio.master() not in (None, master), PATIENCE_S
        )
        chosen = trio.master()
        assert chosen is not None
        trio.wait_route(chosen)
        routed = time.time() * 1000
        trio.wait("producers are back", lambda: both_are_back(routed), PATIENCE_S)
        time.sleep(0.1)
        over = time.time() * 1000
        self._moments.append(
            {
                "at": moment,
                "over": over,
                "chosen": chosen,
                "failed": (java_failures() - failed[0], python.failures - failed[1]),
            }
        )
        trio.heal(master, harm)
        trio.wait("all are in sync", lambda: trio.in_sync() == set(trio.brokers), 180)
        say(f"{self._kind:8} {self._part:8} {number + 1}/{self._count}: {master} -> {chosen}, {over - moment:.0f} ms")

    def _figures(self, java: list[float], python: list[float]) -> dict[str, Any]:
        rounds = [self._timed(each, java, python) for each in self._moments]
        figures: dict[str, Any] = {"rounds": rounds}
        for step in (*STEPS, "Java failed", "Python failed", "Java pause", "Python pause"):
            values = [each[step] for each in rounds if each.get(step) is not None]
            if values:
                figures[step] = {"median": statistics.median(values), "worst": max(values), "of": len(values)}
        return figures

    def _timed(self, each: dict[str, Any], java: list[float], python: list[float]) -> dict[str, Any]:
        at, over = each["at"], each["over"]
        folder = self._trio.folder
        if self._kind == ARROW:
            said_controller = self._trio.controller.output
            said_broker = self._trio.brokers[each["chosen"]].output
        else:
            said_controller = folder / "controller/logs/rocketmqlogs/controller.log"
            said_broker = folder / f"broker-{each['chosen']}/logs/rocketmqlogs/broker.log"
        moments = {
            "noticed": _first_said(said_controller, NOTICED[self._kind], at),
            "elected": next((moment for moment, _ in self._watch.elections if moment >= at), None),
            "role taken": _first_said(said_broker, TAKEN[self._kind], at),
            "route changed": next(
                (moment for moment, address in self._watch.routes
                 if moment >= at and address == self._trio.brokers[each["chosen"]].address), None
            ),
        }  # fmt: skip
        timed: dict[str, Any] = {name: None if moment is None else moment - at for name, moment in moments.items()}
        for name, acknowledged, failed in (
            ("Java", java, each["failed"][0]),
            ("Python", python, each["failed"][1]),
        ):
            timed[f"{name} back"] = silence_ms(acknowledged, at, over)
            timed[f"{name} failed"] = failed
            inside = sorted(done for done in acknowledged if at - 50 <= done <= over)
            timed[f"{name} pause"] = max((b - a for a, b in pairwise(inside)), default=0.0)
        return timed


def measure(part: str, kind: str, count: int) -> dict[str, Any]:
    config: dict[str, Value] = dict(FAST) if part in FAST_PARTS else {}
    with tempfile.TemporaryDirectory(prefix=f"bench-failover-{kind}-") as name:
        folder = Path(name)
        with Trio(folder, [kind] * 3, kind, names=kind, has_cable=part == "cut", minInSyncReplicas=2, **config) as trio:
            return Rounds(part, trio, folder, count).play()


def table(part: str, found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{part}, ms: median (worst)", "| | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    shown = [*STEPS, "Java failed", "Python failed", "Java pause", "Python pause"]
    for step in shown:
        cells = [
            f"{figures[step]['median']:.0f} ({figures[step]['worst']:.0f})" if step in figures else "-"
            for figures in found.values()
        ]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*HARMS, []], default=list(HARMS))
    parser.add_argument("--systems", nargs="+", choices=[ARROW, JAVA], default=[ARROW, JAVA])
    parser.add_argument("--rounds", type=int, help="of each part, instead of 20 (slow: 5)")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for part in options.parts or list(HARMS):
        found = {}
        for kind in options.systems:
            found[kind] = measure(part, kind, options.rounds or ROUNDS[part])
            path = RESULTS / f"failover-{part}-{kind}.json"
            path.write_text(json.dumps(found[kind], indent=1) + "\n")
        print(table(part, found), flush=True)


if __name__ == "__main__":
    main()

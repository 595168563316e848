"""One part on one trio: the master is lost and comes back, so many times, while producers send."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from oracle.audit import Audit, silence_ms
from oracle.hand import Hand
from oracle.scene import Scene
from oracle.toolchain import OracleError
from oracle.trio import JAVA_POLL_MS, Trio

from benchmarks.__main__ import say
from benchmarks.failover.sends import PythonSends
from benchmarks.failover.watch import Watch, noticed_ms, taken_ms

HARMS = {"killed": "kill", "stopped": "pause", "cut": "cut", "slow": "pause", "switched": "switch"}
STEPS = ("noticed", "elected", "role taken", "route changed", "Java back", "Python back")
COUNTED = ("Java failed", "Python failed", "Java pause", "Python pause")
PATIENCE_S = 60.0
KEYS = 2


class Rounds:
    def __init__(self, part: str, trio: Trio, hand: Hand, scene: Scene, *, count: int, timeout_ms: int) -> None:
        self._part, self._trio, self._hand, self._scene, self._count = part, trio, hand, scene, count
        self._timeout_ms = timeout_ms
        self._watch = Watch(trio)
        self._moments: list[dict[str, Any]] = []

    def play(self) -> dict[str, Any]:
        trio, hand, scene = self._trio, self._hand, self._scene
        master = trio.new_master()
        trio.wait_route(master)
        address = trio.brokers[master].address
        topic, other = scene.topic(queues=4, brokers=address), scene.topic(queues=4, brokers=address)
        for each in (topic, other):
            trio.wait_topic(each)
        producer = scene.producer(hand, timeout=self._timeout_ms, retries=0, poll=JAVA_POLL_MS)
        hand.do("pulse", name=topic, producer=producer.name, topic=topic, keys=KEYS, timeout=self._timeout_ms)
        python = PythonSends(trio.names.address, other, self._timeout_ms / 1000)
        python.start()
        self._watch.start()
        chance = random.Random(7)

        def last_java_ms() -> float:
            last: str = hand.do("pulse-last", name=topic)["last"]
            return float(last.split("@")[2]) if last else 0.0

        def both_are_back(since_ms: float) -> bool:
            return last_java_ms() > since_ms and bool(python.acknowledged) and python.acknowledged[-1] > since_ms

        def failures() -> tuple[int, int]:
            return hand.do("pulse-last", name=topic)["failures"], python.failures

        began_ms = time.time() * 1000
        trio.wait("producers send", lambda: both_are_back(began_ms))
        ended = ""
        for number in range(self._count):
            time.sleep(chance.uniform(0.3, 0.8))
            try:
                self._round(number, failures, both_are_back)
            except OracleError as error:  # a trio that does not come together again: what was measured counts
                ended = str(error)
                say(f"{trio.kinds[0]:8} {self._part:8} {number + 1}/{self._count}: ended: {ended}")
                break
        self._watch.is_over = python.is_over = True
        audit = Audit(hand.do("stop-pulse", name=topic)["acknowledged"])
        hand.do("stop-producer", name=producer.name)
        python.join(10)
        self._watch.join(10)
        figures = self._figures([float(send.acknowledged) for send in audit.sends], python.acknowledged)
        return figures | ({"ended": ended} if ended else {})

    def _round(
        self, number: int, failures: Callable[[], tuple[int, int]], both_are_back: Callable[[float], bool]
    ) -> None:
        trio, harm = self._trio, HARMS[self._part]
        master = trio.new_master()
        if harm == "cut" and master != 1:
            trio.switch(1)
            trio.wait_route(1)
            trio.wait("all are in sync", lambda: trio.in_sync() == set(trio.brokers), 180)
            settled_ms = time.time() * 1000
            trio.wait("producers are back", lambda: both_are_back(settled_ms))
            time.sleep(JAVA_POLL_MS / 1000 + 0.3)  # until the Java producer sends to it, and not by way of another
            master = 1
        failed = failures()
        moment = time.time() * 1000
        trio.harm(master, harm)
        chosen = trio.new_master(other_than=master, timeout_s=PATIENCE_S)
        trio.wait_route(chosen)
        routed = time.time() * 1000
        trio.wait("producers are back", lambda: both_are_back(routed), PATIENCE_S)
        time.sleep(0.1)
        over = time.time() * 1000
        now_failed = failures()
        self._moments.append(
            {
                "at": moment,
                "over": over,
                "chosen": chosen,
                "failed": (now_failed[0] - failed[0], now_failed[1] - failed[1]),
            }
        )
        trio.heal(master, harm)
        trio.wait("all are in sync", lambda: trio.in_sync() == set(trio.brokers), 180)
        kind = trio.kinds[0]
        say(f"{kind:8} {self._part:8} {number + 1}/{self._count}: {master} -> {chosen}, {over - moment:.0f} ms")

    def _figures(self, java: list[float], python: list[float]) -> dict[str, Any]:
        rounds = [self._timed(each, java, python) for each in self._moments]
        figures: dict[str, Any] = {"rounds": rounds}
        for step in (*STEPS, *COUNTED):
            values = [each[step] for each in rounds if each.get(step) is not None]
            if values:
                figures[step] = {"median": statistics.median(values), "worst": max(values), "of": len(values)}
        return figures

    def _timed(self, each: dict[str, Any], java: list[float], python: list[float]) -> dict[str, Any]:
        at, over, chosen = each["at"], each["over"], each["chosen"]
        moments = {
            "noticed": noticed_ms(self._trio, at),
            "elected": self._watch.elected_ms(at),
            "role taken": taken_ms(self._trio, chosen, at),
            "route changed": self._watch.routed_ms(self._trio.brokers[chosen].address, at),
        }
        timed: dict[str, Any] = {name: None if moment is None else moment - at for name, moment in moments.items()}
        for name, acknowledged, failed in (("Java", java, each["failed"][0]), ("Python", python, each["failed"][1])):
            timed[f"{name} back"] = silence_ms(acknowledged, at, over)
            timed[f"{name} failed"] = failed
            inside = sorted(done for done in acknowledged if at - 50 <= done <= over)
            timed[f"{name} pause"] = max((b - a for a, b in pairwise(inside)), default=0.0)
        return timed

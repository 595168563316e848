"""Which queue a send goes to, and which brokers are better left alone for a while.

A broker that answered slowly is skipped for a time that grows with the latency seen; one that failed counts as ten
seconds slow. The choice never fails: with every broker under suspicion the plain round robin decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from arrowmq.clock import Clock
from arrowmq.wire.message_queue import MessageQueue

#  measured latency of at least … ms → the broker is skipped for … ms
_LATENCY_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
_SKIPPED_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILED_LATENCY_MS = 10_000
#: Nobody is suspected for an answer that was quicker.
SLOW_FROM_S = _LATENCY_MS[0] / 1000


@dataclass(slots=True)
class _Suspicion:
    skipped_until_ms: int
    is_reachable: bool


class FaultTable:
    """Suspicions against brokers by name; empty as long as all goes well, which makes the common choice cheap."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.suspicions: dict[str, _Suspicion] = {}

    def __bool__(self) -> bool:
        return bool(self.suspicions)

    def answered(self, broker_name: str, latency_ms: float) -> None:
        skipped_ms = skipped_for_ms(latency_ms)
        if skipped_ms:
            self.suspicions[broker_name] = _Suspicion(self._clock.now_ms() + skipped_ms, True)
        elif self.suspicions:
            self.suspicions.pop(broker_name, None)

    def failed(self, broker_name: str, *, is_reachable: bool) -> None:
        until = self._clock.now_ms() + skipped_for_ms(FAILED_LATENCY_MS)
        self.suspicions[broker_name] = _Suspicion(until, is_reachable)

    def is_available(self, broker_name: str) -> bool:
        suspicion = self.suspicions.get(broker_name)
        return suspicion is None or suspicion.skipped_until_ms <= self._clock.now_ms()

    def is_reachable(self, broker_name: str) -> bool:
        suspicion = self.suspicions.get(broker_name)
        return suspicion is None or suspicion.is_reachable or suspicion.skipped_until_ms <= self._clock.now_ms()


def skipped_for_ms(latency_ms: float) -> int:
    step = bisect_right(_LATENCY_MS, latency_ms) - 1
    return _SKIPPED_MS[step] if step >= 0 else 0


def choose_queue(
    queues: Sequence[MessageQueue], turn: int, faults: FaultTable | None, avoided: Sequence[str] = ()
) -> MessageQueue:
    """Round robin from `turn`, first among healthy brokers that were not tried yet, then among fewer conditions."""
    if not avoided and not faults:
        return queues[turn % len(queues)]
    rotated = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
    if faults:
        for is_good in (faults.is_available, faults.is_reachable):
            for queue in rotated:
                if queue.broker_name not in avoided and is_good(queue.broker_name):
                    return queue
    return next((queue for queue in rotated if queue.broker_name not in avoided[-1:]), rotated[0])

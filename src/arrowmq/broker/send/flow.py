"""Flow control: sends are refused, with the reason, while the broker would suffer from taking more.

Three things can run full that senders can be slower for: the disk (the log is appended faster than it is forced), the
memory of this process, and the rate that an operator allows. A refused message was not stored; the client is told
SYSTEM_BUSY, on which RocketMQ's clients try another broker or wait, and each reason has its own counter.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

from arrowmq.broker.background import Background
from arrowmq.broker.runtime.memory_limit import allowed_bytes, group_limit_bytes
from arrowmq.broker.send.message_path import MessagePath
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import Refused
from arrowmq.store import MessageStore
from arrowmq.touches import Touches
from arrowmq.wire.codes import ResponseCode

log = logging.getLogger(__name__)

WORDS = "[REJECTREQUEST]system busy, start flow control for a while"
MEMORY_SAMPLE_S = 2.0
RATE_SAID_EVERY_MS = 60_000

FLUSH_LAG = "flush lag"
DISK = "disk"
MEMORY = "memory"
RATE = "rate limit"


def private_memory_bytes() -> int:
    """The memory that is this process's alone, which mapped files are not; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


class FlowControl:
    def __init__(
        self, config: BrokerConfig, store: MessageStore, path: MessagePath, background: Background, clock: Clock
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.refused: Counter[str] = Counter()
        self._memory_bytes = 0
        self._second = 0
        self._in_second = 0
        self._last_reason: str | None = None
        self._rate_said_ms = 0
        path.gates.add(self.gate, Touches(only_while=self.busy_with))
        self._group_allowance = allowed_bytes(0, group_limit_bytes())
        if config.max_process_memory_bytes >= 0:
            background.every("measure memory", MEMORY_SAMPLE_S, self.measure, first_s=0)

    def measure(self) -> None:
        self._memory_bytes = private_memory_bytes()

    def gate(self) -> None:
        found = self._reason()
        if found is None:
            self._calm_again()
            return
        reason, words = found
        self.refused[reason] += 1
        self._say(reason, words)
        code = ResponseCode.SERVICE_NOT_AVAILABLE if reason is DISK else ResponseCode.SYSTEM_BUSY
        prefix = "service not available now." if reason is DISK else f"{WORDS}:"
        raise Refused(code, f"{prefix} {words}. Nothing was stored")

    def busy_with(self) -> str | None:
        """Why a send would be refused now, or has to be counted; None if it would just pass."""
        if self.config.max_sends_per_second > 0:
            return "maxSendsPerSecond is set, so every send is counted"
        found = self._reason()
        if found is not None:
            return found[1]
        self._calm_again()
        return None

    def _say(self, reason: str, words: str) -> None:
        """Once for each beginning; of a rate, which is reached and left in every second, once a minute."""
        now_ms = self.clock.now_ms()
        if reason != self._last_reason and (reason != RATE or now_ms - self._rate_said_ms >= RATE_SAID_EVERY_MS):
            log.warning("sends refused reason=%s: %s", reason, words)
            if reason == RATE:
                self._rate_said_ms = now_ms
        self._last_reason = reason

    def _calm_again(self) -> None:
        if self._last_reason not in (None, RATE):
            log.info("sends taken again reason=no more %s", self._last_reason)
        self._last_reason = None

    def _reason(self) -> tuple[str, str] | None:
        config = self.config
        lag = self.store.unflushed_bytes
        if lag > config.max_unflushed_bytes > 0:
            return FLUSH_LAG, (
                f"{lag >> 20} MiB of the log are not on disk yet, "
                f"maxUnflushedBytes allows {config.max_unflushed_bytes >> 20}"
            )
        full = self.store.why_refusing()
        if full is not None:
            return DISK, full
        allowed = config.max_process_memory_bytes or self._group_allowance
        if self._memory_bytes > allowed > 0:
            whose = "maxProcessMemoryBytes" if config.max_process_memory_bytes else "the limit of its control group"
            return MEMORY, f"the broker uses {self._memory_bytes >> 20} MiB of memory, {whose} allows {allowed >> 20}"
        return self._rate() if config.max_sends_per_second > 0 else None

    def _rate(self) -> tuple[str, str] | None:
        second = self.clock.now_ms() // 1000
        if second != self._second:
            self._second, self._in_second = second, 0
        if self._in_second >= self.config.max_sends_per_second:
            return RATE, f"maxSendsPerSecond={self.config.max_sends_per_second} is reached in this second"
        self._in_second += 1
        return None

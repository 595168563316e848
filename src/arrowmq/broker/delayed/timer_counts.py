"""How many timer messages wait, came and went, by topic; kept in `config/timermetrics`, in Apache's form.

The file is written when the broker stops. After a crash the number that waits is taken from the timer log itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from arrowmq.broker.delayed.timer_files import DELETE, PRECISION_MS, TimerWheel, Unit
from arrowmq.broker.topics.table import Topics
from arrowmq.distribution import Distribution
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import DataVersion, TimerMetric, TimerMetrics
from arrowmq.wire.checksum import java_hash

# Seconds that messages are to wait, and seconds from now in which they are due, as Apache's metrics divide them
DELAY_BOUNDS_S = (60, 600, 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600)
DUE_BOUNDS_S = (5, 60, 300, 900, 3600, 4 * 3600, 8 * 3600, 24 * 3600)


class TimerCounts:
    def __init__(self, file: JsonConfigFile, topics: Topics) -> None:
        self.file = file
        self.topics = topics
        self.waiting: Counter[str] = Counter()
        self.entered: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.delays: dict[str, Distribution] = {}
        self._changed_ms: dict[str, int] = {}
        self._version = 0
        self._revision = 0

    def load(self) -> None:
        with self.file.naming_damage():
            known = msgspec.convert(self.file.load() or {}, TimerMetrics, strict=False)
            self.waiting = Counter({topic: metric.count for topic, metric in known.timing_count.items()})
            self._changed_ms = {topic: metric.time_stamp for topic, metric in known.timing_count.items()}
            self._version = known.data_version.counter if known.data_version is not None else 0

    def take(self, theirs: TimerMetrics) -> None:
        """A slave takes its master's numbers."""
        self.waiting = Counter({topic: max(0, metric.count) for topic, metric in theirs.timing_count.items()})
        self._changed_ms = {topic: metric.time_stamp for topic, metric in theirs.timing_count.items()}

    def forget_waiting(self) -> None:
        """What waits is about to be entered, and counted, anew."""
        self.waiting, self._changed_ms = Counter(), {}

    @property
    def revision(self) -> int:
        """Grows with every change of what waits."""
        return self._revision

    def recount(self, units: Iterable[Unit], now_ms: int) -> None:
        """Takes what waits from the timer log, which names topics by their hash."""
        topics = {java_hash(topic): topic for topic in self.topics.table}
        self.waiting = Counter()
        for unit in units:
            topic = topics.get(unit.topic_hash)
            if topic is not None:
                self.waiting[topic] += -1 if unit.magic & DELETE else 1
        self._changed_ms = dict.fromkeys(self.waiting, now_ms)

    def entered_one(self, topic: str, waits_ms: int, now_ms: int, *, is_delete: bool, is_new: bool) -> None:
        """`is_new`: it was not put back by ourselves because it is due beyond the wheel."""
        self._change(topic, -1 if is_delete else 1, now_ms)
        self.entered[topic] += 1
        if is_new and not is_delete:
            delays = self.delays.get(topic)
            if delays is None:
                delays = self.delays[topic] = Distribution(DELAY_BOUNDS_S)
            delays.add(max(0, waits_ms) // 1000)

    def delivered_one(self, topic: str, now_ms: int, *, has_waited: bool) -> None:
        if has_waited:
            self._change(topic, -1, now_ms)
        self.delivered[topic] += 1

    def put_back_one(self, topic: str, now_ms: int) -> None:
        self._change(topic, -1, now_ms)

    def _change(self, topic: str, by: int, now_ms: int) -> None:
        self._revision += 1
        self.waiting[topic] = max(0, self.waiting[topic] + by)
        self._changed_ms[topic] = now_ms

    def body(self, now_ms: int) -> TimerMetrics:
        """Answer to GET_TIMER_METRICS, and the file."""
        counts = {
            topic: TimerMetric(count=count, time_stamp=self._changed_ms[topic]) for topic, count in self.waiting.items()
        }
        return TimerMetrics(
            data_version=DataVersion(timestamp=now_ms, counter=self._version, state_version=0), timing_count=counts
        )

    def persist(self, now_ms: int) -> None:
        self._version += 1
        self.file.persist(fastjson.dumps(self.body(now_ms)))


def due_soon(wheel: TimerWheel, now_ms: int) -> dict[int, int]:
    """How many messages are due from one bound to the next of `DUE_BOUNDS_S`, by the later bound."""
    counts = wheel.counts(now_ms, DUE_BOUNDS_S[-1] * 1000 // PRECISION_MS)
    found, begin = {}, 0
    for bound in DUE_BOUNDS_S:
        found[bound] = sum(counts[begin:bound])
        begin = bound
    return found

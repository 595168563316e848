"""What the metrics tell of transactions, by topic: how many were ended how, how long it took, how many are open.

Open ones are counted when somebody asks. Each half message is looked at once for that; when it ends later, its topic
has one less. A clean stop asks, too: Apache's broker goes on counting from `config/transactionMetrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from arrowmq.broker.names import HALF_TOPIC
from arrowmq.broker.transactions.log import HALF_QUEUE, End, TransactionLog
from arrowmq.distribution import Distribution
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.records import Record

# Seconds from a message's birth to its commit. Apache's metric says milliseconds, and counts seconds.
LATENCY_BOUNDS_S = (5, 60, 600, 3600, 12 * 3600, 24 * 3600)


class TransactionCounts:
    def __init__(self, transactions: TransactionLog) -> None:
        self.transactions = transactions
        self.looked_up_to = 0  # half messages below this were counted as open, if they were
        # What the fast paths have counted by themselves: topic, rolled back, commits by seconds, counted as open before
        self.sources: list[Callable[[], Iterable[tuple[str, int, dict[int, int], int]]]] = []
        self._committed: Counter[str] = Counter()
        self._rolled_back: Counter[str] = Counter()
        self._latency: dict[str, Distribution] = {}
        self._open: Counter[str] = Counter()
        transactions.on_end = self._ended

    def decided(self, half: Record, how: End, now_ms: int) -> None:
        topic = _topic(half)
        self._open[topic] += 0  # known from now on, also when none is open
        if how is not End.COMMIT:
            self._rolled_back[topic] += 1
            return
        self._commit(topic, max(0, now_ms - half.born_timestamp) // 1000, 1)

    def _commit(self, topic: str, seconds: int, times: int) -> None:
        self._committed[topic] += times
        latency = self._latency.get(topic)
        if latency is None:
            latency = self._latency[topic] = Distribution(LATENCY_BOUNDS_S)
        latency.add(seconds, times)

    def _gather(self) -> None:
        for source in self.sources:
            for topic, rolled_back, commits, counted in source():
                self._open[topic] -= counted
                if rolled_back:
                    self._rolled_back[topic] += rolled_back
                for seconds, times in commits.items():
                    self._commit(topic, seconds, times)

    @property
    def committed(self) -> Counter[str]:
        self._gather()
        return self._committed

    @property
    def rolled_back(self) -> Counter[str]:
        self._gather()
        return self._rolled_back

    @property
    def latency(self) -> dict[str, Distribution]:
        self._gather()
        return self._latency

    def _ended(self, half: Record) -> None:
        if half.queue_offset < self.looked_up_to:
            self._open[_topic(half)] -= 1

    def open_by_topic(self, most: int | None = None) -> Counter[str]:
        """With `most`, only so many that are new are looked at in this call; the next ones go on from there."""
        self._gather()
        transactions = self.transactions
        end = transactions.store.max_offset(HALF_TOPIC, HALF_QUEUE)
        offset = transactions.next_open(self.looked_up_to)
        looked = 0
        while offset < end and looked != most:
            half = transactions.half_of(offset)
            if half is not None:
                self._open[_topic(half)] += 1
            offset = transactions.next_open(offset + 1)
            looked += 1
        self.looked_up_to = max(min(offset, end), self.looked_up_to)
        return self._open

    def persist(self, file: JsonConfigFile, now_ms: int) -> None:
        counts = {
            topic: {"count": count, "timeStamp": now_ms} for topic, count in self.open_by_topic().items() if count > 0
        }
        if counts or file.path.exists():
            version = {"stateVersion": 0, "timestamp": now_ms, "counter": 1}
            file.persist(fastjson.dumps({"dataVersion": version, "transactionCount": counts}))


def _topic(half: Record) -> str:
    return half.properties.get(keys.REAL_TOPIC, half.topic)

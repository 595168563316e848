"""What a broker counts: messages in and out by topic, queue and group, over the last minute, hour and day.

Counting is an addition, nothing more. Every ten seconds the items that changed leave a sample; a rate is the difference
between now and the sample at the beginning of its window, so an item at rest costs nothing.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from arrowmq.broker.send.message_types import NORMAL
from arrowmq.clock import Clock
from arrowmq.distribution import Distribution

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
SHORTEST_RATE_MS = 10_000
# Of message sizes, as Apache's metrics have them
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
# Windows of the store's own rates, as GET_BROKER_RUNTIME_INFO lists them
RATE_WINDOWS_MS = (10_000, 60_000, 600_000)

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
# The names a tool may ask for; others are unknown rather than empty
NAMES = frozenset(
    {
        TOPIC_PUT_NUMS,
        TOPIC_PUT_SIZE,
        QUEUE_PUT_NUMS,
        QUEUE_PUT_SIZE,
        GROUP_GET_NUMS,
        GROUP_GET_SIZE,
        QUEUE_GET_NUMS,
        QUEUE_GET_SIZE,
        BROKER_PUT_NUMS,
        BROKER_GET_NUMS,
        SNDBCK_PUT_NUMS,
        DLQ_PUT_NUMS,
    }
)


class Sample(NamedTuple):
    at_ms: int
    total: int
    times: int


class Window(NamedTuple):
    """What happened in a window of time: how much, how often a second, and how much each time."""

    total: int
    per_second: float
    per_time: float


class Item:
    """One running total with its samples: ten seconds apart for the last hour, ten minutes apart for two days."""

    __slots__ = ("coarse", "fine", "times", "total")

    def __init__(self, at_ms: int) -> None:
        self.total = 0
        self.times = 0
        self.fine = [Sample(at_ms, 0, 0)]
        self.coarse = [Sample(at_ms, 0, 0)]

    def add(self, amount: int, times: int = 1) -> None:
        self.total += amount
        self.times += times

    def sample(self, now_ms: int) -> None:
        if self.total == self.fine[-1].total and self.times == self.fine[-1].times:
            return
        taken = Sample(now_ms, self.total, self.times)
        self.fine.append(taken)
        if now_ms - self.coarse[-1].at_ms >= 600_000:
            self.coarse.append(taken)
        _forget(self.fine, now_ms - HOUR_MS)
        _forget(self.coarse, now_ms - 2 * DAY_MS)

    def window(self, now_ms: int, length_ms: int) -> Window:
        samples = self.fine if length_ms <= HOUR_MS else self.coarse
        place = bisect.bisect_right(samples, now_ms - length_ms, key=lambda sample: sample.at_ms) - 1
        begin = samples[max(place, 0)]
        total, times = self.total - begin.total, self.times - begin.times
        # A counter at rest has no sample at the window's beginning; its last one says the same, from further back.
        # What was counted for the first time a moment ago has no rate yet: one message would be a thousand a second.
        elapsed_ms = min(length_ms, max(SHORTEST_RATE_MS, now_ms - samples[0].at_ms))
        return Window(total, total * 1000 / elapsed_ms, total / times if times else 0.0)


def _forget(samples: list[Sample], before_ms: int) -> None:
    """Drops old samples, but keeps the last one before the limit: a window begins with it."""
    place = bisect.bisect_right(samples, before_ms, key=lambda sample: sample.at_ms) - 1
    if place > 0:
        del samples[:place]


class BrokerStats:
    SAMPLE_S = 10.0

    def __init__(self, clock: Clock, cluster: str, is_system: Callable[[str], bool]) -> None:
        self.clock = clock
        self._is_system = is_system
        self._system: dict[str, bool] = {}  # what was asked before
        self.cluster = cluster
        self.items: dict[str, dict[str, Item]] = {name: {} for name in NAMES}
        now_ms = clock.now_ms()
        self.puts = Item(now_ms)
        self.gets_found = Item(now_ms)
        self.gets_missed = Item(now_ms)
        self.messages_got = Item(now_ms)
        self.user_puts = Item(now_ms)  # without the topics of the system, as dashboards show a broker's day
        self.user_gets = Item(now_ms)
        self.timer_entered = Item(now_ms)
        self.timer_delivered = Item(now_ms)
        self.put_bytes = 0
        self.sizes: dict[tuple[str, str], Distribution] = {}  # by topic and type of message
        self.failed_puts = 0
        self._own = (
            *(self.puts, self.gets_found, self.gets_missed, self.messages_got, self.user_puts, self.user_gets),
            *(self.timer_entered, self.timer_delivered),
        )
        # What counts by itself and is asked when somebody reads: called to hand in what it has counted
        self.sources: list[Callable[[], None]] = []

    def add(self, name: str, key: str, amount: int = 1, times: int = 1) -> None:
        items = self.items[name]
        item = items.get(key)
        if item is None:
            item = items[key] = Item(self.clock.now_ms())
        item.total += amount
        item.times += times

    def _is_of_users(self, topic: str) -> bool:
        known = self._system.get(topic)
        if known is None:
            known = self._system[topic] = self._is_system(topic)
        return not known

    def put(self, topic: str, queue_id: int, count: int, size: int, message_type: str = NORMAL) -> None:
        """Messages were stored, `size` bytes in all; of those of a batch the mean size counts."""
        sizes = self._sizes_of(topic, message_type)
        sizes.add(size // count, count)
        sizes.total += size % count
        self.count_put(topic, queue_id, count, size)

    def add_sizes(self, topic: str, message_type: str, counts: list[int], total: int, largest: int) -> None:
        """The sizes of messages that `count_put` hears of: how many there are below each bound, and together."""
        counted = Distribution(SIZE_BOUNDS)
        counted.counts, counted.total, counted.largest = counts, total, largest
        self._sizes_of(topic, message_type).join(counted)

    def _sizes_of(self, topic: str, message_type: str) -> Distribution:
        sizes = self.sizes.get((topic, message_type))
        if sizes is None:
            sizes = self.sizes[topic, message_type] = Distribution(SIZE_BOUNDS)
        return sizes

    def count_put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """The same without the sizes of the single messages."""
        queue = f"{topic}@{queue_id}"
        self.add(TOPIC_PUT_NUMS, topic, count)
        self.add(TOPIC_PUT_SIZE, topic, size)
        self.add(QUEUE_PUT_NUMS, queue, count)
        self.add(QUEUE_PUT_SIZE, queue, size)
        self.add(BROKER_PUT_NUMS, self.cluster, count)
        self.puts.add(count)
        if self._is_of_users(topic):
            self.user_puts.add(count)
        self.put_bytes += size

    def put_failed(self) -> None:
        self.failed_puts += 1

    def get(self, group: str, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        reader = f"{topic}@{group}"
        queue = f"{topic}@{queue_id}@{group}"
        self.add(GROUP_GET_NUMS, reader, count, times)
        self.add(GROUP_GET_SIZE, reader, size, times)
        self.add(QUEUE_GET_NUMS, queue, count, times)
        self.add(QUEUE_GET_SIZE, queue, size, times)
        self.add(BROKER_GET_NUMS, self.cluster, count, times)
        self.gets_found.add(times)
        self.messages_got.add(count)
        if self._is_of_users(topic):
            self.user_gets.add(count)

    def get_missed(self) -> None:
        self.gets_missed.add(1)

    def gather(self) -> None:
        """Take in what the sources have counted since the last time."""
        for source in self.sources:
            source()

    def sample(self) -> None:
        self.gather()
        now_ms = self.clock.now_ms()
        for item in self._own:
            item.sample(now_ms)
        for items in self.items.values():
            for item in items.values():
                item.sample(now_ms)

    def find(self, name: str, key: str) -> Item | None:
        self.gather()
        return self.items.get(name, {}).get(key)

    def per_second(self, name: str, key: str) -> float:
        """The rate over the last minute; 0 for what was never counted."""
        item = self.find(name, key)
        return 0.0 if item is None else item.window(self.clock.now_ms(), MINUTE_MS).per_second

    def rates(self, item: Item) -> list[float]:
        self.gather()
        now_ms = self.clock.now_ms()
        return [item.window(now_ms, length_ms).per_second for length_ms in RATE_WINDOWS_MS]

    def morning(self, item: Item, days_ago: int) -> int:
        """The total at the last midnight, or at one before it, as far back as the samples go."""
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days_ago)
        before = [sample.total for sample in item.coarse if sample.at_ms <= midnight.timestamp() * 1000]
        return before[-1] if before else 0

    def forget_topic(self, topic: str) -> None:
        self._system.pop(topic, None)
        for counted in [counted for counted in self.sizes if counted[0] == topic]:
            del self.sizes[counted]
        for items in self.items.values():
            for key in [key for key in items if key.partition("@")[0] == topic]:
                del items[key]

    def forget_group(self, group: str) -> None:
        for items in self.items.values():
            for key in [key for key in items if "@" in key and key.rpartition("@")[2] == group]:
                del items[key]

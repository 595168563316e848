"""Pop in order: what of a queue is out, and which queues are blocked by that (`config/consumerOrderInfo.json`).

There is no check point: a queue hands out nothing more while one of the messages it gave is neither acknowledged nor
visible again, except to the same attempt, which gets the same messages once more. The group's offset stays at the first
message that is not acknowledged, and from there on they are handed out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from arrowmq.broker.background import Background
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.due import Due
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.table_file import TableFile
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.store.config_file import JsonConfigFile

PERSIST_S = 10.0
FORGOTTEN_AFTER_MS = 24 * 3_600_000
BUCKET_MS = 10
SEPARATOR = "@"
Place = tuple[str, str, int]  # topic, group, queue


class WrongOffset(Exception):
    """An ack of a message that is not among those handed out."""


class OrderInfo:
    """The messages of one queue that a group has in hand."""

    __slots__ = ("acked", "attempt_id", "counts", "invisible_ms", "last_ms", "offsets", "pop_time", "visible_at")

    def __init__(
        self,
        attempt_id: str | None,
        pop_time: int,
        invisible_ms: int,
        offsets: list[int],
        last_ms: int,
        acked: int = 0,
        visible_at: dict[int, int] | None = None,
        counts: dict[int, int] | None = None,
    ) -> None:
        self.attempt_id = attempt_id
        self.pop_time = pop_time
        self.invisible_ms = invisible_ms
        self.offsets = offsets
        self.last_ms = last_ms
        self.acked = acked
        self.visible_at = visible_at or {}  # of messages whose invisible time was changed
        self.counts = counts or {}  # how often a message was handed out before, if it was

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> OrderInfo:
        relative = [int(offset) for offset in stored.get("o") or ()]
        offsets = relative[:1] + [relative[0] + diff for diff in relative[1:]]
        return cls(
            stored.get("a"),
            int(stored.get("popTime") or 0),
            int(stored.get("i") or 0),
            offsets,
            int(stored.get("l") or 0),
            int(stored.get("cm") or 0) & (1 << 64) - 1,
            {int(offset): int(at_ms) for offset, at_ms in (stored.get("ot") or {}).items()},
            {int(offset): int(count) for offset, count in (stored.get("oc") or {}).items()},
        )

    def as_json(self) -> dict[str, Any]:
        """In Apache's letters: offsets beside the first are relative to it."""
        first = self.offsets[0]
        found: dict[str, Any] = {
            "cm": self.acked,
            "i": self.invisible_ms,
            "l": self.last_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "popTime": self.pop_time,
        }
        if self.attempt_id is not None:
            found["a"] = self.attempt_id
        if self.counts:
            found["oc"] = self.counts
        if self.visible_at:
            found["ot"] = self.visible_at
        return found

    def open_until_ms(self) -> list[int]:
        """When each message that is not acknowledged becomes visible again."""
        return [
            self.visible_at.get(offset, self.pop_time + self.invisible_ms)
            for index, offset in enumerate(self.offsets)
            if not self.acked >> index & 1
        ]

    def is_blocked(self, attempt_id: str | None, now_ms: int) -> bool:
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return any(now_ms < until_ms for until_ms in self.open_until_ms())

    @property
    def next_offset(self) -> int:
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1

    def acknowledge_before(self, committed: int) -> None:
        """What the group's offset has passed was acknowledged, whether that was still noted here or not."""
        for index, offset in enumerate(self.offsets):
            if offset < committed:
                self.acked |= 1 << index

    def inherit_counts(self, before: OrderInfo) -> None:
        """A message that is handed out once more counts one more, unless the same attempt asked again."""
        if before.attempt_id is not None and before.attempt_id == self.attempt_id:
            self.counts = dict(before.counts)
            return
        handed_out = set(before.offsets)
        for offset in self.offsets:
            if offset in handed_out:
                self.counts[offset] = before.counts.get(offset, 0) + 1


class OrderTable:
    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        file: JsonConfigFile,
        background: Background,
        clock: Clock,
    ) -> None:
        self.config = config
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.file = TableFile(file, clock, lambda: msgspec.json.encode(self.as_json()))
        self.clock = clock
        self.table: dict[tuple[str, str], dict[int, OrderInfo]] = {}  # by topic and group, then by queue
        self.on_free: list[Callable[[str, str, int], None]] = []
        self._due: Due[Place] = Due(clock, BUCKET_MS, self._freed)
        self._buckets: dict[Place, int] = {}
        background.every("persist orders of pop", PERSIST_S, self.persist_if_changed)

    # Life

    def load(self) -> None:
        """The group's offset is written more often than this table. After a crash it may have passed messages that are
        open here: the next ack behind them would send the group back to what it had acknowledged."""
        stored = (self.file.file.load() or {}).get("table", {})
        with self.file.file.naming_damage():
            for key, queues in stored.items():
                topic, _, group = key.partition(SEPARATOR)
                for queue_id, entry in queues.items():
                    info = OrderInfo.from_json(entry)
                    if info.offsets:
                        info.acknowledge_before(self.offsets.get(group, topic, int(queue_id)) or 0)
                        self.table.setdefault((topic, group), {})[int(queue_id)] = info

    def start(self) -> None:
        self._due.start()
        for (topic, group), queues in self.table.items():
            for queue_id, info in queues.items():
                self._watch((topic, group, queue_id), info)

    async def stop(self) -> None:
        self._due.stop()

    def as_json(self) -> dict[str, Any]:
        self._clean()
        return {
            "table": {
                f"{topic}{SEPARATOR}{group}": {str(queue_id): info.as_json() for queue_id, info in queues.items()}
                for (topic, group), queues in self.table.items()
            }
        }

    async def persist_if_changed(self) -> None:
        await self.file.saved()

    def persist(self) -> None:
        if self.table or not self.file.is_saved:
            self.file.save()

    def _clean(self) -> None:
        now_ms = self.clock.now_ms()
        for (topic, group), queues in list(self.table.items()):
            config = self.topics.get(topic)
            for queue_id, info in list(queues.items()):
                is_old = now_ms - info.last_ms > FORGOTTEN_AFTER_MS
                if config is None or queue_id >= config.read_queue_nums or is_old or self.groups.get(group) is None:
                    del queues[queue_id]
            if not queues:
                del self.table[topic, group]

    # What is asked of it

    def get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        return self.table.get((topic, group), {}).get(queue_id)

    def is_blocked(self, attempt_id: str | None, topic: str, group: str, queue_id: int, invisible_ms: int) -> bool:
        info = self.get(topic, group, queue_id)
        if info is None:
            return False
        if info.invisible_ms <= 0:
            info.invisible_ms = invisible_ms
        return info.is_blocked(attempt_id, self.clock.now_ms())

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        info = self.get(topic, group, queue_id)
        return 0 if info is None else len(info.offsets) - info.acked.bit_count()

    # What happens to it

    def popped(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time: int,
        invisible_ms: int,
        offsets: list[int],
    ) -> OrderInfo:
        info = OrderInfo(attempt_id, pop_time, invisible_ms, offsets, self.clock.now_ms())
        queues = self.table.setdefault((topic, group), {})
        before = queues.get(queue_id)
        if before is not None:
            info.inherit_counts(before)
        queues[queue_id] = info
        self._changed((topic, group, queue_id), info)
        return info

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> int | None:
        """The offset to commit; None if the message was handed out anew since. Raises `WrongOffset`."""
        info = self.get(topic, group, queue_id)
        if info is None:
            return offset + 1
        if pop_time != info.pop_time:
            return None
        if offset not in info.offsets:
            raise WrongOffset
        info.acked |= 1 << info.offsets.index(offset)
        self._changed((topic, group, queue_id), info)
        return info.next_offset

    def show_at(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, at_ms: int) -> None:
        """Changes when a message becomes visible again."""
        info = self.get(topic, group, queue_id)
        if info is not None and info.pop_time == pop_time:
            info.visible_at[offset] = at_ms
            self._changed((topic, group, queue_id), info)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        if self.table.get((topic, group), {}).pop(queue_id, None) is not None:
            self.file.changed(soon=False)

    # When a queue is free again

    def _changed(self, place: Place, info: OrderInfo) -> None:
        self.file.changed(soon=False)
        self._watch(place, info)

    def _watch(self, place: Place, info: OrderInfo) -> None:
        before = self._buckets.pop(place, None)
        if before is not None:
            self._due.remove(place, before)
        until_ms = max(info.open_until_ms(), default=0)
        if until_ms > self.clock.now_ms() and self.config.enable_notify_after_pop_order_lock_release:
            self._buckets[place] = self._due.add(place, until_ms)

    def _freed(self, places: Iterable[Place]) -> None:
        for place in list(places):
            self._buckets.pop(place, None)
            for notify in self.on_free:
                notify(*place)

"""Who is notified of new messages, and when: with the append, or, where more is promised, once readers may see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.wire.records import Record

if TYPE_CHECKING:
    from arrowmq.store.append._tail_plain import QueueTail

#: topic, queue id, next queue offset, tags code, store time, properties
Facts = tuple[str, int, int, int, int, bytes]
Listener = Callable[[str, int, int, int, int, bytes], object]
_PREPARED, _ROLLBACK, _TRANSACTION = 0x4, 0xC, 0xC


class Listeners:
    def __init__(self) -> None:
        self._of_watched: list[Listener] = []
        self._of_every: list[Listener] = []
        self.wants_every = False
        self._held: deque[tuple[int, QueueTail, Facts]] = deque()

    def add(self, callback: Listener, *, every: bool) -> None:
        (self._of_every if every else self._of_watched).append(callback)
        self.wants_every = bool(self._of_every)

    def notify(self, queue: QueueTail, record: Record, code: int, hold_until: int) -> None:
        """Notify of the message just appended; with `hold_until`, once the log is confirmed up to there."""
        if record.sys_flag & _TRANSACTION in (_PREPARED, _ROLLBACK):
            return
        facts = (
            queue.topic,
            queue.queue_id,
            record.queue_offset + 1,
            code,
            record.store_timestamp,
            record.properties_raw,
        )
        self._tell_or_hold(queue, facts, hold_until)

    def _tell_or_hold(self, queue: QueueTail, facts: Facts, hold_until: int) -> None:
        if hold_until:
            self._held.append((hold_until, queue, facts))
        else:
            self._tell(queue, facts)

    def tell(self, queue: QueueTail, store_timestamp: int, properties_raw: bytes, hold_until: int) -> None:
        """`notify` for a message that has no Record: the one just appended to this queue."""
        facts = (queue.topic, queue.queue_id, queue.next_offset, queue.last_code, store_timestamp, properties_raw)
        self._tell_or_hold(queue, facts, hold_until)

    def release(self, confirmed: int) -> None:
        while self._held and self._held[0][0] <= confirmed:
            _, queue, facts = self._held.popleft()
            self._tell(queue, facts)

    def _tell(self, queue: QueueTail, facts: Facts) -> None:
        if queue.watched:
            for callback in self._of_watched:
                callback(*facts)
        for callback in self._of_every:
            callback(*facts)

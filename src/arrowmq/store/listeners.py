"""Who is notified of new messages, and when: with the append, or, where more is promised, once readers may see them.

Listeners of watched queues hear of the messages in queues that a reader waits at, whoever wrote them. Listeners of
every message declare which they touch (`arrowmq.touches`); the fast path leaves those messages to the general path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.touches import ANYTHING, Steps, Touches
from arrowmq.wire.records import Record

if TYPE_CHECKING:
    from arrowmq.store.append._tail_plain import QueueTail

#: topic, queue id, next queue offset, tags code, store time, properties
Facts = tuple[str, int, int, int, int, bytes]
Listener = Callable[[str, int, int, int, int, bytes], object]
_PREPARED, _ROLLBACK, _TRANSACTION = 0x4, 0xC, 0xC


MOST_PENDING = 65_536


class Listeners:
    def __init__(self) -> None:
        self._of_watched: list[Listener] = []
        self.of_every: Steps[Listener] = Steps("store listener")
        self._pending: deque[tuple[int, QueueTail, Facts]] = deque()  # until readers may see them
        self._newest: dict[QueueTail, tuple[int, Facts]] = {}  # of those that are too many, the last of each queue

    def add(self, callback: Listener, *, every: bool, touches: Touches = ANYTHING) -> None:
        if every:
            self.of_every.add(callback, touches)
        else:
            self._of_watched.append(callback)

    @property
    def wants_every(self) -> bool:
        return len(self.of_every) > 0

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
        self._notify_at(hold_until, queue, facts)

    def _notify_at(self, hold_until: int, queue: QueueTail, facts: Facts) -> None:
        if hold_until:
            # Where replicas are promised and gone for hours, nobody may see hours of messages: not each is remembered.
            if len(self._pending) < MOST_PENDING and not self._newest:
                self._pending.append((hold_until, queue, facts))
            else:
                self._newest[queue] = (hold_until, facts)
        else:
            self._notify_all(queue, facts)

    def notify_of_last(self, queue: QueueTail, store_timestamp: int, properties_raw: bytes, hold_until: int) -> None:
        """`notify` for a message that has no Record: the one just appended to this queue."""
        facts = (queue.topic, queue.queue_id, queue.next_offset, queue.last_code, store_timestamp, properties_raw)
        self._notify_at(hold_until, queue, facts)

    def release(self, confirmed: int) -> None:
        while self._pending and self._pending[0][0] <= confirmed:
            _, queue, facts = self._pending.popleft()
            self._notify_all(queue, facts)
        if self._newest and not self._pending:
            for queue, (hold_until, facts) in list(self._newest.items()):
                if hold_until <= confirmed:
                    del self._newest[queue]
                    self._notify_all(queue, facts)

    def _notify_all(self, queue: QueueTail, facts: Facts) -> None:
        if queue.watched:
            for callback in self._of_watched:
                callback(*facts)
        for callback in self.of_every:
            callback(*facts)

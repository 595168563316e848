"""Offsets of groups that a crash took away, found again in the revive log.

The table of offsets is written every few seconds. What was popped since would be handed out a second time after a
crash, acknowledged or not. But each pop left a check point in the log, which says how far it came. So the table is
written together with the ends of the revive queues, and at a start the check points behind those move the offsets on.

Apache's broker does not know these ends and leaves them out when it writes the table: then nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.pop.revive_messages import CheckPointMessage
from arrowmq.store import MessageStore

KEY = "arrowmqReviveEnds"


class OffsetReplay:
    def __init__(self, offsets: ConsumerOffsets, revive_log: ReviveLog, store: MessageStore) -> None:
        self.offsets = offsets
        self.log = revive_log
        self.store = store
        self.moved = 0
        self._ends: dict[int, int] = {}
        revive_log.replay = self._replay
        offsets.companions[KEY] = self._now
        offsets.file.barrier = self._flushed

    def before_writing(self, note: Callable[[], None]) -> None:
        """Has the places of the revive queues noted whenever the table is about to be written."""

        def noted() -> int:
            note()
            return 0  # commits that the table does not know of

        self.offsets.sources.append(noted)

    def begin(self) -> None:
        """From the ends in the file; without a file there was no offset that a check point could have moved from."""
        found = self.offsets.found
        if found is None:
            self._ends = {queue.queue_id: 0 for queue in self.log.queues}
            return
        stored = found.get(KEY)
        self._ends = {int(queue): int(end) for queue, end in stored.items()} if isinstance(stored, dict) else {}

    def end(self) -> None:
        """The log is read. What comes later by the timer is of another time."""
        self._ends = {}

    def _replay(self, queue_id: int, queue_offset: int, message: CheckPointMessage) -> None:
        if not message.offsets or queue_offset < self._ends.get(queue_id, queue_offset + 1):
            return
        end = message.offsets[-1] + 1
        committed = self.offsets.get(message.group, message.topic, message.queue_id)
        is_there = end <= self.store.queue(message.topic, message.queue_id).next_offset
        if is_there and (committed is None or committed < end):
            self.offsets.commit(message.group, message.topic, message.queue_id, end)
            self.moved += 1

    def _now(self) -> dict[int, int]:
        return {queue.queue_id: queue.read_offset for queue in self.log.queues}

    async def _flushed(self) -> bool:
        """An offset must not reach the disk before the check points that it has passed. False: not yet."""
        if not any(queue.read_offset for queue in self.log.queues):
            return True
        positions = self.store.positions
        return not await positions.wait(self.store.appended, positions.kept)

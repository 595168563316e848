"""Merging of acks into check points that are not stored yet (enablePopBufferMerge), and a group's offset meanwhile.

With merging on, a check point stays in memory for some seconds. If all its messages are acknowledged by then, nothing
of it was ever stored; if not, it is stored with the acks it has. Until one of these has happened, the group's offset
stays before its messages: a crash hands them out again, and loses none. Offsets are committed in the order of the pops.

Off, which is Apache's default, every check point is stored at once, and the offset is committed with it.

A slave that acts for its master can store none: there every check point stays in memory until its messages are
acknowledged or sent elsewhere as retries. Those that are left when the master comes back are handed out once more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.check_points import NOT_WRITTEN, CheckPoint, CheckPoints, Lane, Step
from arrowmq.broker.pop.due import Due
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.distribution import Distribution
from arrowmq.store import PutStatus

log = logging.getLogger(__name__)

BUCKET_MS = 50
# Beyond popCkStayBufferTimeOut, so that a check point is not stored a moment after it was spared (Apache's)
SPARE_MS = 1500
RETRY_MS = 100
ACTING_MS = 60_000  # until an acting master looks again at what it cannot store
SCAN_BOUNDS_MS = (1, 10, 100, 1000, 2000, 3000)


class Merging:
    def __init__(
        self, config: BrokerConfig, table: CheckPoints, revive_log: ReviveLog, offsets: ConsumerOffsets, clock: Clock
    ) -> None:
        self.config = config
        self.table = table
        self.log = revive_log
        self.offsets = offsets
        self.clock = clock
        self.unwritten: dict[CheckPoint, int] = {}  # with the bucket of the time when it is stored
        self.steps = 0
        self.scan_times = Distribution(SCAN_BOUNDS_MS)
        self._due: Due[CheckPoint] = Due(clock, BUCKET_MS, self._stayed)
        self._listens = False

    def start(self) -> None:
        self._due.start()

    def stop(self) -> None:
        self._due.stop()

    def clear(self) -> None:
        """Forgets what it kept: the table is about to be read anew."""
        self.unwritten.clear()
        self._due.clear()
        self.steps = 0

    # Check points

    def takes(self, check_point: CheckPoint) -> bool:
        """Keeps a check point in memory for a while, if it may; else it has to be stored now."""
        config = self.config
        if self.log.is_closed:
            if len(self.unwritten) >= config.pop_ck_max_buffer_size:
                return False
            self._keep(check_point, check_point.revive_time + ACTING_MS)
            return True
        if not config.enable_pop_buffer_merge:
            return False
        now_ms = self.clock.now_ms()
        if (
            check_point.revive_time - now_ms <= config.pop_ck_stay_buffer_time_out + SPARE_MS
            or len(self.unwritten) >= config.pop_ck_max_buffer_size
            or len(check_point.lane.steps) >= config.pop_ck_offset_max_queue_size
        ):
            return False
        latest_ms = check_point.revive_time - config.pop_ck_stay_buffer_time_out
        at_ms = min(check_point.pop_time + config.pop_ck_stay_buffer_time, latest_ms)
        self._keep(check_point, at_ms)
        return True

    def _keep(self, check_point: CheckPoint, until_ms: int) -> None:
        self.unwritten[check_point] = self._due.add(check_point, until_ms)
        self._listen()

    def _listen(self) -> None:
        """Only a broker that merges has to hear of every check point that is closed."""
        if not self._listens:
            self._listens = True
            self.table.on_closed.append(self._closed)

    def write(self, check_point: CheckPoint) -> bool:
        """Stores a check point that was kept in memory."""
        if check_point.revive_offset == NOT_WRITTEN:
            put = self.log.write_merged(check_point)
            if put.status is not PutStatus.PUT_OK:
                log.warning("a check point cannot be stored: %s", put.reason or put.status.name)
                return False
        self._forget(check_point)
        self.advance(check_point.lane)
        return True

    def write_all(self) -> None:
        for check_point in list(self.unwritten):
            self.write(check_point)

    def was_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Stores what a queue gave out before its group was sent elsewhere. Stored later, its check points would be
        taken for pops since then, and a start after a crash would move the group on to them."""
        lane = self.table.find_lane(topic, group, queue_id)
        if lane is not None and self.unwritten and not self.log.is_closed:
            for check_point in lane:
                if check_point in self.unwritten:
                    self.write(check_point)

    def _stayed(self, items: Iterable[CheckPoint]) -> None:
        began_s = self.clock.monotonic()
        for check_point in list(items):
            if check_point in self.unwritten and (self.log.is_closed or not self.write(check_point)):
                wait_ms = ACTING_MS if self.log.is_closed else RETRY_MS
                self.unwritten[check_point] = self._due.add(check_point, self.clock.now_ms() + wait_ms)
        self.scan_times.add(round((self.clock.monotonic() - began_s) * 1000))

    def _closed(self, check_point: CheckPoint) -> None:
        if self._forget(check_point) or check_point.lane.steps:
            self.advance(check_point.lane)

    def _forget(self, check_point: CheckPoint) -> bool:
        bucket = self.unwritten.pop(check_point, None)
        if bucket is not None:
            self._due.remove(check_point, bucket)
        return bucket is not None

    # Offsets

    def next_offset(self, lane: Lane) -> int | None:
        """Where the next pop of a lane begins, if pops before it are not committed yet."""
        return lane.steps[-1].next_offset if lane.steps else None

    def popped(self, lane: Lane, next_offset: int, check_point: CheckPoint | None) -> None:
        """A pop has come to `next_offset`; without a check point if it found nothing that its filter wants."""
        step = Step(next_offset, check_point)
        if not lane.steps and step.is_done:
            self._commit(lane, next_offset)
            return
        self._listen()
        lane.steps.append(step)
        self.steps += 1

    def advance(self, lane: Lane) -> None:
        reached = None
        while lane.steps and lane.steps[0].is_done:
            reached = lane.steps.popleft().next_offset
            self.steps -= 1
        if reached is not None:
            self._commit(lane, reached)

    def _commit(self, lane: Lane, offset: int) -> None:
        if not self.offsets.has_reset(lane.group, lane.topic, lane.queue_id):
            self.offsets.commit(lane.group, lane.topic, lane.queue_id, offset)

    def forget_steps(self, lane: Lane) -> None:
        """The group was sent elsewhere: where its pops had come to does not count."""
        self.steps -= len(lane.steps)
        lane.steps.clear()

"""Check points by their receipts, in Python: says what is right for the native form.

A lane is one queue as one group pops it. A check point belongs to a lane and is known there by the offset it begins at
and its pop time, which no two have in common. It is open while one of its messages is neither acknowledged nor taken
back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest

MAX_MESSAGES = 127  # that a check point of any broker counts; one of this broker's has 32 at most
NOT_WRITTEN = -1
NO_BUCKET = -1


class CheckPoint:
    __slots__ = (
        "acked",
        "broker_name",
        "bucket",
        "client",
        "count",
        "diffs",
        "invisible_ms",
        "is_suspend",
        "lane",
        "pop_time",
        "revive_offset",
        "revive_queue",
        "start_offset",
        "tries",
        "waits_for_timer",
    )

    def __init__(
        self,
        lane: Lane,
        start_offset: int,
        pop_time: int,
        invisible_ms: int,
        offsets: Sequence[int],
        revive_queue: int,
        broker_name: str,
        *,
        is_suspend: bool = False,
        tries: int = 0,
        client: str = "",
    ) -> None:
        if len(offsets) > MAX_MESSAGES:
            raise ValueError(f"a check point counts {MAX_MESSAGES} messages at most, not {len(offsets)}")
        self.lane = lane
        self.start_offset = start_offset
        self.pop_time = pop_time
        self.invisible_ms = invisible_ms
        self.count = len(offsets)
        is_dense = not offsets or (offsets[0] == start_offset and offsets[-1] - start_offset == self.count - 1)
        # A dense check point, which nearly every one is, needs no list of its own
        self.diffs = None if is_dense else tuple(offset - start_offset for offset in offsets)
        self.acked = 0  # bit i: the i-th message is acknowledged or was taken back
        self.revive_queue = revive_queue
        self.revive_offset = NOT_WRITTEN
        self.broker_name = broker_name
        self.is_suspend = is_suspend  # its messages come back without having been counted as consumed
        self.tries = tries  # how often taking back failed
        self.client = client  # who has its messages, if that is known
        self.bucket = NO_BUCKET
        self.waits_for_timer = False  # its acks may still be timer messages

    @property
    def key(self) -> tuple[int, int]:
        return self.start_offset, self.pop_time

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_ms

    @property
    def all_bits(self) -> int:
        return (1 << self.count) - 1

    @property
    def is_open(self) -> bool:
        return self.acked != self.all_bits

    @property
    def open_count(self) -> int:
        return self.count - self.acked.bit_count()

    def offset_at(self, index: int) -> int:
        return self.start_offset + (index if self.diffs is None else self.diffs[index])

    def offsets(self) -> list[int]:
        return [self.offset_at(index) for index in range(self.count)]

    def open_offsets(self) -> list[int]:
        return [self.offset_at(index) for index in range(self.count) if not self.acked >> index & 1]

    def acked_offsets(self) -> list[int]:
        return [self.offset_at(index) for index in range(self.count) if self.acked >> index & 1]

    def index_of(self, offset: int) -> int:
        """Which of its messages has this offset; -1 if none."""
        diff = offset - self.start_offset
        if self.diffs is None:
            return diff if 0 <= diff < self.count else -1
        return self.diffs.index(diff) if diff in self.diffs else -1

    @property
    def end_offset(self) -> int:
        """The offset behind its last message."""
        return self.offset_at(self.count - 1) + 1 if self.count else self.start_offset


class Step:
    """The group's offset after a pop, in the order of the pops: it counts when the check point needs no memory."""

    __slots__ = ("check_point", "next_offset")

    def __init__(self, next_offset: int, check_point: CheckPoint | None) -> None:
        self.next_offset = next_offset
        self.check_point = check_point

    @property
    def is_done(self) -> bool:
        found = self.check_point
        return found is None or found.revive_offset != NOT_WRITTEN or not found.is_open


class Lane:
    __slots__ = (
        "_check_points",
        "group",
        "in_flight",
        "is_busy",
        "is_forgotten",
        "moved",
        "queue_id",
        "steps",
        "topic",
    )

    def __init__(self, topic: str, group: str, queue_id: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self._check_points: dict[tuple[int, int], CheckPoint] = {}
        # offset -> the check point it has since its invisible time was changed, and the time of the pop that this began
        # with: receipts of that delivery mean that check point, too
        self.moved: dict[int, tuple[CheckPoint, int]] = {}
        self.steps: deque[Step] = deque()
        self.in_flight = 0
        self.is_busy = False  # a pop reads it from the disk
        self.is_forgotten = False  # the table has another lane in its place, or none

    @property
    def is_idle(self) -> bool:
        return not self._check_points and not self.steps and not self.is_busy

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(list(self._check_points.values()))

    def __len__(self) -> int:
        return len(self._check_points)

    def __bool__(self) -> bool:
        return True

    def oldest(self, most: int) -> list[CheckPoint]:
        """Those that were popped first, the first one first."""
        return nsmallest(most, self._check_points.values(), key=lambda each: (each.pop_time, each.start_offset))

    def find(self, start_offset: int, pop_time: int) -> CheckPoint | None:
        return self._check_points.get((start_offset, pop_time))

    def moved_to(self, offset: int, pop_time: int) -> CheckPoint | None:
        """What an older receipt of a message means since its invisible time was changed. One of another delivery, from
        before a reset perhaps, means nothing."""
        check_point, since_ms = self.moved.get(offset, (None, 0))
        return check_point if check_point is not None and since_ms <= pop_time < check_point.pop_time else None

    def enter(self, check_point: CheckPoint) -> None:
        assert check_point.key not in self._check_points, "two check points with one receipt"
        self._check_points[check_point.key] = check_point

    def leave(self, check_point: CheckPoint) -> None:
        del self._check_points[check_point.key]

    def forget(self) -> None:
        self.is_forgotten = True
        self._check_points.clear()

    def free_pop_time(self, start_offset: int, now_ms: int) -> int:
        """A pop time that no other check point of this offset has: two of a millisecond would be taken for one."""
        while (start_offset, now_ms) in self._check_points:
            now_ms += 1
        return now_ms


class CheckPointBuckets:
    """Check points by the moment at which they are due, in buckets with a number; an empty one may stay for a while."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[CheckPoint, None]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._buckets)

    def __contains__(self, number: int) -> bool:
        return number in self._buckets

    def add(self, check_point: CheckPoint, number: int) -> bool:
        """True if there was no such bucket."""
        self.remove(check_point, check_point.bucket)
        is_new = number not in self._buckets
        self._buckets.setdefault(number, {})[check_point] = None
        check_point.bucket = number
        return is_new

    def remove(self, check_point: CheckPoint, number: int) -> None:
        bucket = self._buckets.get(number)
        if bucket is not None and check_point in bucket:
            del bucket[check_point]
            check_point.bucket = NO_BUCKET
            if not bucket:
                del self._buckets[number]

    def take(self, number: int) -> list[CheckPoint]:
        """All of a bucket, which is gone with that."""
        found = list(self._buckets.pop(number, ()))
        for check_point in found:
            check_point.bucket = NO_BUCKET
        return found

    def clear(self) -> None:
        for number in list(self._buckets):
            self.take(number)


class CheckPoints:
    """All open check points, by lane; those to be taken back also by their moment."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str, int], Lane] = {}
        self.in_flight = 0
        self.count = 0
        self.due = CheckPointBuckets()
        self.on_closed: list[Callable[[CheckPoint], None]] = []

    def __iter__(self) -> Iterator[CheckPoint]:
        return (found for lane in list(self.lanes.values()) for found in lane)

    def lane(self, topic: str, group: str, queue_id: int) -> Lane:
        key = (topic, group, queue_id)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(topic, group, queue_id)
        return lane

    def find_lane(self, topic: str, group: str, queue_id: int) -> Lane | None:
        return self.lanes.get((topic, group, queue_id))

    def add(self, check_point: CheckPoint) -> None:
        lane = check_point.lane
        lane.enter(check_point)
        lane.in_flight += check_point.open_count
        self.in_flight += check_point.open_count
        self.count += 1

    def move(self, offset: int, to: CheckPoint, since_ms: int) -> None:
        """From now on every receipt of this message means `to`, of a delivery that began with the pop of that time."""
        to.lane.moved[offset] = (to, since_ms)

    def settle(self, check_point: CheckPoint, bits: int) -> None:
        """These messages are acknowledged, or were taken back. The last of them closes the check point."""
        lane = check_point.lane
        settled = (bits & ~check_point.acked).bit_count()
        if not settled:
            return
        check_point.acked |= bits
        lane.in_flight -= settled
        self.in_flight -= settled
        if not check_point.is_open:
            lane.leave(check_point)
            self.count -= 1
            if check_point.count == 1 and lane.moved.get(check_point.start_offset, (None,))[0] is check_point:
                del lane.moved[check_point.start_offset]
            self.due.remove(check_point, check_point.bucket)
            for notify in self.on_closed:
                notify(check_point)

    def forget_idle_lanes(self) -> None:
        for key in [key for key, lane in self.lanes.items() if lane.is_idle]:
            self.lanes.pop(key).forget()

    def clear(self) -> None:
        for lane in self.lanes.values():
            lane.forget()
        self.lanes.clear()
        self.in_flight = self.count = 0

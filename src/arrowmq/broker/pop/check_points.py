"""What is in flight: one check point for each queue that a pop took messages of, found by its receipt.

A lane is one queue as one group pops it. A check point belongs to a lane and is known there by the offset it begins at
and its pop time, which no two have in common. It is open while one of its messages is neither acknowledged nor taken
back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

MAX_MESSAGES = 32  # that one check point can count, in a bit map of 32 bits

NOT_WRITTEN = -1


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
        self.bucket = -1
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
    __slots__ = ("check_points", "group", "in_flight", "is_busy", "moved", "queue_id", "steps", "topic")

    def __init__(self, topic: str, group: str, queue_id: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.check_points: dict[tuple[int, int], CheckPoint] = {}
        # offset -> the check point it has since its invisible time was changed: older receipts mean that one, too
        self.moved: dict[int, CheckPoint] = {}
        self.steps: deque[Step] = deque()
        self.in_flight = 0
        self.is_busy = False  # a pop reads it from the disk

    @property
    def is_idle(self) -> bool:
        return not self.check_points and not self.steps and not self.is_busy

    def find(self, start_offset: int, pop_time: int) -> CheckPoint | None:
        return self.check_points.get((start_offset, pop_time))

    def free_pop_time(self, start_offset: int, now_ms: int) -> int:
        """A pop time that no other check point of this offset has: two of a millisecond would be taken for one."""
        while (start_offset, now_ms) in self.check_points:
            now_ms += 1
        return now_ms


class CheckPoints:
    """All open check points, by lane."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str, int], Lane] = {}
        self.in_flight = 0
        self.count = 0
        self.on_closed: list[Callable[[CheckPoint], None]] = []

    def __iter__(self) -> Iterator[CheckPoint]:
        return (found for lane in list(self.lanes.values()) for found in list(lane.check_points.values()))

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
        assert check_point.key not in lane.check_points, "two check points with one receipt"
        lane.check_points[check_point.key] = check_point
        lane.in_flight += check_point.open_count
        self.in_flight += check_point.open_count
        self.count += 1

    def move(self, offset: int, to: CheckPoint) -> None:
        """From now on every receipt of this message means `to`."""
        to.lane.moved[offset] = to

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
            del lane.check_points[check_point.key]
            self.count -= 1
            if check_point.count == 1 and lane.moved.get(check_point.start_offset) is check_point:
                del lane.moved[check_point.start_offset]
            for notify in self.on_closed:
                notify(check_point)

    def forget_idle_lanes(self) -> None:
        for key in [key for key, lane in self.lanes.items() if lane.is_idle]:
            del self.lanes[key]

    def clear(self) -> None:
        self.lanes.clear()
        self.in_flight = self.count = 0

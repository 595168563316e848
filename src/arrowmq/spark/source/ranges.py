"""Which offsets a query reads: pure functions from what was asked and what the queues hold to ranges.

An offset is the next one to read and an end is exclusive, everywhere. In JSON (options, checkpoints) offsets are
`{"topic": {"broker:queue": offset}}`; in options the broker may be left out where only one broker has the topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from arrowmq.spark.options import OptionError, Options
from arrowmq.wire.message_queue import MessageQueue

EARLIEST = -2
LATEST = -1

Offsets = dict[MessageQueue, int]


@dataclass(frozen=True)
class OffsetRange:
    """Messages `start` (included) to `end` (excluded) of one queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Bounds:
    """What a queue holds: the first offset still there and the one after the last."""

    earliest: int
    latest: int


def queue_key(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, int]]:
    """In a stable order: Spark compares offsets as text."""
    found: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets):
        found.setdefault(queue.topic, {})[queue_key(queue)] = offsets[queue]
    return found


def offsets_from_json(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Reads back what `offsets_to_json` wrote into a checkpoint."""
    found: Offsets = {}
    for topic, queues in stored.items():
        for key, offset in queues.items():
            broker, _, number = key.rpartition(":")
            found[MessageQueue(topic, broker, int(number))] = int(offset)
    return found


@dataclass(frozen=True)
class Position:
    """Where to begin or end, as an option says it: one rule for every queue, or one for each."""

    option: str
    everywhere: int | None = None
    timestamp_ms: int | None = None
    by_queue: Mapping[str, Mapping[str, int]] | None = None
    are_timestamps: bool = False
    late_timestamp: str = "error"

    def matching(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The value given for each queue; refuses values for queues that are not read."""
        assert self.by_queue is not None
        queues = list(queues)
        found: dict[MessageQueue, int] = {}
        for topic, values in self.by_queue.items():
            for key, value in values.items():
                named = [
                    queue for queue in queues if queue.topic == topic and key in (queue_key(queue), str(queue.queue_id))
                ]
                if not named:
                    raise OptionError(self.option, f"names queue {key} of topic {topic}, which is not read here")
                if len(named) > 1:
                    choice = " or ".join(queue_key(queue) for queue in named)
                    raise OptionError(
                        self.option, f"queue {key} of topic {topic} exists on several brokers: say {choice}"
                    )
                found[named[0]] = value
        return found


def starting_position(options: Options, *, default: int) -> Position:
    return _position(options, "starting", default)


def ending_position(options: Options) -> Position:
    found = _position(options, "ending", LATEST)
    if found.everywhere == EARLIEST:
        raise OptionError("endingOffsets", "earliest would read nothing; latest or offsets by queue are possible")
    if found.by_queue is not None and not found.are_timestamps:
        for topic, values in found.by_queue.items():
            if EARLIEST in values.values():
                raise OptionError("endingOffsets", f"-2 (earliest) cannot be an end, given for topic {topic}")
    return found


def _position(options: Options, side: str, default: int) -> Position:
    strategy = options.one_of(
        f"{side}OffsetsByTimestampStrategy", ("error", "latest"), "error" if side == "starting" else "latest"
    )
    by_time = options.json_object(f"{side}OffsetsByTimestamp")
    timestamp = options.number(f"{side}Timestamp")
    offsets = options.text(f"{side}Offsets")
    if timestamp is not None:
        return Position(f"{side}Timestamp", timestamp_ms=timestamp, late_timestamp=strategy)
    if by_time is not None:
        name = f"{side}OffsetsByTimestamp"
        return Position(name, by_queue=_checked(name, by_time, least=0), are_timestamps=True, late_timestamp=strategy)
    name = f"{side}Offsets"
    if offsets is None:
        return Position(name, everywhere=default)
    if offsets.lower() in ("earliest", "latest"):
        return Position(name, everywhere=EARLIEST if offsets.lower() == "earliest" else LATEST)
    if not offsets.startswith("{"):
        raise OptionError(
            name, f'{offsets!r} is neither earliest, latest nor JSON such as {{"orders":{{"0":23,"1":-2}}}}'
        )
    return Position(name, by_queue=_checked(name, options.json_object(name) or {}, least=EARLIEST))


def _checked(name: str, value: dict[str, Any], *, least: int) -> dict[str, dict[str, int]]:
    for topic, queues in value.items():
        if not isinstance(queues, dict):
            raise OptionError(name, f'topic {topic} needs an object of queues, such as {{"0":23}}')
        for key, number in queues.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise OptionError(name, f"queue {key} of topic {topic} has {number!r}, which is not an offset or time")
    return value


def batch_ranges(
    starts: Offsets, ends: Offsets, bounds: Mapping[MessageQueue, Bounds], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """Ranges of a batch query. Offsets that are not there any more are an error, or cut to what is."""
    found = []
    for queue in sorted(starts):
        start, end, held = starts[queue], ends[queue], bounds[queue]
        name = f"queue {queue_key(queue)} of topic {queue.topic}"
        if start > end:
            raise OptionError("startingOffsets", f"{name} would start at {start}, after its end {end}")
        if fail_on_data_loss and start < held.earliest:
            raise OptionError(
                "startingOffsets",
                f"{name} starts at {held.earliest} now, offset {start} is gone; start later, or read what is left with "
                "failOnDataLoss=false",
            )
        if fail_on_data_loss and end > held.latest:
            raise OptionError("endingOffsets", f"{name} ends at {held.latest}, before the asked {end}")
        start = max(start, held.earliest)
        end = min(end, held.latest)
        if start < end:
            found.append(OffsetRange(queue, start, end))
    return found


def stream_starts(
    option: str, starts: Offsets, bounds: Mapping[MessageQueue, Bounds], *, fail_on_data_loss: bool
) -> Offsets:
    """Where a new stream begins. An offset outside of what its queue holds is an error, or moved to the nearest."""
    for queue, start in starts.items():
        held = bounds[queue]
        if fail_on_data_loss and not held.earliest <= start <= held.latest:
            raise OptionError(
                option,
                f"queue {queue_key(queue)} of topic {queue.topic} holds {held.earliest} to {held.latest}, not {start}; "
                "with failOnDataLoss=false the stream begins at the nearest",
            )
    return {queue: min(max(start, bounds[queue].earliest), bounds[queue].latest) for queue, start in starts.items()}


def split_ranges(ranges: list[OffsetRange], pieces: int, *, smallest: int = 1) -> list[OffsetRange]:
    """Cuts large ranges so that about `pieces` of similar size come out; none is cut below `smallest` messages.

    One large queue thus keeps every core busy, and small queues stay whole.
    """
    total = sum(item.size for item in ranges)
    if not total or len(ranges) >= pieces:
        return list(ranges)
    found = []
    for item in ranges:
        parts = max(1, round(pieces * item.size / total))
        parts = max(1, min(parts, item.size // max(1, smallest)))
        edges = [item.start + item.size * i // parts for i in range(parts + 1)]
        found += [OffsetRange(item.queue, a, b) for a, b in itertools.pairwise(edges) if a < b]
    return found


def limited(start: Offsets, latest: Offsets, max_rows: int | None) -> Offsets:
    """The end of the next micro-batch: everything, or `max_rows` shared out in proportion to each queue's backlog."""
    backlog = {queue: max(0, latest[queue] - start[queue]) for queue in latest}
    total = sum(backlog.values())
    if max_rows is None or total <= max_rows:
        return {queue: max(start[queue], latest[queue]) for queue in latest}
    ends: Offsets = {}
    left = max_rows
    # Rounded down for each, so that the limit holds; what rounding left over goes to the queues with most to read.
    for queue in sorted(backlog):
        share = max_rows * backlog[queue] // total
        ends[queue] = start[queue] + share
        left -= share
    for queue in sorted(backlog, key=lambda queue: (-backlog[queue], queue)):
        more = min(left, latest[queue] - ends[queue], 1 if left < len(backlog) else left)
        if more > 0:
            ends[queue] += more
            left -= more
    return ends

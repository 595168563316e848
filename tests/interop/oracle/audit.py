"""What was acknowledged and what came of it: nothing lost, each key in order, one writer an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from arrowmq.wire.records import Record, decode_record, record_bounds


class Send(NamedTuple):
    """A message KEY:NUMBER, when it was first tried and when acknowledged (ms), and its offset in its key's queue."""

    name: str
    begun: int
    acknowledged: int
    offset: int


class Audit:
    """Sends are `KEY:NUMBER@BEGUN@ACKNOWLEDGED@OFFSET`, deliveries `KEY:NUMBER`."""

    def __init__(self, acknowledged: Iterable[str]) -> None:
        self.sends = [Send(name, *map(int, numbers)) for name, *numbers in (line.split("@") for line in acknowledged)]

    @property
    def names(self) -> set[str]:
        return {send.name for send in self.sends}

    def lost(self, delivered: Iterable[str]) -> set[str]:
        return self.names - set(delivered)

    @staticmethod
    def out_of_order(delivered: Iterable[str]) -> list[str]:
        """Numbers that came before one that is lower and had not come yet; repeats are no fault."""
        highest: dict[str, int] = {}
        faults = []
        for name in delivered:
            key, _, text = name.rpartition(":")
            number = int(text)
            if number > highest.get(key, -1) + 1:
                faults.append(name)
            highest[key] = max(number, highest.get(key, -1))
        return faults

    def silence_ms(self, moment_ms: float, until_ms: float = float("inf")) -> float | None:
        """From a moment to the first acknowledgement that follows a pause: when senders were back."""
        return silence_ms((send.acknowledged for send in self.sends), moment_ms, until_ms)

    def misplaced(self, log: Sequence[Record], topic: str) -> list[str]:
        """Acknowledged messages that do not lie at the offset that their sender was told, and queues with a gap or an
        offset given twice."""
        queues: dict[int, list[Record]] = {}
        for record in log:
            if record.topic == topic:
                queues.setdefault(record.queue_id, []).append(record)
        faults = [
            f"queue {queue} of {topic}: offsets are not 0 to {len(records) - 1}"
            for queue, records in queues.items()
            if [record.queue_offset for record in records] != list(range(len(records)))
        ]
        lies_at = {(record.body.decode(), record.queue_offset) for records in queues.values() for record in records}
        return faults + [
            f"{send.name} is not at {send.offset}" for send in self.sends if (send.name, send.offset) not in lies_at
        ]


def silence_ms(acknowledged: Iterable[int | float], moment_ms: float, until_ms: float = float("inf")) -> float | None:
    after = sorted(done for done in acknowledged if moment_ms <= done <= until_ms)
    if not after:
        return None
    # What was on its way when the master went may still be acknowledged just after it.
    gaps = [(later - earlier, later) for earlier, later in zip([moment_ms, *after], after, strict=False)]
    longest, ended = max(gaps)
    return ended - moment_ms if longest > 20 else 0.0


def records_of(commit_log: Path) -> list[Record]:
    """Every record of a commit log, from its files."""
    found = []
    for path in sorted(commit_log.glob("[0-9]*")):
        data = path.read_bytes()
        found += [decode_record(data, offset, check_crc=True) for offset, _ in record_bounds(data)]
    return found


def writers(log: Sequence[Record], epochs: Sequence[tuple[int, int]], topic: str) -> dict[int, set[tuple[bytes, int]]]:
    """Who wrote in each epoch, by the address that a broker stamps on what it stores; `epochs` as (number, start). Of
    one topic: a delayed message, or one of a transaction, that is put back into the log keeps the stamp it had."""
    found: dict[int, set[tuple[bytes, int]]] = {}
    for record in log:
        if record.topic != topic:
            continue
        started = [number for number, start in epochs if start <= record.physical_offset]
        found.setdefault(started[-1] if started else -1, set()).add(record.store_host)
    return found

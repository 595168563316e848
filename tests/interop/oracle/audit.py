"""What was acknowledged and what came of it: nothing lost, each key in order, one writer an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    def first_after_ms(self, moment_ms: float, since_ms: float) -> float | None:
        """When the first acknowledgement came after a moment, counted from an earlier one."""
        after = [send.acknowledged for send in self.sends if send.acknowledged >= moment_ms]
        return min(after) - since_ms if after else None

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
    found = longest_gap(acknowledged, moment_ms, until_ms)
    if found is None:
        return None
    longest, ended = found
    return ended - moment_ms if longest > 20 else 0.0


def longest_gap(
    acknowledged: Iterable[int | float], moment_ms: float, until_ms: float = float("inf")
) -> tuple[float, float] | None:
    """How long the longest pause after a moment was, and when it ended. What was on its way when the master went may
    still be acknowledged just after it."""
    after = sorted(done for done in acknowledged if moment_ms <= done <= until_ms)
    if not after:
        return None
    return max((later - earlier, later) for earlier, later in zip([moment_ms, *after], after, strict=False))


def records_of(commit_log: Path) -> list[Record]:
    """Every record of a commit log, from its files."""
    return [record for path in sorted(commit_log.glob("[0-9]*")) for record in records_in(path.read_bytes())]


def records_in(data: bytes) -> list[Record]:
    return [decode_record(data, offset, check_crc=True) for offset, _ in record_bounds(data)]


def writers(log: Sequence[Record], epochs: Sequence[tuple[int, int]], topic: str) -> dict[int, set[tuple[bytes, int]]]:
    """Who wrote in each epoch, by the address that a broker stamps on what it stores; `epochs` as (number, start). Of
    one topic: a delayed message, or one of a transaction, that is put back into the log keeps the stamp it had."""
    found: dict[int, set[tuple[bytes, int]]] = {}
    for record in log:
        if record.topic == topic:
            found.setdefault(epoch_at(epochs, record.physical_offset), set()).add(record.store_host)
    return found


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch that a place in the log belongs to; -1 before the first."""
    return next((number for number, start in reversed(epochs) if start <= offset), -1)


Host = tuple[bytes, int]


def foreign_writers(
    log: Sequence[Record],
    tails: Iterable[tuple[int, int, Sequence[Record]]],
    epochs: Sequence[tuple[int, int]],
    masters: Mapping[int, Host],
    topic: str,
) -> list[str]:
    """Records that somebody else wrote than the master of their epoch: in the log that all have, and in the tails that
    were cut off the logs of masters which were followed (each with its start and the last epoch it may be of)."""
    faults = [
        f"epoch {epoch}: {writer} wrote, {masters.get(epoch)} was master"
        for epoch, hosts in writers(log, epochs, topic).items()
        for writer in hosts
        if writer != masters.get(epoch)
    ]
    for start, last, records in tails:
        first = epoch_at(epochs, start - 1)  # of the last byte that was not cut
        allowed = {host for epoch, host in masters.items() if first <= epoch <= last}
        found = {record.store_host for record in records if record.topic == topic} - allowed
        faults += [f"a tail of epoch {first} to {last} at {start}: {writer} wrote, no master then" for writer in found]
    return faults

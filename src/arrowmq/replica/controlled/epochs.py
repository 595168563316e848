"""Which part of the log was written in which epoch: a list of epochs with the offset where each begins.

The file is Apache's `epochFileCheckpoint`, text:

    line 1      number of entries
    line 2      CRC32 of the entry lines with their ends, 31 bits; 0 is not checked
    then        EPOCH-START, a line each

An epoch ends where the next begins; the last ends with the log. One in which nothing was written has no place in the
list: its successor begins where it began and replaces it. (Apache keeps the first of two that begin at the same place,
and writes the later one's messages under its number; two masters' different bytes then look alike.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from arrowmq.store.disk import Disk
from arrowmq.store.errors import StoreError
from arrowmq.wire.checksum import crc32

MAX_ENTRIES = 1000  # as many as Apache's master can tell a slave; the oldest are dropped first
BACKUP = ".bak"


class EpochFileDamaged(StoreError):
    """Neither the file nor its backup can be read."""


class Epoch(NamedTuple):
    number: int
    start: int


def consistent_point(ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int) -> int | None:
    """Up to where both logs are the same: the end, in both, of the latest epoch that both began at the same place."""
    known = {epoch.number: index for index, epoch in enumerate(theirs)}
    for index in range(len(ours) - 1, -1, -1):
        other = known.get(ours[index].number)
        if other is not None and theirs[other].start == ours[index].start:
            return min(end_of(ours, index, our_end), end_of(theirs, other, their_end))
    return None


def end_of(epochs: Sequence[Epoch], index: int, log_end: int) -> int:
    return epochs[index + 1].start if index + 1 < len(epochs) else log_end


class EpochFile:
    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._epochs: list[Epoch] = []

    @property
    def epochs(self) -> list[Epoch]:
        return list(self._epochs)

    @property
    def last(self) -> Epoch | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def last_number(self) -> int:
        return self._epochs[-1].number if self._epochs else -1

    def load(self) -> None:
        """Read the file, else its backup. A broker whose file is damaged must not guess: raises `EpochFileDamaged`."""
        backup = self.path.with_name(self.path.name + BACKUP)
        problem: str | None = None
        for path in (self.path, backup):
            if not path.exists():
                continue
            try:
                self._epochs = parse(path.read_bytes())
            except ValueError as error:
                problem = problem or f"{path} is damaged: {error}"
                continue
            if problem is not None:
                # The backup lacks the latest epoch; whether a part of the log belongs to it is then found by comparing
                # with the master, which cuts too much rather than too little.
                self._write(self._epochs)
            return
        if problem is not None:
            raise EpochFileDamaged(
                f"{problem}. Without it this broker cannot know which of its messages its master has: delete its store "
                "and let it copy its master's, or restore the file from a backup of this store"
            )
        self._epochs = []

    def at(self, offset: int) -> Epoch | None:
        """The epoch that a place in the log belongs to."""
        for epoch in reversed(self._epochs):
            if epoch.start <= offset:
                return epoch
        return None

    def after(self, number: int) -> Epoch | None:
        return next((epoch for epoch in self._epochs if epoch.number > number), None)

    def append(self, number: int, start: int) -> None:
        """A later epoch begins; those that would begin at the same place or behind it have nothing."""
        if number <= self.last_number and Epoch(number, start) not in self._epochs:
            raise StoreError(f"epoch {number} cannot begin at {start}: this log is at epoch {self.last_number} already")
        if Epoch(number, start) in self._epochs:
            return
        kept = [epoch for epoch in self._epochs if epoch.start < start]
        self._replace([*kept, Epoch(number, start)])

    def cut(self, end: int) -> None:
        """The log was cut here: epochs that begin behind it are gone."""
        self._replace([epoch for epoch in self._epochs if epoch.start <= end])

    def log_begins_at(self, begin: int) -> None:
        """Files of the log were deleted: epochs that end before its first byte are forgotten."""
        kept = [epoch for index, epoch in enumerate(self._epochs) if end_of(self._epochs, index, 1 << 62) > begin]
        self._replace(kept)

    def _replace(self, epochs: list[Epoch]) -> None:
        """On disk first: with a write that failed, a second try must not find it done."""
        if epochs != self._epochs:
            kept = epochs[-MAX_ENTRIES:]
            self._write(kept)
            self._epochs = kept

    def _write(self, epochs: list[Epoch]) -> None:
        """On disk before anything is written under the new epoch."""
        backup = self.path.with_name(self.path.name + BACKUP)
        if self.path.exists():
            self._disk.write_atomically(backup, self.path.read_bytes())
        self._disk.write_atomically(self.path, format_epochs(epochs))


def format_epochs(epochs: Iterable[Epoch]) -> bytes:
    lines = [f"{epoch.number}-{epoch.start}\n" for epoch in epochs]
    body = "".join(lines).encode()
    return f"{len(lines)}\n{crc32(body)}\n".encode() + body


def parse(data: bytes) -> list[Epoch]:
    """Raises `ValueError`."""
    try:
        count_text, crc_text, *lines = data.decode("ascii").splitlines()
        count, expected_crc = int(count_text), int(crc_text)
        epochs = [Epoch(int(number), int(start)) for number, start in (line.split("-") for line in lines if line)]
    except ValueError:
        raise ValueError("it is no list of epochs") from None
    if len(epochs) != count:
        raise ValueError(f"it has {len(epochs)} entries and says {count}")
    body = "".join(f"{line}\n" for line in lines).encode()
    if expected_crc not in (0, crc32(body)):
        raise ValueError("its checksum is wrong")
    if any(later.number <= earlier.number or later.start < earlier.start for earlier, later in pairwise(epochs)):
        raise ValueError("its epochs are out of order")
    if any(epoch.number < 0 or epoch.start < 0 for epoch in epochs):
        raise ValueError("it has an epoch below 0")
    return epochs

"""Judging order: what consumers saw of messages that carry a key and a rising number."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path


def by_key(seen: list[str]) -> dict[str, list[int]]:
    """The numbers of each key in the order in which a consumer saw them; a brief record is KEY:NUMBER@QUEUE@OFFSET."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for record in seen:
        key, _, number = record.partition("@")[0].partition(":")
        numbers[key].append(int(number))
    return numbers


def assert_one_order(journals: list[Path]) -> None:
    """What several members wrote down, put together by time, has no number of a key before the one it follows.

    A line of a journal is KEY:NUMBER@QUEUE@OFFSET@MILLISECONDS. Numbers may come again, from where the member before
    had not yet committed.
    """
    lines = [line for journal in journals for line in journal.read_text().splitlines() if line.count("@") == 3]
    lines.sort(key=lambda line: int(line.rpartition("@")[2]))
    for key, numbers in by_key(lines).items():
        highest = -1
        for number in numbers:
            assert number <= highest + 1, f"{key}: {number} came before {highest + 1}"
            highest = max(highest, number)

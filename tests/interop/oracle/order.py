"""Judging order: what consumers saw of messages that carry a key and a rising number."""

from __future__ import annotations

from collections import defaultdict


def by_key(seen: list[str]) -> dict[str, list[int]]:
    """The numbers of each key in the order in which a consumer saw them; a brief record is KEY:NUMBER@QUEUE@OFFSET."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for record in seen:
        key, _, number = record.partition("@")[0].partition(":")
        numbers[key].append(int(number))
    return numbers


def assert_order(mine: list[str], others: list[str]) -> None:
    """Per key the numbers rise; what one consumer did not see between two of its own, another one did."""
    elsewhere = {key: set(numbers) for key, numbers in by_key(others).items()}
    for key, numbers in by_key(mine).items():
        last = -1
        for number in numbers:
            # A handed-over queue may begin again a little before where its former owner stopped, never behind it.
            missed = set(range(last + 1, number)) - elsewhere.get(key, set())
            assert not missed, f"{key} jumps from {last} to {number}"
            last = max(last, number)

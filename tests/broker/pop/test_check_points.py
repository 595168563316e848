"""The table of check points: the native form does what the pure-Python reference does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from arrowmq.broker.pop import check_points
from arrowmq.broker.pop.check_points import _queues_plain, _table_plain


class Forms:
    """A table and its queues in one of their forms."""

    def __init__(self, table: Any, queues: Any) -> None:
        self.CheckPoint, self.CheckPoints = table.CheckPoint, table.CheckPoints
        self.OpenCheckPoints, self.Chance, self.QueueTurn = queues.OpenCheckPoints, queues.Chance, queues.QueueTurn


plain = Forms(_table_plain, _queues_plain)
native = Forms(check_points._table, check_points._queues)


def picture(table: Any, closed: list[Any], opened: Any) -> list[Any]:
    return [
        sorted(
            (
                *(each.lane.topic, each.lane.queue_id, each.key, each.offsets(), each.acked, each.open_offsets()),
                *(each.acked_offsets(), each.end_offset, each.open_count, each.is_open, each.revive_time, each.diffs),
            )
            for each in table
        ),
        [each.key for lane in table.lanes.values() for most in (0, 1, 7, 10_000) for each in lane.oldest(most)],
        {key: (lane.in_flight, len(lane), sorted(lane.moved), lane.is_idle) for key, lane in table.lanes.items()},
        [
            (key, offset, time, found.key)
            for key, lane in table.lanes.items()
            for offset in sorted(lane.moved)
            for time in range(996, 1010)
            if (found := lane.moved_to(offset, time)) is not None
        ],
        (table.in_flight, table.count, [each.key for each in closed]),
        # Closed ones leave sooner or later
        ([each.key for each in opened if each.is_open], opened.estimate_open(1 << 40)),
    ]


def play(module: Any, seed: int, steps: int = 4000) -> list[Any]:
    """What a seeded user of the table sees, step by step."""
    dice = random.Random(seed)
    table, opened, seen = module.CheckPoints(), module.OpenCheckPoints(), []
    closed: list[Any] = []
    made: list[Any] = []
    table.on_closed.append(closed.append)
    for step in range(steps):
        lane = table.lane(f"T{dice.randrange(2)}", "G", dice.randrange(3))
        kind = dice.randrange(13)
        if kind < 4:
            start, at = dice.choice((dice.randrange(100), dice.randrange(1 << 40))), 1000 + dice.randrange(5)
            count = dice.choice((1, 1, 3, 32, 64, 65, 127))
            offsets = list(range(start, start + count))
            if dice.random() < 0.3:
                offsets = sorted(dice.sample(range(start, start + 300), count))
            at = lane.free_pop_time(start, at)
            check_point = module.CheckPoint(lane, start, at, 60, offsets, 3, "broker-a", client="c")
            table.add(check_point)
            opened.append(check_point)
            for _ in range(dice.choice((0, 1, 1, 2))):
                table.due.add(check_point, dice.randrange(30))
            made.append(check_point)
            seen.append(at)
        elif kind < 8 and made:
            one = dice.choice(made[-50:])
            some = dice.sample(range(one.count), dice.randrange(one.count + 1))
            if not one.lane.is_forgotten:
                table.settle(one, sum(1 << index for index in some))
            seen.append([one.index_of(one.start_offset + dice.randrange(-3, 200)) for _ in range(5)])
        elif kind == 8 and made:
            one = dice.choice(made[-50:])
            found = one.lane.find(one.start_offset, one.pop_time + dice.choice((0, 0, 1)))
            seen.append(None if found is None else (found.key, found is one))
        elif kind == 9 and made:
            one = made[-1]
            if one.is_open and not one.lane.is_forgotten:
                table.move(one.start_offset, one, one.pop_time - dice.randrange(3))
        elif kind == 10:
            first = opened.first()
            seen.append(None if first is None else first.key)
            if first is not None and dice.random() < 0.5:
                opened.popleft()
                if dice.random() < 0.5:
                    opened.appendleft(first)
        elif kind == 11:
            number = dice.randrange(30)
            if number not in table.due:
                assert not table.due.take(number)
            seen.append((number, sorted(each.key for each in table.due.take(number))))
            assert number not in table.due
            if made and dice.random() < 0.3:
                one = dice.choice(made[-50:])
                table.due.remove(one, one.bucket)
                seen.append(one.bucket)
        elif dice.random() < 0.02:
            table.clear()
            if dice.random() < 0.5:
                table.due.clear()
        else:
            table.forget_idle_lanes()
        if step % 50 == 0:
            seen.append(picture(table, closed[-20:], opened))
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_the_native_table_and_its_reference_are_seen_to_be_the_same(seed: int) -> None:
    expected, found = play(plain, seed), play(native, seed)
    for step, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert left == right, step


@pytest.mark.parametrize("module", [plain, native], ids=["plain", "native"])
def test_a_receipt_with_numbers_beyond_all_bounds_is_of_no_check_point(module: Any) -> None:
    lane = module.CheckPoints().lane("T", "G", 0)
    for number in (1 << 62, 1 << 63, 1 << 80, -1, -(1 << 70)):
        assert lane.find(number, 0) is None
        assert lane.find(0, number) is None


@pytest.mark.parametrize("module", [plain, native], ids=["plain", "native"])
def test_few_empty_buckets_stay(module: Any) -> None:
    table = module.CheckPoints()
    lane = table.lane("T", "G", 0)
    for number in range(1000):
        check_point = module.CheckPoint(lane, number, 1, 60, [number], 3, "broker-a")
        table.add(check_point)
        assert table.due.add(check_point, number)
        table.settle(check_point, 1)
    assert len(table.due) <= 8
    assert sorted(table.due) == sorted(set(table.due))


@pytest.mark.parametrize("seed", [0, 1, 1 << 63, (1 << 64) - 1])
def test_chances_and_turns_come_in_the_same_order(seed: int) -> None:
    left, right = plain.Chance(seed), native.Chance(seed)
    turns = plain.QueueTurn(8), native.QueueTurn(8)
    values = []
    for _ in range(2000):
        left.draw()
        right.draw()
        assert left.value == right.value
        values.append(left.value)
        assert turns[0].upcoming == turns[1].upcoming
        assert turns[0].take() == turns[1].take()
    assert set(range(100)) == set(values)

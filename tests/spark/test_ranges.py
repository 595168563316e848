"""Offsets and ranges: nothing is read twice, nothing is left out, limits hold."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.source.ranges import (
    Bounds,
    OffsetRange,
    batch_ranges,
    limited,
    offsets_from_json,
    offsets_to_json,
    split_ranges,
    starting_position,
)
from arrowmq.wire.message_queue import MessageQueue

queues = st.builds(MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b:c"]), st.integers(0, 9))
backlogs = st.dictionaries(queues, st.tuples(st.integers(0, 10**12), st.integers(0, 10**7)), min_size=1, max_size=20)


@given(st.dictionaries(queues, st.integers(0, 2**62)))
def test_offsets_survive_a_checkpoint(offsets: dict[MessageQueue, int]) -> None:
    assert offsets == offsets_from_json(json.loads(json.dumps(offsets_to_json(offsets))))


@given(st.dictionaries(queues, st.integers(0, 2**62)))
def test_the_order_of_keys_does_not_depend_on_the_order_of_discovery(offsets: dict[MessageQueue, int]) -> None:
    turned = dict(reversed(offsets.items()))
    assert json.dumps(offsets_to_json(offsets)) == json.dumps(offsets_to_json(turned))


@given(backlogs, st.integers(1, 10**7))
def test_a_limit_holds_and_the_stream_always_moves_on(held: dict[MessageQueue, tuple[int, int]], limit: int) -> None:
    start = {queue: first for queue, (first, _) in held.items()}
    latest = {queue: first + count for queue, (first, count) in held.items()}
    end = limited(start, latest, limit)
    taken = sum(end[queue] - start[queue] for queue in held)
    assert taken == min(limit, sum(count for _, count in held.values()))
    assert all(start[queue] <= end[queue] <= latest[queue] for queue in held)


@given(backlogs, st.integers(1, 200), st.integers(1, 1000))
def test_splits_cover_each_range_exactly(held: dict[MessageQueue, tuple[int, int]], pieces: int, smallest: int) -> None:
    ranges = [OffsetRange(queue, first, first + count) for queue, (first, count) in held.items() if count]
    splits = split_ranges(ranges, pieces, smallest=smallest)
    for item in ranges:
        mine = sorted((split.start, split.end) for split in splits if split.queue == item.queue)
        assert mine[0][0] == item.start
        assert mine[-1][1] == item.end
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))


def test_one_large_queue_is_split_for_all_cores() -> None:
    one = OffsetRange(MessageQueue("t", "a", 0), 0, 1_000_000)
    assert 8 == len(split_ranges([one], 8))


def test_offsets_that_are_gone_are_an_error_or_cut() -> None:
    queue = MessageQueue("t", "a", 0)
    bounds = {queue: Bounds(100, 200)}
    with pytest.raises(OptionError, match="offset 50 is gone"):
        batch_ranges({queue: 50}, {queue: 200}, bounds, fail_on_data_loss=True)
    with pytest.raises(OptionError, match=r"option endingOffsets: .*ends at 200"):
        batch_ranges({queue: 150}, {queue: 300}, bounds, fail_on_data_loss=True)
    assert [OffsetRange(queue, 100, 200)] == batch_ranges({queue: 50}, {queue: 300}, bounds, fail_on_data_loss=False)


def test_a_queue_may_be_named_without_its_broker_only_while_that_is_clear() -> None:
    position = starting_position(Options({"startingOffsets": '{"t":{"0":5}}'}), default=-2)
    one = MessageQueue("t", "a", 0)
    assert {one: 5} == position.matching([one])
    with pytest.raises(OptionError, match="several brokers: say a:0 or b:0"):
        position.matching([one, MessageQueue("t", "b", 0)])
    with pytest.raises(OptionError, match="not read here"):
        position.matching([MessageQueue("t", "a", 1)])

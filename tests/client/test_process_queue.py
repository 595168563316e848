"""The offset that may be committed, whatever the order of acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.client.consume.process_queue import ProcessQueue
from arrowmq.wire.message_queue import MessageQueue


@dataclass(frozen=True)
class Held:
    queue_offset: int
    size: int = 10


def queue(*offsets: int) -> ProcessQueue:
    held = ProcessQueue(MessageQueue("t", "b", 0))
    held.put([Held(offset) for offset in offsets])
    return held


def test_nothing_seen_means_nothing_to_commit() -> None:
    assert -1 == queue().committable()


def test_the_lowest_unacknowledged_offset_is_committed() -> None:
    held = queue(5, 6, 9)
    assert 5 == held.committable()
    held.remove(6)
    assert 5 == held.committable()
    held.remove(5)
    assert 9 == held.committable()
    held.remove(9)
    assert 10 == held.committable()


def test_what_the_broker_filtered_out_moves_the_offset_on() -> None:
    held = queue(3)
    held.skip_to(100)
    assert 3 == held.committable()
    held.remove(3)
    assert 100 == held.committable()


def test_a_second_acknowledgement_changes_nothing() -> None:
    held = queue(1, 2)
    assert (True, False, False) == (held.remove(1), held.remove(1), held.remove(77))
    assert (1, 10) == (held.count, held.held_bytes)


def test_a_repeated_pull_brings_nothing_twice() -> None:
    held = queue(1, 2, 3)
    assert [4] == [message.queue_offset for message in held.put([Held(2), Held(3), Held(4)])]
    assert (4, 3) == (held.count, held.span)


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), unique=True, min_size=1).map(sorted), st.randoms())
def test_committing_never_passes_over_an_unacknowledged_message(offsets: list[int], order: object) -> None:
    held = queue(*offsets)
    shuffled = list(offsets)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    left = set(offsets)
    committed = held.committable()
    for offset in shuffled:
        held.remove(offset)
        left.discard(offset)
        assert committed <= held.committable()
        committed = held.committable()
        assert (min(left) if left else offsets[-1] + 1) == committed
        assert (len(left), 10 * len(left)) == (held.count, held.held_bytes)

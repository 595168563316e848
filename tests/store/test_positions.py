"""Goal: one object owns the log's positions; whoever waits hears of what was kept, and of what was missed in time."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.clock import VirtualClock
from arrowmq.store import _positions_plain
from arrowmq.store.append import _tail_plain
from arrowmq.store.append.tails import LogTail
from arrowmq.store.positions import APPENDED, FLUSHED, Flushed, Missed, Positions, Promise, replicated


def at(appended: int) -> tuple[Positions, VirtualClock]:
    tail, clock = LogTail(), VirtualClock()
    tail.attach(memoryview(bytearray(10_000)), 0, appended)
    positions = Positions(tail, clock)
    positions.timeout_s = 5
    return positions, clock


def flush(positions: Positions, end: int) -> None:
    positions.flushed = Flushed(end)
    positions.advanced()


def test_what_is_confirmed_is_what_the_broker_promises() -> None:
    positions, _ = at(1000)
    assert 1000 == positions.confirmed
    positions.promised = FLUSHED
    assert 0 == positions.confirmed
    flush(positions, 600)
    assert 600 == positions.confirmed
    positions.promised = FLUSHED | replicated(2)
    positions.replicas_have([900, 400, 100])
    assert (900, 400, 100, 0) == tuple(positions.replicated(count) for count in (1, 2, 3, 4))
    assert 400 == positions.confirmed
    positions.promised = APPENDED
    assert 1000 == positions.confirmed


def test_a_replica_that_goes_away_takes_nothing_back() -> None:
    positions, _ = at(1000)
    positions.promised = replicated(1)
    positions.replicas_have([700, 300])
    positions.replicas_have([300])
    assert 700 == positions.confirmed
    positions.cut(500)
    assert 500 == positions.confirmed


def test_each_wait_ends_when_its_own_promise_is_kept() -> None:
    positions, _ = at(1000)
    heard: list[tuple[str, Missed]] = []
    for name, end, promise in (
        ("both", 500, FLUSHED | replicated(1)), ("disk", 800, FLUSHED), ("replica", 900, replicated(1)),
        ("earlier", 300, FLUSHED), ("written", 1000, APPENDED),
    ):  # fmt: skip
        positions.when(end, promise, lambda missed, name=name: heard.append((name, missed)))
    assert [("written", Missed.NOTHING)] == heard
    flush(positions, 500)
    assert [("earlier", Missed.NOTHING)] == heard[1:]
    positions.replicas_have([900])
    assert [("both", Missed.NOTHING), ("replica", Missed.NOTHING)] == sorted(heard[2:])
    assert positions.is_flush_awaited
    flush(positions, 800)
    assert ("disk", Missed.NOTHING) == heard[-1]
    assert not positions.is_flush_awaited


@pytest.mark.parametrize(
    ("flushed", "copied", "missed"),
    [
        (100, 100, Missed.NOTHING),
        (99, 100, Missed.FLUSHED),
        (100, 99, Missed.REPLICATED),
        (0, 0, Missed.FLUSHED | Missed.REPLICATED),
    ],
)
async def test_what_was_missed_is_said(flushed: int, copied: int, missed: Missed) -> None:
    positions, clock = at(1000)
    waiting = asyncio.ensure_future(positions.wait(100, Promise(flushed=True, replicas=1)))
    await clock.advance(0.1)
    positions.replicas_have([copied])
    flush(positions, flushed)
    await clock.advance(5)
    assert missed == await asyncio.wait_for(waiting, 1)
    assert bool(missed) == (missed is not Missed.NOTHING)


async def test_the_time_out_counts_from_the_beginning_of_each_wait() -> None:
    positions, clock = at(1000)
    heard: list[int] = []
    for end in (300, 100, 200):
        positions.when(end, FLUSHED, lambda missed, end=end: heard.append(end))
        await clock.advance(1)
    await clock.advance(1.9)
    assert [] == heard
    await clock.advance(0.2)
    assert [300] == heard
    await clock.advance(1)
    assert [300, 100] == heard
    flush(positions, 1000)
    assert [300, 100, 200] == heard


async def test_a_changed_time_out_counts_for_those_who_wait_already() -> None:
    positions, clock = at(1000)
    heard: list[Missed] = []
    positions.when(500, FLUSHED, heard.append)
    await clock.advance(1)
    positions.timeout_s = 2
    await clock.advance(0.9)
    assert [] == heard
    await clock.advance(0.2)
    assert [Missed.FLUSHED] == heard
    positions.when(500, FLUSHED, heard.append)
    positions.timeout_s = 60
    await clock.advance(50)
    assert 1 == len(heard)
    positions.timeout_s = 10
    assert 2 == len(heard)


def test_subscribers_hear_of_each_step_once_and_after_those_who_waited() -> None:
    positions, _ = at(1000)
    positions.promised = FLUSHED
    heard: list[object] = []
    positions.subscribe(heard.append)
    positions.when(400, FLUSHED, heard.append)
    flush(positions, 500)
    flush(positions, 500)
    flush(positions, 700)
    assert [Missed.NOTHING, 500, 700] == heard


async def test_closing_ends_every_wait_and_lets_nobody_wait_any_more() -> None:
    positions, _ = at(1000)
    waiting = asyncio.ensure_future(positions.wait(600, FLUSHED))
    await asyncio.sleep(0)
    flush(positions, 500)
    positions.close()
    assert Missed.FLUSHED == await waiting
    assert Missed.FLUSHED == await positions.wait(600, FLUSHED)
    assert not await positions.wait(500, FLUSHED)


async def test_a_wait_that_was_given_up_harms_nobody() -> None:
    positions, clock = at(1000)
    given_up = asyncio.ensure_future(positions.wait(600, FLUSHED))
    await asyncio.sleep(0)
    other = asyncio.ensure_future(positions.wait(600, FLUSHED))
    await asyncio.sleep(0)
    given_up.cancel()
    flush(positions, 600)
    assert not await other
    await clock.advance(10)
    assert given_up.cancelled()


def test_who_waits_for_the_disk_asks_for_it_and_nobody_else_does() -> None:
    positions, _ = at(1000)
    asked: list[bool] = []
    positions.wants_flush = lambda: asked.append(positions.is_flush_awaited)
    positions.when(600, replicated(1), lambda missed: None)
    assert [] == asked
    positions.when(600, FLUSHED, lambda missed: None)
    assert [True] == asked


@given(
    st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans(), st.booleans()
)  # fmt: skip
def test_the_native_marks_and_their_reference_confirm_the_same(
    appended: int, flushed: int, copied: int, needs_flush: bool, needs_replicas: bool
) -> None:
    sides: list[tuple[Any, Any]] = [(_tail_plain, _positions_plain)]
    try:
        names = ("arrowmq.store.append._tail_native", "arrowmq.store._positions_native")
        sides.append((importlib.import_module(names[0]), importlib.import_module(names[1])))
    except ModuleNotFoundError:  # not compiled: the reference alone
        pass
    for tails, module in sides:
        tail = tails.LogTail()
        tail.attach(memoryview(bytearray(100)), 0, appended)
        marks = module.Marks(tail)
        marks.flushed_end, marks.replicated_end = flushed, copied
        marks.needs_flush, marks.needs_replicas = needs_flush, needs_replicas
        bounds = [appended, *([flushed] if needs_flush else []), *([copied] if needs_replicas else [])]
        assert (appended, min(bounds)) == (marks.appended_end, marks.confirmed_end)

"""The bound on what is under way."""

from __future__ import annotations

import asyncio

import pytest

from arrowmq.client.errors import SendTimedOut
from arrowmq.client.produce.send_budget import SendBudget


async def test_who_comes_over_the_bound_waits_for_a_turn() -> None:
    pending = SendBudget(2, 1000)
    assert pending.try_enter(10)
    assert pending.try_enter(10)
    assert not pending.try_enter(10)
    waiting = asyncio.create_task(pending.enter(10, 5, "t"))
    await asyncio.sleep(0)
    assert not waiting.done()
    pending.leave(10)
    await waiting
    assert (2, 20) == (pending.count, pending.bytes)


async def test_bytes_are_bounded_and_a_giant_passes_alone() -> None:
    pending = SendBudget(10, 100)
    assert pending.try_enter(500)
    assert not pending.try_enter(1)
    pending.leave(500)
    assert pending.try_enter(1)
    assert not pending.try_enter(100)


async def test_nobody_overtakes_who_waits() -> None:
    pending = SendBudget(10, 100)
    pending.try_enter(90)
    large = asyncio.create_task(pending.enter(50, 5, "t"))
    await asyncio.sleep(0)
    assert not pending.try_enter(1)
    pending.leave(90)
    await large
    assert 50 == pending.bytes


async def test_waiting_too_long_is_an_error_that_leaves_nothing_behind() -> None:
    pending = SendBudget(1, 100)
    pending.try_enter(1)
    with pytest.raises(SendTimedOut, match="in flight"):
        await pending.enter(1, 0.01, "t")
    pending.leave(1)
    assert (0, 0) == (pending.count, pending.bytes)
    assert pending.try_enter(1)


async def test_a_cancelled_waiter_gives_its_turn_back() -> None:
    pending = SendBudget(1, 100)
    pending.try_enter(1)
    first = asyncio.create_task(pending.enter(1, 5, "t"))
    second = asyncio.create_task(pending.enter(1, 5, "t"))
    await asyncio.sleep(0)
    pending.leave(1)  # the first one's turn comes, and in the same moment it is cancelled
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert 1 == pending.count
    pending.leave(1)
    await pending.drained()

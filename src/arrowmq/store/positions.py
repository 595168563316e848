"""Positions in the commit log, and the one object that owns them: everybody who waits, waits here.

    appended    written into the mapped log: survives the end of the process, not of the machine
    flushed     forced to disk: survives power loss                            (the flusher's thread moves it)
    replicated  held by so many other brokers: survives the loss of this one   (the replicas' acknowledgements move it)
    confirmed   what readers may see: the part for which everything is kept that this broker promises

They are byte offsets all, and never the same promise: `Flushed <= Appended`, `Confirmed <= Appended`.

A sender asks for a `Promise`, and `when` calls back, or `wait` returns, once the position it names has it, or once the
time-out is over; the answer says what was missed. There are two time-outs, `timeout_s` for the disk and
`replica_timeout_s` for what replicas have a part in; both may change while somebody waits. Where so many replicas are
not even there (`available_replicas`), nobody is made to wait for them. Whoever wants to hear of every step subscribes.
Both are called on the event loop.

Under ASYNC_FLUSH a message promises no more than its append: nothing is registered, and confirmed is appended.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from enum import Flag
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, NewType

from arrowmq import native
from arrowmq.clock import Clock, Timer

if TYPE_CHECKING:
    from arrowmq.store import _positions_plain as _positions
    from arrowmq.store.append._tail_plain import LogTail
else:
    _positions = native.load("arrowmq.store._positions")

Marks = _positions.Marks

Appended = NewType("Appended", int)
"""End of what was written into the mapped log."""

Flushed = NewType("Flushed", int)
"""End of what was forced to disk."""

Confirmed = NewType("Confirmed", int)
"""End of what readers may see."""

DEFAULT_TIMEOUT_S = 5.0
DEFAULT_REPLICA_TIMEOUT_S = 3.0
ANY_NUMBER = 1 << 30
MOST_MEMBERS = 128
_TIMER_SLACK_S = 0.001  # a timer may fire that much too early


class Promise(NamedTuple):
    """What must be true of a message before its sender is told that it is safe."""

    flushed: bool = False
    replicas: int = 0  # how many other brokers must have it

    def __or__(self, other: Promise) -> Promise:
        return Promise(self.flushed or other.flushed, max(self.replicas, other.replicas))

    def __bool__(self) -> bool:
        """Whether there is anything to wait for."""
        return self.flushed or self.replicas > 0


APPENDED = Promise()
FLUSHED = Promise(flushed=True)


def replicated(replicas: int) -> Promise:
    return Promise(replicas=replicas)


class Missed(Flag):
    """Which parts of a promise were not kept in time; none of them is false."""

    NOTHING = 0
    FLUSHED = 1
    REPLICATED = 2
    AVAILABLE = 4  # there are not so many replicas to wait for


Callback = Callable[[Missed], object]
_Wait = tuple[int, float, Callback]  # the end that is waited for, since when, whom to call
_end_of = itemgetter(0)


class Positions(Marks):
    def __init__(self, tail: LogTail, clock: Clock) -> None:
        super().__init__(tail)
        self._clock = clock
        self._timeout_s = DEFAULT_TIMEOUT_S
        self._replica_timeout_s = DEFAULT_REPLICA_TIMEOUT_S
        self.available_replicas = ANY_NUMBER  # as many as `replication` says; without one, nobody promises any
        self._promised = APPENDED
        #: What keeps a record in the log whatever happens to this broker. Services count their progress, which other
        #: brokers may go on from, only as far as what they wrote for it is kept.
        self.kept = FLUSHED
        self._replicated: list[int] = []  # number n - 1: the end that n replicas have
        self._waits: dict[Promise, deque[_Wait]] = {}  # each in the order of its ends
        self._subscribers: list[Callable[[Confirmed], object]] = []
        self._notified = 0
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._is_closed = False
        self.wants_flush: Callable[[], object] | None = None  # called when somebody begins to wait for a flush
        self.wants_replicas: Callable[[], object] | None = None  # called when somebody begins to wait for replicas

    # How far it is

    @property
    def appended(self) -> Appended:
        return Appended(self.appended_end)

    @property
    def flushed(self) -> Flushed:
        return Flushed(self.flushed_end)

    @flushed.setter
    def flushed(self, end: Flushed) -> None:
        """Any thread may say so; `advanced` then has to be called on the loop."""
        self.flushed_end = end

    def replicated(self, replicas: int) -> int:
        """The end that so many replicas have."""
        return self._replicated[replicas - 1] if replicas <= len(self._replicated) else 0

    @property
    def confirmed(self) -> Confirmed:
        return Confirmed(self.confirmed_end)

    def reached(self, promise: Promise) -> int:
        """The end up to which a promise is kept."""
        end = self.appended_end
        if promise.flushed:
            end = min(end, self.flushed_end)
        if promise.replicas:
            end = min(end, self.replicated(promise.replicas))
        return end

    # What this broker promises

    @property
    def promised(self) -> Promise:
        """What every message gets whose sender waits for it, and what readers may rely on."""
        return self._promised

    @promised.setter
    def promised(self, promise: Promise) -> None:
        self._promised = promise
        self.needs_flush, self.needs_replicas = promise.flushed, promise.replicas > 0
        self.replicated_end = self.replicated(promise.replicas) if promise.replicas else 0
        self.advanced()

    # Moving

    def replicas_have(self, ends: Iterable[int]) -> None:
        """Where the copy of each replica ends. One that goes away takes nothing back: what it had, it had."""
        for number, end in enumerate(sorted(ends, reverse=True)):
            if number == len(self._replicated):
                self._replicated.append(0)
            self._replicated[number] = max(self._replicated[number], end)
        if self._promised.replicas:
            self.replicated_end = self.replicated(self._promised.replicas)
        self.advanced()

    def members_have(self, end: int) -> None:
        """In place of counting replicas: everybody who must have a message has all up to here. Who that is may change;
        then what one had who is no longer of them counts no more."""
        self._replicated = [end] * MOST_MEMBERS
        if self._promised.replicas:
            self.replicated_end = end
        self.advanced()

    def abandon(self) -> None:
        """What is still waited for cannot come true here: who waits hears so."""
        waiting, self._waits = self._waits, {}
        for promise, waits in waiting.items():
            for end, _, callback in waits:
                callback(self._missed(end, promise))

    def cut(self, end: int) -> None:
        """The log was cut here: what lies behind is written anew, and promised anew."""
        self.flushed_end = min(self.flushed_end, end)
        self.replicated_end = min(self.replicated_end, end)
        self._replicated = [min(each, end) for each in self._replicated]
        self._notified = min(self._notified, end)

    def advanced(self) -> None:
        """On the loop: call those whose end is reached, first the waits, then the subscribers."""
        for promise, waits in list(self._waits.items()):
            if waits:
                reached = self.reached(promise)
                while waits and waits[0][0] <= reached:
                    waits.popleft()[2](Missed.NOTHING)
        confirmed = self.confirmed
        if confirmed > self._notified:
            self._notified = confirmed
            for subscriber in self._subscribers:
                subscriber(confirmed)

    def subscribe(self, callback: Callable[[Confirmed], object]) -> None:
        """Be called when a flush or a replica has moved the confirmed end. Of appends the store's listeners hear."""
        self._subscribers.append(callback)

    # Waiting

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        """Counts for those who wait already, too."""
        self._timeout_s = seconds
        if self._timer is not None:
            self._expire()

    @property
    def replica_timeout_s(self) -> float:
        return self._replica_timeout_s

    @replica_timeout_s.setter
    def replica_timeout_s(self, seconds: float) -> None:
        self._replica_timeout_s = seconds
        if self._timer is not None:
            self._expire()

    def _timeout_of(self, promise: Promise) -> float:
        return self._replica_timeout_s if promise.replicas else self._timeout_s

    @property
    def is_flush_awaited(self) -> bool:
        """Whether somebody waits for a flush; any thread may ask."""
        return any(waits for promise, waits in list(self._waits.items()) if promise.flushed)

    def when(self, end: int, promise: Promise, callback: Callback) -> None:
        """Call back once the log up to `end` has what is promised, or not in time; at once if it has it already."""
        if self.reached(promise) >= end:
            callback(Missed.NOTHING)
            return
        if self._is_closed or promise.replicas > self.available_replicas:
            callback(self._missed(end, promise))
            return
        waits = self._waits.get(promise)
        if waits is None:
            waits = self._waits[promise] = deque()
        wait = (end, self._clock.monotonic(), callback)
        if waits and waits[-1][0] > end:
            insort(waits, wait, key=_end_of)
        else:
            waits.append(wait)
        due = wait[1] + self._timeout_of(promise)
        if self._timer is None or due < self._timer_due:
            self._set_timer(due)
        if promise.replicas and self.wants_replicas is not None:
            self.wants_replicas()
        if promise.flushed and self.wants_flush is not None:
            self.wants_flush()

    async def wait(self, end: int, promise: Promise) -> Missed:
        """`when` for a coroutine."""
        if self.reached(promise) >= end:
            return Missed.NOTHING
        waiter: asyncio.Future[Missed] = asyncio.get_running_loop().create_future()

        def wake(missed: Missed) -> None:
            if not waiter.done():
                waiter.set_result(missed)

        self.when(end, promise, wake)
        return await waiter

    def _missed(self, end: int, promise: Promise) -> Missed:
        missed = Missed.NOTHING
        if promise.flushed and self.flushed_end < end:
            missed |= Missed.FLUSHED
        if promise.replicas and self.replicated(promise.replicas) < end:
            missed |= Missed.REPLICATED
            if promise.replicas > self.available_replicas:
                missed |= Missed.AVAILABLE
        return missed

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(max(0.0, due - self._clock.monotonic()), self._expire)

    def _expire(self) -> None:
        """Give up those who have waited too long, and set the timer for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        late: list[tuple[Promise, _Wait]] = []
        for promise, waits in self._waits.items():
            began_before = now - self._timeout_of(promise) + _TIMER_SLACK_S
            if any(since <= began_before for _, since, _ in waits):
                late += [(promise, wait) for wait in waits if wait[1] <= began_before]
                self._waits[promise] = deque(wait for wait in waits if wait[1] > began_before)
        due = min(
            (since + self._timeout_of(promise) for promise, waits in self._waits.items() for _, since, _ in waits),
            default=None,
        )
        if due is not None:
            self._set_timer(due)
        for promise, (end, _, callback) in late:
            callback(self._missed(end, promise))

    # Beginning and end

    def open(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        """Nothing moves any more: whoever still waits is told so."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.abandon()

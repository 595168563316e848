"""Sends under way: which answer belongs to which, when each is too late, and the frames they left in.

There is no task, no timer and no header object a message. A send writes its frame into the connection, leaves a flight
in a table, and awaits the flight's future; the answer's bytes resolve it where they are read. One timer stands for the
earliest deadline. The hot parts, a message to frame and an answer to receipt, are `_flights_plain` or its native twin.

Opaques of flights have the second-highest bit set and those of all other requests do not, so that a look at an answer
tells whose it is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.client.produce.outcome import land, lose, time_out
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.pending import MAX_OPAQUE
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import UniqueIds

if TYPE_CHECKING:
    from arrowmq.client.produce import _pending_sends_plain as _flights
else:
    _flights = native.load("arrowmq.client.produce._pending_sends")

Flight = _flights.Flight
Lane = _flights.Lane
Target = _flights.Target
frame = _flights.frame
field = _flights.field

__all__ = ["Flight", "Flights", "Lane", "Target", "field", "frame"]

_NEVER = float("inf")
FIRST_OPAQUE = MAX_OPAQUE + 1


class Flights:
    """All sends of one session."""

    def __init__(
        self,
        clock: Clock,
        remoting: RemotingClient,
        ids: UniqueIds,
        connection_to: Callable[[str], Connection | None],
    ) -> None:
        self.now_ms = clock.now_ms
        self.msg_id_at = ids.at
        self.connection_to = connection_to
        self._clock = clock
        self._monotonic = clock.monotonic
        self._numbers = itertools.count()
        self._by_opaque: dict[int, Flight] = {}
        self._answers = 0
        self._timer: Timer | None = None
        self._timer_at = _NEVER
        self._loop: asyncio.AbstractEventLoop | None = None
        remoting.watch_answers(self._settle, self._stray, self._lost)

    def __len__(self) -> int:
        return len(self._by_opaque)

    def next_opaque(self) -> int:
        return next(self._numbers) & MAX_OPAQUE | FIRST_OPAQUE

    def new_future(self) -> asyncio.Future[SendReceipt]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.create_future()

    def launch(self, flight: Flight, written: bytes) -> None:
        """Send the frame and wait for its answer."""
        connection = flight.connection
        if connection.is_ending:
            lose(flight, connection.why_closed)
            return
        flight.launched = now = self._monotonic()
        flight.deadline = deadline = now + flight.timeout_s
        if deadline < self._timer_at:
            self._arm(deadline)
        by_opaque = self._by_opaque
        # With nothing else under way, and at most one answer since the last send, no other frame will join this one
        # in this turn of the loop, so it need not wait for the turn's end.
        is_lone = not by_opaque and self._answers <= 1
        self._answers = 0
        by_opaque[flight.opaque] = flight
        connection.write_request(written, is_lone)

    def forget(self, flight: Flight) -> None:
        """Nobody waits for it any more."""
        self._by_opaque.pop(flight.opaque, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = _NEVER

    # -- what ends a flight

    def _settle(self, _connection: Connection, view: memoryview) -> tuple[int, None]:
        by_opaque = self._by_opaque
        before = len(by_opaque)
        if not before:
            return 0, None
        consumed = _flights.settle(by_opaque, view, self._monotonic)
        self._answers += before - len(by_opaque)
        return consumed, None

    def _stray(self, answer: Command) -> bool:
        """An answer that came in another form than the request had."""
        flight = self._by_opaque.pop(answer.opaque, None)
        if flight is None:
            return False
        self._answers += 1
        land(flight, answer, self._monotonic)
        return True

    def _lost(self, connection: Connection) -> None:
        for flight in [each for each in self._by_opaque.values() if each.connection is connection]:
            self.forget(flight)
            lose(flight, connection.why_closed)

    def _arm(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self._clock.call_later(max(0.0, moment - self._monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        now = self._monotonic()
        for flight in [each for each in self._by_opaque.values() if each.deadline <= now]:
            self.forget(flight)
            time_out(flight)
        if self._by_opaque:
            self._arm(min(flight.deadline for flight in self._by_opaque.values()))

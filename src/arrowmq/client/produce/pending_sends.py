"""Pending sends: which answer belongs to which, when each is too late, and the frames they left in.

There is no task, no timer and no header object a message. A send writes its frame into the connection, leaves a
pending send in a table, and awaits its future; the answer's bytes resolve it where they are read. One timer stands for
the earliest deadline, or for a look at who has waited long: a broker that hangs closes no connection, and another may
be master by now. The hot parts, a message to frame and an answer to receipt, are `_pending_sends_plain` or its
native form.

Opaques of pending sends have the second-highest bit set and those of all other requests do not, so that a look at an
answer shows whose it is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.client.produce.outcome import lose, resolve, time_out
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.pending import MAX_OPAQUE
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import UniqueIds

if TYPE_CHECKING:
    from arrowmq.client.produce import _pending_sends_plain as _pending_sends
else:
    _pending_sends = native.load("arrowmq.client.produce._pending_sends")

PendingSend = _pending_sends.PendingSend
Lane = _pending_sends.Lane
Target = _pending_sends.Target
frame = _pending_sends.frame
field = _pending_sends.field

__all__ = ["Lane", "PendingSend", "PendingSends", "Target", "field", "frame"]

_NEVER = float("inf")
FIRST_OPAQUE = MAX_OPAQUE + 1
#: Who has waited so long for an answer has somebody ask whether the broker is still master.
SILENCE_S = 0.5


class PendingSends:
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
        self._by_opaque: dict[int, PendingSend] = {}
        self._answers = 0
        self._timer: Timer | None = None
        self._timer_at = _NEVER
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Called with what has waited for longer than `SILENCE_S`, again and again while it does.
        self.on_silence: Callable[[list[PendingSend]], object] | None = None
        remoting.watch_answers(self._settle, self._stray, self._lost)

    def __len__(self) -> int:
        return len(self._by_opaque)

    def next_opaque(self) -> int:
        return next(self._numbers) & MAX_OPAQUE | FIRST_OPAQUE

    def new_future(self) -> asyncio.Future[SendReceipt]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.create_future()

    def begin(self, pending: PendingSend, written: bytes) -> None:
        """Send the frame and wait for its answer."""
        connection = pending.connection
        if connection.is_ending:
            lose(pending, connection.why_closed)
            return
        pending.sent_at = now = self._monotonic()
        pending.deadline = deadline = now + pending.timeout_s
        look = min(deadline, now + SILENCE_S)
        if look < self._timer_at:
            self._arm(look)
        by_opaque = self._by_opaque
        # With nothing else under way, and at most one answer since the last send, no other frame will join this one
        # in this event loop iteration, so it need not wait for its end.
        is_lone = not by_opaque and self._answers <= 1
        self._answers = 0
        by_opaque[pending.opaque] = pending
        connection.write_request(written, is_lone)

    def forget(self, pending: PendingSend) -> None:
        """Nobody waits for it any more."""
        self._by_opaque.pop(pending.opaque, None)

    def abandon(self, pending: PendingSend, reason: str) -> None:
        """No answer is waited for any longer: as if the connection were lost."""
        if self._by_opaque.pop(pending.opaque, None) is not None:
            lose(pending, reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = _NEVER

    # -- what ends a pending send

    def _settle(self, _connection: Connection, view: memoryview) -> tuple[int, None]:
        by_opaque = self._by_opaque
        before = len(by_opaque)
        if not before:
            return 0, None
        consumed = _pending_sends.settle(by_opaque, view, self._monotonic)
        self._answers += before - len(by_opaque)
        return consumed, None

    def _stray(self, answer: Command) -> bool:
        """An answer that came in another form than the request had."""
        pending = self._by_opaque.pop(answer.opaque, None)
        if pending is None:
            return False
        self._answers += 1
        resolve(pending, answer, self._monotonic)
        return True

    def _lost(self, connection: Connection) -> None:
        for pending in [each for each in self._by_opaque.values() if each.connection is connection]:
            self.forget(pending)
            lose(pending, connection.why_closed)

    def _arm(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self._clock.call_later(max(0.0, moment - self._monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        now = self._monotonic()
        for pending in [each for each in self._by_opaque.values() if each.deadline <= now]:
            self.forget(pending)
            time_out(pending)
        if not self._by_opaque:
            return
        self._arm(min(now + SILENCE_S, *(pending.deadline for pending in self._by_opaque.values())))
        silent = [each for each in self._by_opaque.values() if now - each.sent_at >= SILENCE_S]
        if silent and self.on_silence is not None:
            self.on_silence(silent)

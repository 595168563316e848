"""Requests of ours on one connection whose answers are awaited, by the opaque that the answer will carry."""

from __future__ import annotations

import asyncio

from arrowmq.remoting.deadlines import Deadline, Deadlines
from arrowmq.remoting.errors import ConnectionLost, RequestTimeout
from arrowmq.wire.frames import Command

#: The upper half of what the field can hold is left to those who keep their own table of requests
#: (`client.produce.pending_sends`).
MAX_OPAQUE = 0x3FFFFFFF


class Pending:
    """One awaited answer."""

    __slots__ = ("_opaque", "_requests", "_timeout_s", "deadline", "future")

    def __init__(
        self, requests: PendingRequests, opaque: int, future: asyncio.Future[Command], timeout_s: float
    ) -> None:
        self._requests = requests
        self._opaque = opaque
        self._timeout_s = timeout_s
        self.future = future
        self.deadline: Deadline | None = None

    def expired(self) -> None:
        self._requests.forget(self._opaque)
        if not self.future.done():
            address = self._requests.address
            self.future.set_exception(RequestTimeout(address, f"{address} did not answer within {self._timeout_s:g} s"))


class PendingRequests:
    __slots__ = ("_by_opaque", "_deadlines", "_last_opaque", "address")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._by_opaque: dict[int, Pending] = {}
        self._last_opaque = 0
        self.address = ""

    def __len__(self) -> int:
        return len(self._by_opaque)

    def number(self, command: Command) -> int:
        """Give a request the next opaque."""
        command.opaque = opaque = self.next_opaque()
        return opaque

    def next_opaque(self) -> int:
        """From 1, because one client takes 0 as "none"."""
        self._last_opaque = opaque = self._last_opaque % MAX_OPAQUE + 1
        return opaque

    def add(self, opaque: int, future: asyncio.Future[Command], timeout_s: float) -> None:
        pending = Pending(self, opaque, future, timeout_s)
        pending.deadline = self._deadlines.add(timeout_s, pending.expired)
        self._by_opaque[opaque] = pending

    def answered(self, command: Command) -> bool:
        """Hand the answer to who waits for it; False if nobody does."""
        pending = self._take(command.opaque)
        if pending is None:
            return False
        if not pending.future.done():
            pending.future.set_result(command)
        return True

    def forget(self, opaque: int) -> None:
        self._take(opaque)

    def lost(self, reason: str) -> None:
        """The connection is gone: all fail at once."""
        for opaque in list(self._by_opaque):
            pending = self._take(opaque)
            if pending is not None and not pending.future.done():
                message = f"the connection to {self.address} was lost: {reason}"
                pending.future.set_exception(ConnectionLost(self.address, message))

    def _take(self, opaque: int) -> Pending | None:
        pending = self._by_opaque.pop(opaque, None)
        if pending is not None and pending.deadline is not None:
            self._deadlines.remove(pending.deadline)
        return pending

"""How long a master may go on that does not hear from its controllers.

Its heartbeats promise the controller how long it may be silent; then another is elected. So by itself it counts from
the moment it *sent* the last heartbeat that a leading controller answered, and refuses messages when that time is over.
It then ends here before it ends there, whatever happens to the network between them, or to this process (SIGSTOP).

There are two exceptions, because nobody else can be master while they hold: where nobody else is in the sync state set,
and while every other member of it has acknowledged something within that time. Only members are elected, and one that
was elected follows this broker no longer. So brokers go on while all controllers are away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from arrowmq.clock import Clock, Timer

LOOKS_A_LEASE = 20
LONGEST_LOOK_S = 0.1


class WriteLease:
    """`on_change(is_valid)` when a master may no longer, or may again, take messages."""

    def __init__(
        self,
        clock: Clock,
        lease_s: Callable[[], float],
        heard_from_others: Callable[[], Iterable[float]],
        on_change: Callable[[bool], object],
    ) -> None:
        """`heard_from_others` gives, for each other member of the set, when it last acknowledged something."""
        self._clock = clock
        self._lease_s = lease_s
        self._heard_from_others = heard_from_others
        self._on_change = on_change
        self._until_s = 0.0
        self._timer: Timer | None = None
        self.is_valid = False

    def start(self) -> None:
        """This broker was just made master, by a controller."""
        self._until_s = max(self._until_s, self._clock.monotonic() + self._lease_s())
        self.is_valid = True
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_valid = False

    @property
    def is_running(self) -> bool:
        return self._timer is not None

    def renewed(self, sent_s: float) -> None:
        """A leading controller has answered a heartbeat that was sent then."""
        self._until_s = max(self._until_s, sent_s + self._lease_s())
        if self.is_running and not self.is_valid:
            self._look()

    def remaining_s(self) -> float:
        return self._until_s - self._clock.monotonic()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(min(self._lease_s() / LOOKS_A_LEASE, LONGEST_LOOK_S), self._look)

    def _look(self) -> None:
        self._schedule()
        since_s = self._clock.monotonic() - self._lease_s()
        is_valid = self.remaining_s() > 0 or all(heard_s > since_s for heard_s in self._heard_from_others())
        if is_valid != self.is_valid:
            self.is_valid = is_valid
            self._on_change(is_valid)

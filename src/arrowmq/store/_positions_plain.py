"""How far the log has come, in numbers: the pure-Python reference.

`Positions` adds who waits for them. The native form lets a native reader ask for the confirmed end without a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrowmq.store.append._tail_plain import LogTail


class Marks:
    """Ends that others report, and which of them bound readers: what the broker promises."""

    def __init__(self, tail: LogTail) -> None:
        self._tail = tail
        self.flushed_end = 0
        self.replicated_end = 0
        self.needs_flush = False
        self.needs_replicas = False

    @property
    def appended_end(self) -> int:
        return self._tail.appended

    @property
    def confirmed_end(self) -> int:
        """Never behind the end of the log: after a cut the others may not have heard of it yet."""
        end = self._tail.appended
        if self.needs_flush:
            end = min(end, self.flushed_end)
        if self.needs_replicas:
            end = min(end, self.replicated_end)
        return end

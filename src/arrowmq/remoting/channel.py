"""A client as services see it: who it is, what is remembered of it, how to reach it, and when it is gone.

A client may come by a socket (`Connection`), by gRPC, or be a test. Services and tables know `Channel` alone, so they
serve all of them; what belongs to one transport (frames, buffers, the pausing of a reader) stays behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from arrowmq.wire.frames import Command


class Channel(Protocol):
    """Compared and hashed by identity: tables are keyed by it."""

    #: What services remember of this client, under keys of their own, for as long as it is there
    attributes: dict[str, Any]

    @property
    def peer(self) -> tuple[str, int]:
        """Where the client is: the born host of its messages."""

    @property
    def peer_text(self) -> str:
        """The client's address as logs and tools show it."""

    @property
    def closed(self) -> bool:
        """The client is gone: nothing reaches it any more."""

    def on_close(self, callback: Callable[[Channel], object]) -> None:
        """Call back when the client is gone; at once if it already is."""

    def close(self) -> None:
        """Hang up, once everything that waits for the client has been sent."""

    def send_oneway(self, command: Command) -> None:
        """Notify the client; no answer is expected, and one that is gone is not notified."""

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Ask the client. Raises RequestTimeout or ConnectionLost."""

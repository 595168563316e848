"""One HTTP/2 connection without its socket: what a core does, and which of the two is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from arrowmq import native
from arrowmq.proxy.http2.events import Event, Headers, Limits

__all__ = ["Core", "new_core"]


class Core(Protocol):
    """The server's side of a connection.

    Calls for a stream that has ended do nothing: a peer may cancel while its answer is on the way. Data that the peer's
    windows do not let through waits here, in order, and trailers wait behind it.
    """

    #: Nothing more can come or go, except what `take` still gives (a GOAWAY that says why).
    is_ended: bool

    #: Whether requests that come whole in one read may be reported by one event, by a core that can.
    merges_requests: bool

    @property
    def open_streams(self) -> int:
        """Requests that have begun and not ended on both sides."""

    def is_open(self, stream: int) -> bool:
        """Whether an answer would still be sent: events of one read may be behind one another."""

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """What the bytes bring. A peer that breaks the protocol or the limits ends the connection."""

    def take(self) -> bytes:
        """What is to be written now."""

    def send_headers(self, stream: int, headers: Headers, *, end: bool = False) -> None: ...

    def send_data(self, stream: int, data: bytes) -> None: ...

    def send_trailers(self, stream: int, trailers: Headers) -> None:
        """The last of a stream, behind its data. What the peer still sends of its request is dropped."""

    def respond(self, stream: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        """Headers, data and trailers in one."""

    def reset(self, stream: int, code: int) -> None: ...

    def unsent(self, stream: int) -> int:
        """Bytes of data that wait for the peer's window."""

    @property
    def unsent_total(self) -> int: ...

    def relax(self) -> None:
        """Time has passed: what a peer did before counts less against `Limits`."""

    def ping(self, data: bytes) -> None:
        """Eight bytes that the peer sends back."""

    def goaway(self, code: int = 0, *, is_final: bool = True) -> None:
        """No further streams; open ones go on. Not final: streams that are on their way still count."""


if TYPE_CHECKING:
    from arrowmq.proxy.http2._core_plain import Http2Core
else:
    Http2Core = native.load("arrowmq.proxy.http2._core").Http2Core


def new_core(limits: Limits) -> Core:
    return Http2Core(limits)

"""Acknowledgements that the fast path has taken in part, or whose answers wait for the disk or a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowmq.wire.frames import Command, FrameSplitter

if TYPE_CHECKING:
    from arrowmq.proxy.http2.connection import Http2Connection
    from arrowmq.proxy.service.clients import Client


class Asker:
    """What the fast path sees as a connection, for one request."""

    __slots__ = ("_channel", "answers", "attributes", "in_flight", "peer", "peer_bytes", "waiting")

    def __init__(self, channel: Client, connection: Http2Connection) -> None:
        self._channel = channel
        self.peer = channel.peer
        self.peer_bytes: bytes | None = None
        self.attributes = connection.attributes
        self.in_flight = 0
        self.answers: list[Command] = []
        self.waiting: Callable[[list[Command]], object] | None = (
            None  # called when the answers that had to wait for the disk or a replica are there
        )

    @property
    def peer_text(self) -> str:
        return self._channel.peer_text

    @property
    def closed(self) -> bool:
        return self._channel.closed

    def send(self, answer: Command) -> None:
        self.answers.append(answer)

    def write_frame(self, pieces: list[bytes]) -> None:
        self.answers.extend(FrameSplitter().feed(b"".join(pieces)))

    def in_flight_ended(self) -> None:
        self.in_flight = 0
        if self.waiting is not None:
            self.waiting(self.answers)


@dataclass(slots=True)
class Acked:
    """What became of a request: so many of its entries are taken."""

    done: int
    asker: Asker | None  # which will have the broker's answers; None if they were good

    def when_kept(self, then: Callable[[list[Command]], object]) -> None:
        asker = self.asker
        assert asker is not None
        if asker.in_flight:
            asker.waiting = then
        else:
            then(asker.answers)

"""A client that is no connection: what a broker's services know of it, and what they send to it, are plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrowmq.remoting.direct_call import DirectCall
from arrowmq.remoting.errors import ConnectionLost
from arrowmq.remoting.handlers import Answer, HandlerTable
from arrowmq.wire.frames import Command

if TYPE_CHECKING:
    from arrowmq.remoting.channel import Channel

SMALL_FILES = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
}


class LocalClient:
    """A `Channel` of this process. `answers` says what the client answers when it is asked."""

    def __init__(self, handlers: HandlerTable, peer: tuple[str, int] = ("10.1.2.3", 4567)) -> None:
        self.handlers = handlers
        self.attributes: dict[str, Any] = {}
        self.peer = peer
        self.closed = False
        self.notices: list[Command] = []
        self.answers: Callable[[Command], Command] | None = None
        self._close_callbacks: list[Callable[[Channel], object]] = []

    @property
    def peer_text(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    def on_close(self, callback: Callable[[Channel], object]) -> None:
        if self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for callback in self._close_callbacks:
                callback(self)

    def send_oneway(self, command: Command) -> None:
        if not self.closed:
            self.notices.append(command)

    async def request(self, command: Command, timeout_s: float) -> Command:
        if self.closed or self.answers is None:
            raise ConnectionLost(self.peer_text, f"{self.peer_text} is gone")
        return self.answers(command)

    async def ask(self, handler: Any, request: Any, body: bytes = b"", **facts: int) -> Answer:
        return await DirectCall(self.handlers, self, body, **facts).ask(handler, request)

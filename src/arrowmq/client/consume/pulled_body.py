"""A pulled body kept whole, for consumers that want columns instead of messages."""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.client.consume.pulling import PulledQueue
from arrowmq.client.message import ReceivedMessage


class Chunk:
    """The records of one pull. It is held and acknowledged like one message, at the offset of its first record."""

    __slots__ = ("_decode", "body", "delivered_ms", "pulled_from", "queue_offset", "size")

    def __init__(
        self, pulled_from: PulledQueue, body: bytes, decode: Callable[[PulledQueue, bytes], list[ReceivedMessage]]
    ) -> None:
        self.pulled_from = pulled_from
        self.body = body
        self.size = len(body)
        self.queue_offset = int.from_bytes(body[20:28], "big")  # field 6 of the first record
        self.delivered_ms = 0
        self._decode = decode

    def messages(self) -> list[ReceivedMessage]:
        return self._decode(self.pulled_from, self.body)


def can_be_whole(pulled: PulledQueue, is_renaming: bool) -> bool:
    """Whether nothing needs a look at the single messages of this queue."""
    return not (is_renaming or pulled.subscription.tags or pulled.queue.topic.startswith("%"))

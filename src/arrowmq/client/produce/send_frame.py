"""The fields of a send request that are the same for all messages to one queue, written once.

The general form (`Sender.request`, a `Command`) says the same, for where hooks or signatures must see the fields;
a test compares the two. `_pending_sends_plain` has the layout.
"""

from __future__ import annotations

from arrowmq.client import names
from arrowmq.client.produce.pending_sends import field
from arrowmq.wire.message_queue import MessageQueue

DEFAULT_TOPIC_QUEUES = 4


class FrameStarts:
    """Of one producer group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._starts: dict[tuple[MessageQueue, bool], bytes] = {}

    def of(self, topic: str, queue: MessageQueue, is_batch: bool = False) -> bytes:
        start = self._starts.get((queue, is_batch))
        if start is None:
            fields = {
                "a": self._group,
                "b": topic,
                "c": names.AUTO_CREATE_TOPIC,
                "d": str(DEFAULT_TOPIC_QUEUES),
                "e": str(queue.queue_id),
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": queue.broker_name,
            }
            start = b"".join(field(name, value.encode()) for name, value in fields.items())
            self._starts[queue, is_batch] = start
        return start

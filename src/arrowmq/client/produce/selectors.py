"""Queue selectors: functions from the topic's queues and the message to one queue.

A selector sees all queues of the topic's route, which changes when brokers come or go: an order by key holds as long as
the number of queues does. For an order that survives broker failures, RocketMQ has ordered topics (orderTopicConf).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from arrowmq.client.produce.outgoing import Message
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.message_queue import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_hash(key: str | int) -> QueueSelector:
    """Equal keys go to equal queues, with the Java client's hash, so that both clients agree on the queue."""
    hashed = java_hash(key) if isinstance(key, str) else int(key) & 0xFFFFFFFF

    def select(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
        return queues[hash_index(hashed, len(queues))]

    return select


def hash_index(hashed: int, count: int) -> int:
    """Java's remainder takes the sign of the hash; the client then takes the absolute value."""
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return abs(signed) % count


def at_random(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    return random.choice(queues)

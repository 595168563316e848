"""The address of a queue, as clients and brokers name it to each other."""

from __future__ import annotations

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker. Ordered as Java orders it: clients agree on assignments by sorting."""

    topic: str
    broker_name: str
    queue_id: int

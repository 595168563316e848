"""The client for programs without an event loop: the same names and arguments, blocking calls.

    with arrowmq.sync.Producer("localhost:9876") as producer:
        producer.send("orders", b"...", tag="created")

    with arrowmq.sync.Consumer("localhost:9876", group="billing", topic="orders") as consumer:
        for message in consumer:
            message.ack()

Each client runs the asyncio client of the same name (`arrowmq.client`) in a thread with an event loop of its own, which
ends with it. The clients may be used from several threads. After a fork the child makes its own: threads do not survive
a fork.

In: calls from any thread. Out: what the asyncio client of the same name gives, when it is there.
"""

from __future__ import annotations

from arrowmq.client.produce.outgoing import Message
from arrowmq.sync.admin import Admin
from arrowmq.sync.consumers import (
    Consumer,
    LitePullConsumer,
    PoppedMessage,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
)
from arrowmq.sync.producer import Producer

__all__ = [
    "Admin",
    "Consumer",
    "LitePullConsumer",
    "Message",
    "PoppedMessage",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "SimpleConsumer",
]

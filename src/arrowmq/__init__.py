"""ArrowMQ: RocketMQ in Python.

`import arrowmq` gives what a program needs to send and consume; everything is loaded on first use.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    "Admin": "arrowmq.client.admin",
    "ArrowMQError": "arrowmq.client.errors",
    "Batching": "arrowmq.client.produce.batches",
    "ConsumeFrom": "arrowmq.client.consume.group.consume_from",
    "ConsumeResult": "arrowmq.client.consume.push",
    "Consumer": "arrowmq.client.consume.consumer",
    "FlowControl": "arrowmq.client.consume.pulling",
    "Hook": "arrowmq.client.hooks",
    "InvalidMessage": "arrowmq.client.errors",
    "InvalidName": "arrowmq.client.errors",
    "InvalidUse": "arrowmq.client.errors",
    "LitePullConsumer": "arrowmq.client.consume.lite_pull",
    "Message": "arrowmq.client.produce.outgoing",
    "MessageTrace": "arrowmq.client.message_trace",
    "NamesrvUnreachable": "arrowmq.client.errors",
    "NoRoute": "arrowmq.client.errors",
    "PoppedMessage": "arrowmq.client.consume.pop.popped",
    "Producer": "arrowmq.client.produce.producer",
    "Pulling": "arrowmq.client.consume.pulling",
    "PushConsumer": "arrowmq.client.consume.push",
    "ReceivedMessage": "arrowmq.client.message",
    "Refused": "arrowmq.client.errors",
    "ReplyTimedOut": "arrowmq.client.errors",
    "RetryLater": "arrowmq.client.consume.push",
    "SendFailed": "arrowmq.client.errors",
    "SendReceipt": "arrowmq.client.produce.receipt",
    "SendStatus": "arrowmq.client.produce.receipt",
    "SendTimedOut": "arrowmq.client.errors",
    "SimpleConsumer": "arrowmq.client.consume.pop.simple",
    "TimedOut": "arrowmq.client.errors",
    "TraceContext": "arrowmq.client.trace_context",
    "Transaction": "arrowmq.client.produce.transactions",
    "TransactionListener": "arrowmq.client.produce.transactions",
    "TransactionState": "arrowmq.client.produce.transactions",
    "Unreachable": "arrowmq.client.errors",
    "CompressionType": "arrowmq.wire.compression",
    "MessageQueue": "arrowmq.wire.message_queue",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        import importlib

        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'arrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

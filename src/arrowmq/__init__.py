"""ArrowMQ: RocketMQ in Python.

`import arrowmq` gives what a program needs to send and consume; everything is loaded on first use.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    "Admin": "arrowmq.client.admin",
    "ArrowMQError": "arrowmq.client.errors",
    "Batching": "arrowmq.client.batches",
    "ConsumeFrom": "arrowmq.client.consume_from",
    "ConsumeResult": "arrowmq.client.push",
    "Consumer": "arrowmq.client.consumer",
    "FlowControl": "arrowmq.client.pulling",
    "Hook": "arrowmq.client.hooks",
    "InvalidMessage": "arrowmq.client.errors",
    "InvalidName": "arrowmq.client.errors",
    "InvalidUse": "arrowmq.client.errors",
    "LitePullConsumer": "arrowmq.client.lite_pull",
    "Message": "arrowmq.client.outgoing",
    "MessageTrace": "arrowmq.client.trace",
    "NamesrvUnreachable": "arrowmq.client.errors",
    "NoRoute": "arrowmq.client.errors",
    "Producer": "arrowmq.client.producer",
    "Pulling": "arrowmq.client.pulling",
    "PushConsumer": "arrowmq.client.push",
    "ReceivedMessage": "arrowmq.client.message",
    "Refused": "arrowmq.client.errors",
    "ReplyTimedOut": "arrowmq.client.errors",
    "RetryLater": "arrowmq.client.push",
    "SendFailed": "arrowmq.client.errors",
    "SendReceipt": "arrowmq.client.receipt",
    "SendStatus": "arrowmq.client.receipt",
    "SendTimedOut": "arrowmq.client.errors",
    "TimedOut": "arrowmq.client.errors",
    "TraceContext": "arrowmq.client.tracing",
    "Transaction": "arrowmq.client.transactions",
    "TransactionListener": "arrowmq.client.transactions",
    "TransactionState": "arrowmq.client.transactions",
    "Unreachable": "arrowmq.client.errors",
    "CompressionType": "arrowmq.wire.compression",
    "MessageQueue": "arrowmq.wire.message",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        import importlib

        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'arrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

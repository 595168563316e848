"""Which broker a request is for. A client that believes that the proxy is all of its brokers must say which it means.

Clients since 5.0 name the broker: in the field `bname` (`n` where a send has short names), in the body of a lock or of
a batch of acks, in the handle of a delayed message. Those before it do not: of them it is known where there is one
broker only, or where they came in at the port of a broker (`remotingBrokerPorts`). A guess would be worse than a
refusal: a queue number means another queue at another broker.
"""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.wire import fastjson
from arrowmq.wire.bodies.clients import BatchAckMessage, LockBatch
from arrowmq.wire.codes import RequestCode as Code
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_recall_handle

NAME, SHORT_NAME = "bname", "n"
SHORT_NAMED = frozenset({Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})


def named_broker(command: Command) -> str:
    """The name, or an empty text. Raises `WireError` if what should hold it cannot be read."""
    name = command.ext.get(SHORT_NAME if command.code in SHORT_NAMED else NAME)
    if name:
        return name
    look = _ELSEWHERE.get(command.code)
    return look(command) if look is not None else ""


def _of_lock(command: Command) -> str:
    queues = fastjson.loads(command.body, LockBatch).mq_set
    return next((queue.broker_name for queue in queues if queue.broker_name), "")


def _of_acks(command: Command) -> str:
    return fastjson.loads(command.body, BatchAckMessage).broker_name or ""


def _of_recall(command: Command) -> str:
    handle = command.ext.get("recallHandle")
    return parse_recall_handle(handle).broker_name if handle else ""


_ELSEWHERE: dict[int, Callable[[Command], str]] = {
    Code.LOCK_BATCH_MQ: _of_lock,
    Code.UNLOCK_BATCH_MQ: _of_lock,
    Code.BATCH_ACK_MESSAGE: _of_acks,
    Code.RECALL_MESSAGE: _of_recall,
}

"""How a pending send ends: with the receipt that the answer holds, or with the error of this attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.client.errors import Refused, TimedOut, Unreachable
from arrowmq.client.produce.faults import SLOW_FROM_S
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.remoting.errors import ConnectionLost
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.client.produce._pending_sends_plain import PendingSend

#: Answers that say no, and yet the message is stored.
STORED_CODES = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_STATUS = {status.value: status for status in SendStatus}


def what(topic: str, queue: MessageQueue) -> str:
    return f"sending to {topic} queue {queue.queue_id} of {queue.broker_name}"


def receipt_of(topic: str, queue: MessageQueue, msg_id: str, answer: Command) -> SendReceipt:
    ext = answer.ext
    return SendReceipt(
        topic,
        queue.broker_name,
        int(ext.get("queueId") or queue.queue_id),
        int(ext.get("queueOffset", "-1")),
        msg_id,
        ext.get("msgId", ""),
        _STATUS[ResponseCode(answer.code)] if answer.code else SendStatus.SEND_OK,
        ext.get("transactionId"),
        ext.get("recallHandle"),
        ext.get("MSG_REGION"),
    )


def resolve(pending: PendingSend, answer: Command, monotonic: Callable[[], float]) -> None:
    """The answer has come."""
    if answer.code and answer.code not in STORED_CODES:
        fail(pending, Refused(what(pending.topic, pending.queue), pending.address, answer.code, answer.remark))
        return
    try:
        receipt = receipt_of(pending.topic, pending.queue, pending.msg_id, answer)
    except ValueError as wrong:
        fail(pending, Unreachable(what(pending.topic, pending.queue), pending.address, wrong))
        return
    took_s = monotonic() - pending.sent_at
    faults = pending.faults
    if faults is not None and (took_s >= SLOW_FROM_S or faults.suspicions):
        faults.answered(pending.queue.broker_name, took_s * 1000)
    if not pending.future.done():
        pending.future.set_result(receipt)


def time_out(pending: PendingSend) -> None:
    fail(pending, TimedOut(what(pending.topic, pending.queue), pending.address, pending.timeout_s))


def lose(pending: PendingSend, reason: str) -> None:
    """The connection is gone."""
    lost = ConnectionLost(pending.address, f"the connection to {pending.address} was lost: {reason}")
    failure = Unreachable(what(pending.topic, pending.queue), pending.address, lost)
    failure.__cause__ = lost
    fail(pending, failure)


def fail(pending: PendingSend, failure: Exception) -> None:
    if not pending.future.done():
        pending.future.set_exception(failure)

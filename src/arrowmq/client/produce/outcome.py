"""How a send's flight ends: with the receipt that the answer holds, or with the error of this attempt."""

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
    from arrowmq.client.produce._pending_sends_plain import Flight

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


def land(flight: Flight, answer: Command, monotonic: Callable[[], float]) -> None:
    """The answer has come."""
    if answer.code and answer.code not in STORED_CODES:
        fail(flight, Refused(what(flight.topic, flight.queue), flight.address, answer.code, answer.remark))
        return
    try:
        receipt = receipt_of(flight.topic, flight.queue, flight.msg_id, answer)
    except ValueError as wrong:
        fail(flight, Unreachable(what(flight.topic, flight.queue), flight.address, wrong))
        return
    took_s = monotonic() - flight.launched
    faults = flight.faults
    if faults is not None and (took_s >= SLOW_FROM_S or faults.suspicions):
        faults.answered(flight.queue.broker_name, took_s * 1000)
    if not flight.future.done():
        flight.future.set_result(receipt)


def time_out(flight: Flight) -> None:
    fail(flight, TimedOut(what(flight.topic, flight.queue), flight.address, flight.timeout_s))


def lose(flight: Flight, reason: str) -> None:
    """The connection is gone."""
    lost = ConnectionLost(flight.address, f"the connection to {flight.address} was lost: {reason}")
    failure = Unreachable(what(flight.topic, flight.queue), flight.address, lost)
    failure.__cause__ = lost
    fail(flight, failure)


def fail(flight: Flight, failure: Exception) -> None:
    if not flight.future.done():
        flight.future.set_exception(failure)

"""What a producer gets for a message that a broker has stored."""

from __future__ import annotations

from enum import Enum

import msgspec

from arrowmq.wire.codes import ResponseCode


class SendStatus(Enum):
    """The message is stored in all four cases; they differ in what was promised on top of that."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


class SendReceipt(msgspec.Struct, frozen=True):
    """Where the message lies. `msg_id` is the id that consumers see, `offset_msg_id` the broker's own."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    status: SendStatus = SendStatus.SEND_OK
    transaction_id: str | None = None
    #: Of a timer message on a broker that allows it: what `Producer.recall` needs to take it back.
    recall_handle: str | None = None
    region_id: str | None = None

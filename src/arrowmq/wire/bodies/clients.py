"""Bodies between clients and brokers: heartbeats, locks, assignments, offsets, what consumers tell about themselves."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

import base64
from typing import Any

from msgspec import field

from arrowmq.wire import fastjson
from arrowmq.wire.bodies.declare import Body
from arrowmq.wire.errors import BodyError
from arrowmq.wire.message_queue import MessageQueue


class SubscriptionData(Body, kw_only=True):
    class_filter_mode: bool = False
    code_set: list[int] = []  # Java hashes of the tags; Go sends them as text
    expression_type: str | None = "TAG"
    sub_string: str | None = None
    sub_version: int = 0
    tags_set: list[str] = []
    topic: str = ""


class ConsumerData(Body, kw_only=True):
    consume_from_where: str | None = None
    consume_type: str | None = None
    group_name: str = ""
    message_model: str | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(Body, kw_only=True):
    group_name: str = ""


class HeartbeatData(Body, kw_only=True):
    client_id: str = field(default="", name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = False


class CheckClientConfig(Body, kw_only=True):
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerIdList(Body, kw_only=True):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = []


class LockBatch(Body, kw_only=True):
    """Request of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResult(Body, kw_only=True):
    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class QueryAssignment(Body, kw_only=True):
    client_id: str = ""
    consumer_group: str = ""
    message_model: str | None = None
    strategy_name: str | None = None
    topic: str = ""


class MessageQueueAssignment(Body, kw_only=True):
    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: str = "PULL"


class QueryAssignmentResult(Body, kw_only=True):
    """None leaves the consumer what it has, an empty list takes everything from it."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestMode(Body, kw_only=True):
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0
    topic: str = ""


class BatchAck(Body, kw_only=True):
    """Acks of one pop of one queue: bit i of the little-endian set is the offset `start_offset` + i."""

    bit_set: str = field(default="", name="b")
    consumer_group: str = field(default="", name="c")
    invisible_time: int = field(default=0, name="it")
    pop_time: int = field(default=0, name="pt")
    queue_id: int = field(default=0, name="q")
    retry: str = field(default="0", name="r")
    revive_queue_id: int = field(default=0, name="rq")
    start_offset: int = field(default=0, name="so")
    topic: str = field(default="", name="t")

    def offsets(self) -> list[int]:
        """The acknowledged offsets. Raises `BodyError` if the set is no base64."""
        try:
            bits = base64.b64decode(self.bit_set, validate=True)
        except ValueError as wrong:
            raise BodyError(f"the set of acks {self.bit_set[:40]!r} is no base64: {wrong}") from wrong
        return [self.start_offset + index for index in range(len(bits) * 8) if bits[index >> 3] >> (index & 7) & 1]


class BatchAckMessage(Body, kw_only=True):
    acks: list[BatchAck] = []
    broker_name: str | None = None


# Java reads the long names as well.
_LONG_NAMES = {
    "bitSet": "b",
    "consumerGroup": "c",
    "invisibleTime": "it",
    "popTime": "pt",
    "queueId": "q",
    "retry": "r",
    "reviveQueueId": "rq",
    "startOffset": "so",
    "topic": "t",
}


def decode_batch_ack(data: bytes) -> BatchAckMessage:
    """The body of BATCH_ACK_MESSAGE, its members under their short or their long names."""
    value = fastjson.loads(data)
    acks = value.get("acks") if isinstance(value, dict) else None
    if isinstance(acks, list):
        value["acks"] = [
            {_LONG_NAMES.get(name, name): member for name, member in ack.items()} if isinstance(ack, dict) else ack
            for ack in acks
        ]
    message: BatchAckMessage = fastjson.as_type(value, BatchAckMessage)
    return message


class ResetOffsetBody(Body, kw_only=True):
    offset_table: dict[MessageQueue, int] = {}


class ResetOffsetEntry(Body, kw_only=True):
    broker_name: str = ""
    offset: int = 0
    queue_id: int = 0
    topic: str = ""


class ResetOffsetBodyForC(Body, kw_only=True):
    """The form of `ResetOffsetBody` for a client whose language is CPP."""

    offset_table: list[ResetOffsetEntry] = []


class GetConsumerStatusBody(Body, kw_only=True):
    consumer_table: dict[str, dict[MessageQueue, int]] = {}
    message_queue_table: dict[MessageQueue, int] = {}


class ProcessQueueInfo(Body, kw_only=True):
    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: int = 0
    droped: bool = False  # Apache's own spelling
    last_consume_timestamp: int = 0
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class PopProcessQueueInfo(Body, kw_only=True):
    droped: bool = False
    last_pop_timestamp: int = 0
    wait_ack_count: int = 0


class ConsumeStatus(Body, kw_only=True):
    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body, kw_only=True):
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []
    user_consumer_info: dict[str, Any] = {}


class ConsumeMessageDirectlyResult(Body, kw_only=True):
    auto_commit: bool = True
    consume_result: str | int | None = None  # Go sends the ordinal
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0

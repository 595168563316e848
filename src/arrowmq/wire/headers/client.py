"""Headers between clients and brokers: send, pull, offsets, registration, transactions, and the broker's calls back."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from arrowmq.wire.headers.declare import Header, Int32, RpcHeader, TopicHeader, decode_header, encode_header

# Sending ------------------------------------------------------------------------------------------------------------


class SendMessage(TopicHeader, kw_only=True):
    """SEND_MESSAGE, SEND_REPLY_MESSAGE; with one-letter names (`from_v2_ext`) the V2 codes and SEND_BATCH_MESSAGE."""

    producer_group: str = ""  # required in name only: the Apache broker takes sends without it
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int32 = 4
    queue_id: Int32
    sys_flag: Int32 = 0
    born_timestamp: int
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None

    @classmethod
    def from_v2_ext(cls, ext: Mapping[str, str]) -> SendMessage:
        """Reads the form of the V2 codes."""
        return decode_header(cls, {name: ext[letter] for name, letter in V2_LETTERS.items() if letter in ext})

    def to_v2_ext(self) -> dict[str, str]:
        """Writes the form of the V2 codes."""
        ext = encode_header(self)
        return {letter: ext[name] for name, letter in V2_LETTERS.items() if name in ext}


V2_LETTERS = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}


class SendMessageV2(Header, kw_only=True):
    """The V2 form field by field, for tools that show headers as they travel; services use `SendMessage`."""

    a: str = ""
    b: str
    c: str = "TBW102"
    d: Int32 = 4
    e: Int32
    f: Int32 = 0
    g: int
    h: Int32 = 0
    i: str | None = None
    j: Int32 | None = None
    k: bool | None = None
    l: Int32 | None = None  # noqa: E741
    m: bool | None = None
    n: str | None = None


class SendMessageResult(Header, kw_only=True):
    """Java clients fail without `queueId` and `queueOffset`, and take the commit log offset out of `msgId`."""

    msg_id: str
    queue_id: Int32
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    trace_on: bool | None = field(default=None, name="TRACE_ON")
    msg_region: str | None = field(default=None, name="MSG_REGION")


class ReplyMessage(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the broker hands the answer of a request-reply call to the one who asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: int
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: int


class RecallMessage(TopicHeader, kw_only=True):
    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResult(Header, kw_only=True):
    msg_id: str
    msg_region: str | None = field(default=None, name="MSG_REGION")


# Pulling ------------------------------------------------------------------------------------------------------------


class PullMessage(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: int
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: int
    suspend_timeout_millis: int
    subscription: str | None = None
    sub_version: int
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None  # Apache's own spelling


class PullMessageResult(Header, kw_only=True):
    """Clients compute with the first four on every answer to a pull, found or not."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


# Offsets ------------------------------------------------------------------------------------------------------------


class QueryConsumerOffset(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResult(Header, kw_only=True):
    offset: int


class UpdateConsumerOffset(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: int


class SearchOffset(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32
    timestamp: int
    boundary_type: str | None = None  # LOWER (the default) or UPPER, in any case


class SearchOffsetResult(Header, kw_only=True):
    offset: int


class GetMaxOffset(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32
    committed: bool | None = None


class GetMaxOffsetResult(Header, kw_only=True):
    offset: int


class GetMinOffset(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32


class GetMinOffsetResult(Header, kw_only=True):
    offset: int


class GetEarliestMsgStoretime(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResult(Header, kw_only=True):
    timestamp: int


# Registration and rebalance -----------------------------------------------------------------------------------------


class Heartbeat(RpcHeader, kw_only=True):
    """HEART_BEAT; what matters is in its body."""


class HeartbeatResult(Header, kw_only=True):
    is_support_heart_beat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClient(RpcHeader, kw_only=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroup(RpcHeader, kw_only=True):
    consumer_group: str


class NotifyConsumerIdsChanged(RpcHeader, kw_only=True):
    consumer_group: str


class LockBatchMq(RpcHeader, kw_only=True):
    """LOCK_BATCH_MQ; the queues are in its body."""


class UnlockBatchMq(RpcHeader, kw_only=True):
    """UNLOCK_BATCH_MQ; the queues are in its body."""


# Retry and transactions ---------------------------------------------------------------------------------------------


class ConsumerSendMsgBack(RpcHeader, kw_only=True):
    offset: int
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


class EndTransaction(RpcHeader, kw_only=True):
    topic: str | None = None  # Go sends none
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: Int32
    from_transaction_check: bool | None = None
    msg_id: str = ""
    transaction_id: str | None = None


class CheckTransactionState(RpcHeader, kw_only=True):
    topic: str | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


# Query --------------------------------------------------------------------------------------------------------------


class QueryMessage(TopicHeader, kw_only=True):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: int
    end_timestamp: int
    index_type: str | None = None  # K, U or T: key, unique id, tag; newer clients only
    last_key: str | None = None
    unique_key_query: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResult(Header, kw_only=True):
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewMessage(RpcHeader, kw_only=True):
    topic: str | None = None
    offset: int


# The broker asks a client -------------------------------------------------------------------------------------------


class ResetOffset(TopicHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET which the broker makes of it."""

    topic: str
    group: str
    queue_id: Int32 | None = None  # -1: every queue
    offset: int | None = None
    timestamp: int  # -1: to the end
    is_force: bool = False


class GetConsumerStatus(TopicHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and GET_CONSUMER_STATUS_FROM_CLIENT which the broker makes of it."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfo(RpcHeader, kw_only=True):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectly(TopicHeader, kw_only=True):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None

"""Message properties: the text `name 0x01 value 0x02 name 0x01 value 0x02 …`, and the names RocketMQ reserves.

Reading follows the Java client, which others copy: an item ends at 0x02 or at the end of the text, its first 0x01
separates name and value, and an item without a name or without a value is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_END = "\x01"
VALUE_END = "\x02"
MAX_BYTES = 32767  # the record has a signed 16-bit length for them

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
PRIORITY = "_SYS_MSG_PRIORITY_"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

# Of a message that is to be delivered at a time; brokers know them from 5.0 on.
TIMERS = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})

# What a Java client does not let a user set.
RESERVED = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID,
        ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, MSG_REGION, TRACE_ON, UNIQ_KEY,
        EXTEND_UNIQ_INFO, MAX_RECONSUME_TIMES, CONSUME_START_TIME, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME,
        TRAN_PREPARED_QUEUE_OFFSET, DUP_INFO, INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME,
        PUSH_REPLY_TIME, CLUSTER, MSG_TYPE, INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS,
        TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DEL_UNIQKEY, TIMER_DELAY_LEVEL,
        BORN_HOST, BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, CRC32,
    }
)  # fmt: skip


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of `properties`, as send headers carry it."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of `properties`, as records and batch items carry them."""
    return properties_text(properties).encode("utf-8", "replace")


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a text; of a name given twice the last value counts."""
    found: dict[str, str] = {}
    for item in text.split("\x02"):
        name, separator, value = item.partition("\x01")
        if separator and name and value:
            found[name] = value
    return found


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties of a record's bytes. Bytes that are no UTF-8 become U+FFFD, as Java reads them."""
    return parse_properties(str(data, "utf-8", "replace"))


def are_well_formed(data: bytes | bytearray | memoryview) -> bool:
    """Whether the bytes can have been written by a RocketMQ: items `name 0x01 value`, UTF-8, no zero byte.

    Records have no checksum over their properties, so this is what tells a record torn there from a whole one.
    """
    raw = bytes(data)
    if b"\x00" in raw:
        return False
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(b"\x01" in item for item in raw.removesuffix(b"\x02").split(b"\x02")) if raw else True

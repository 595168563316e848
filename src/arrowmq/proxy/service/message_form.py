"""A message in both forms: the protocol's `Message`, and RocketMQ's properties and records.

Bodies that senders of the older protocol have compressed are unpacked here: the protocol knows only gzip, which such
bodies are not, and not every client looks twice.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re

from google.protobuf.timestamp_pb2 import Timestamp

from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.service import validation
from arrowmq.remoting.address import format_address
from arrowmq.wire import properties as prop
from arrowmq.wire import sysflag
from arrowmq.wire.errors import BodyError
from arrowmq.wire.headers.pop import Receipt
from arrowmq.wire.records import Record

LITE_TOPIC = "__LITE_TOPIC"
PRIORITY = "_SYS_MSG_PRIORITY_"
_MAX_SECONDS = 253402300799  # the year 9999: the last that a Timestamp may name
_LEVEL = re.compile(r"(\d+)([smhd])")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


# --- from a client -------------------------------------------------------------------------------------------------


def properties_of(config: ProxyConfig, message: v2.Message, born_host: str, now_ms: int) -> dict[str, str]:
    """What a record of this message carries. Checks what a client may set; raises `Fault`."""
    system = message.system_properties
    properties = dict(message.user_properties)
    keys = list(system.keys)
    validation.check_properties(config, properties, system.tag, keys)
    if system.tag:
        properties[prop.TAGS] = system.tag
    if keys:
        properties[prop.KEYS] = " ".join(keys)
    if not system.message_id.strip():
        raise Fault(v2.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    properties[prop.UNIQ_KEY] = system.message_id
    if system.message_type == v2.TRANSACTION:
        properties[prop.TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            if 0 < config.max_transaction_recovery_second < seconds:
                raise Fault(
                    v2.BAD_REQUEST,
                    "the max transaction recovery time of message is too large, "
                    f"max is {config.max_transaction_recovery_second}",
                )
            properties[prop.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    if system.HasField("delivery_timestamp"):
        _set_delivery(config, properties, millis_of(system.delivery_timestamp), now_ms)
    properties[prop.RECONSUME_TIME] = str(system.delivery_attempt)
    properties[prop.PGROUP] = message.topic.name
    if system.message_group:
        validation.check_message_group(config, system.message_group)
        properties[prop.SHARDING_KEY] = system.message_group
    if system.trace_context:
        properties[prop.TRACE_CONTEXT] = system.trace_context
    host = system.born_host if system.born_host.strip() else born_host
    if host:
        properties[prop.BORN_HOST] = host
    properties[prop.BORN_TIMESTAMP] = str(millis_of(system.born_timestamp))
    return properties


def _set_delivery(config: ProxyConfig, properties: dict[str, str], deliver_ms: int, now_ms: int) -> None:
    if 0 < config.max_delay_time_mills < deliver_ms - now_ms:
        raise Fault(
            v2.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {config.max_delay_time_mills}",
        )
    if config.use_delay_level:
        properties[prop.DELAY] = str(delay_level(config.message_delay_level, deliver_ms - now_ms))
    properties[prop.TIMER_DELIVER_MS] = str(deliver_ms)


def delay_level(table: str, delay_ms: int) -> int:
    """The first level that is longer than the wait, else the last."""
    levels = _LEVEL.findall(table)
    for number, (amount, unit) in enumerate(levels, 1):
        if int(amount) * _UNIT_MS[unit] > delay_ms:
            return number
    return len(levels)


def sys_flag_of(message: v2.Message) -> int:
    flag = 0
    if message.system_properties.body_encoding == v2.GZIP:
        flag |= sysflag.COMPRESSED
    if message.system_properties.message_type == v2.TRANSACTION:
        flag |= sysflag.TRANSACTION_PREPARED
    return flag


def millis_of(timestamp: Timestamp) -> int:
    return timestamp.seconds * 1000 + timestamp.nanos // 1_000_000


def kind_of(properties: dict[str, str]) -> int:
    """What a message is, by its properties."""
    if properties.get(prop.TRAN_MSG) == "true":
        return v2.TRANSACTION
    if prop.DELAY in properties or prop.TIMER_DELIVER_MS in properties or prop.TIMER_DELAY_SEC in properties:
        return v2.DELAY
    if prop.SHARDING_KEY in properties:
        return v2.FIFO
    return v2.NORMAL


# --- to a client ---------------------------------------------------------------------------------------------------


def message_of(record: Record, topic: str, receipt: Receipt | None, reconsume_times: int, now_ms: int) -> v2.Message:
    """What a client is given of a record."""
    properties = record.properties
    message = v2.Message()
    message.topic.name = topic
    user = message.user_properties
    for name, value in properties.items():
        if name not in prop.RESERVED:
            user[name] = value
    try:
        body = record.decompressed_body()
        encoding = v2.IDENTITY
    except BodyError:
        body, encoding = record.body, v2.GZIP  # the client may know better
    message.body = body
    system = message.system_properties
    if (tag := properties.get(prop.TAGS)) is not None:
        system.tag = tag
    if keys := properties.get(prop.KEYS):
        system.keys.extend(keys.split(" "))
    system.message_id = properties.get(prop.UNIQ_KEY) or record.offset_msg_id
    system.body_digest.type = v2.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = kind_of(properties)  # type: ignore[assignment]
    set_millis(system.born_timestamp, record.born_timestamp)
    system.born_host = properties.get(prop.BORN_HOST) or host_text(record.born_host[0])
    set_millis(system.store_timestamp, record.store_timestamp)
    system.store_host = format_address(host_text(record.store_host[0]), record.store_host[1])
    if (delay := properties.get(prop.TIMER_DELAY_SEC)) is not None and delay.isdigit():
        set_millis(system.delivery_timestamp, now_ms + int(delay) * 1000)
    elif (deliver := properties.get(prop.TIMER_DELIVER_MS)) is not None and deliver.isdigit():
        set_millis(system.delivery_timestamp, int(deliver))
    if (group := properties.get(prop.SHARDING_KEY)) is not None:
        system.message_group = group
    if receipt is not None:
        system.receipt_handle = receipt.encode()
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = reconsume_times + 1
    if (trace := properties.get(prop.TRACE_CONTEXT)) is not None:
        system.trace_context = trace
    dead_topic, dead_id = properties.get(prop.DLQ_ORIGIN_TOPIC), properties.get(prop.DLQ_ORIGIN_MESSAGE_ID)
    if dead_topic is not None and dead_id is not None:
        system.dead_letter_queue.topic = dead_topic
        system.dead_letter_queue.message_id = dead_id
    if (lite := properties.get(LITE_TOPIC)) is not None:
        system.lite_topic = lite
    return message


def set_millis(timestamp: Timestamp, millis: int) -> None:
    timestamp.seconds = min(millis // 1000, _MAX_SECONDS)
    timestamp.nanos = millis % 1000 * 1_000_000


def host_text(ip: bytes) -> str:
    return ".".join(map(str, ip)) if len(ip) == 4 else str(ipaddress.ip_address(ip))

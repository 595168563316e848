"""What names, sizes and times a client may use. The sentences are those of Apache's proxy: users search for them."""

from __future__ import annotations

import re

from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2

MAX_TOPIC = 127
MAX_GROUP = 120
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SYSTEM_TOPICS = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    }
)  # fmt: skip
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


def check_topic(topic: str) -> None:
    if not topic.strip():
        raise Fault(v2.ILLEGAL_TOPIC, "The specified topic is blank")
    if len(topic) > MAX_TOPIC:
        raise Fault(v2.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {MAX_TOPIC}.")
    if not _LEGAL.fullmatch(topic):
        raise Fault(
            v2.ILLEGAL_TOPIC,
            f"The specified topic[{topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_TOPIC_PREFIX):
        raise Fault(v2.ILLEGAL_TOPIC, "cannot access system topic")


def check_group(group: str) -> None:
    if not group.strip():
        raise Fault(v2.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if len(group) > MAX_GROUP:
        raise Fault(
            v2.ILLEGAL_CONSUMER_GROUP, f"the specified group[{group}] is longer than group max length: {MAX_GROUP}."
        )
    if not _LEGAL.fullmatch(group):
        raise Fault(
            v2.ILLEGAL_CONSUMER_GROUP,
            f"the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if group.startswith(_SYSTEM_GROUP_PREFIX):
        raise Fault(v2.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")


def has_control_character(text: str) -> bool:
    return _CONTROL.search(text) is not None


def check_invisible(config: ProxyConfig, invisible_ms: int, least_ms: int = 0) -> None:
    if invisible_ms < least_ms:
        raise Fault(v2.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least_ms}")
    most = config.max_invisible_time_mills
    if 0 < most < invisible_ms:
        raise Fault(v2.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {most}")


def check_tag(tag: str) -> None:
    if not tag:
        return
    if not tag.strip():
        raise Fault(v2.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace")
    if "|" in tag:
        raise Fault(v2.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if has_control_character(tag):
        raise Fault(v2.ILLEGAL_MESSAGE_TAG, "tag cannot contain control character")


def check_key(key: str) -> None:
    if not key:
        return
    if not key.strip():
        raise Fault(v2.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
    if has_control_character(key):
        raise Fault(v2.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")


def check_message_group(config: ProxyConfig, group: str) -> None:
    if not group.strip():
        raise Fault(v2.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace")
    most = config.max_message_group_size
    if 0 < most <= len(group.encode()):
        raise Fault(v2.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {most}")
    if has_control_character(group):
        raise Fault(v2.ILLEGAL_MESSAGE_GROUP, "message group cannot contain control character")


def check_body(config: ProxyConfig, body: bytes) -> None:
    if config.enable_message_body_empty_check and not body:
        raise Fault(v2.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    most = config.max_message_size
    if 0 < most < len(body):
        raise Fault(v2.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {most}")


def check_properties(config: ProxyConfig, properties: dict[str, str], tag: str, keys: list[str]) -> None:
    """The user's own properties, then tag and keys, which count with them."""
    from arrowmq.wire.properties import RESERVED

    if len(properties) > config.user_property_max_num:
        raise Fault(v2.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {config.user_property_max_num}")
    size = 0
    for name, value in properties.items():
        if name in RESERVED:
            raise Fault(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if has_control_character(name):
            raise Fault(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, "the key of property cannot contain control character")
        if has_control_character(value):
            raise Fault(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, "the value of property cannot contain control character")
        size += len(name.encode()) + len(value.encode())
    check_tag(tag)
    size += len(tag.encode())
    for key in keys:
        check_key(key)
        size += len(key.encode())
    if size > config.max_user_property_size:
        raise Fault(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {config.max_user_property_size}",
        )

"""Names: which topics and groups are allowed, what retry and dead-letter topics are called, namespaces, client ids."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from arrowmq.client.errors import InvalidName
from arrowmq.remoting.address import own_address

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TOPIC_LENGTH_LIMIT = 127
GROUP_LENGTH_LIMIT = 120
LONG_TOPIC_LENGTH_LIMIT = 255

AUTO_CREATE_TOPIC = "TBW102"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
#: Topics of the broker's own book-keeping, which no client may send to.
NOT_FOR_SENDING = frozenset(
    {
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
#: Groups that the Java client starts with and then refuses, as everybody would share them.
REFUSED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})
CLIENT_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
#: Groups that every broker has, for its own needs and for tools.
SYSTEM_GROUPS = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CLIENT_INNER_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
    }
)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    limit = LONG_TOPIC_LENGTH_LIMIT if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_LENGTH_LIMIT
    _check("topic", topic, limit)


def check_topic_for_sending(topic: str) -> None:
    check_topic(topic)
    if topic in NOT_FOR_SENDING:
        raise InvalidName(f"topic {topic} belongs to the broker's own book-keeping; send to a topic of your own")


def check_group(group: str) -> None:
    _check("group", group, GROUP_LENGTH_LIMIT)
    if group in REFUSED_GROUPS:
        raise InvalidName(f"group {group} is RocketMQ's placeholder for no group; choose a name of your own")


def _check(kind: str, name: str, limit: int) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InvalidName(f"a {kind} needs a name, not {name!r}")
    if len(name) > limit:
        raise InvalidName(f"{kind} {name[:40]}… has {len(name)} characters, RocketMQ allows {limit}")
    if not _LEGAL.fullmatch(name):
        raise InvalidName(f"{kind} {name!r} has characters other than %|a-zA-Z0-9_-, which RocketMQ does not allow")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


@dataclass(frozen=True, slots=True)
class Namespace:
    """Old-style namespaces: a name `orders` is `ns%orders` on the wire, a retry topic `%RETRY%ns%group`."""

    name: str = ""

    def wrap(self, resource: str) -> str:
        if not self.name or is_system_topic(resource) or resource.startswith(SYSTEM_GROUP_PREFIX):
            return resource
        prefix, bare = split_prefix(resource)
        if bare.startswith(f"{self.name}%"):
            return resource
        return f"{prefix}{self.name}%{bare}"

    def unwrap(self, resource: str) -> str:
        if not self.name:
            return resource
        prefix, bare = split_prefix(resource)
        return prefix + bare.removeprefix(f"{self.name}%")


def split_prefix(resource: str) -> tuple[str, str]:
    """`%RETRY%group` → (`%RETRY%`, `group`); a plain name has an empty prefix."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


def client_id(*, instance_name: str = "", unit_name: str = "", is_stream: bool = False, ip: str = "") -> str:
    """`ip@instance[@unit][@STREAM]`. Without an instance name it is unique, so that two clients never pass for one."""
    instance = instance_name or f"{os.getpid()}#{time.monotonic_ns()}"
    parts = [ip or own_address(), instance]
    if unit_name:
        parts.append(unit_name)
    if is_stream:
        parts.append("STREAM")
    return "@".join(parts)

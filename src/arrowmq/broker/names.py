"""Names that mean something to a broker: system topics, built-in groups, and what a legal name is."""

from __future__ import annotations

import re

from arrowmq.broker.settings.config import BrokerConfig

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SLAVE = "SLAVE"  # a brokerRole: takes what its master has, and delivers nothing by itself

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
    }
)

# The broker writes these itself; a client's message in one of them would be taken for one of its own.
SEND_FORBIDDEN_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)

BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

SYSTEM_GROUPS = frozenset(
    {
        *BUILT_IN_GROUPS,
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
    }
)

TOPIC_MAX_LENGTH = 127
RETRY_TOPIC_MAX_LENGTH = 255
GROUP_MAX_LENGTH = 120
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_retry_or_dlq(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def topic_fault(topic: str | None) -> str | None:
    """Why a topic name cannot be used, in Apache's words, or None."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    limit = RETRY_TOPIC_MAX_LENGTH if is_retry_or_dlq(topic) else TOPIC_MAX_LENGTH
    if len(topic) > limit:
        return f"The specified topic: {topic}, is longer than topic max length: {limit}"
    return None


def group_fault(group: str | None) -> str | None:
    """Why a group name cannot be used, in Apache's words, or None."""
    if group is None or not group.strip():
        return "The specified group is blank."
    if not _LEGAL.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > GROUP_MAX_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {GROUP_MAX_LENGTH}"
    return None


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    return f"rmq_sys_REVIVE_LOG_{cluster}"


def built_in_topics(config: BrokerConfig) -> dict[str, tuple[int, int]]:
    """Topics made at every start: name -> (queues, permission)."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    topics = {
        SELF_TEST_TOPIC: (1, 6),
        BENCHMARK_TOPIC: (1024, 6),
        cluster: (16, 7 if config.cluster_topic_enable else 1),
        broker: (1, 7 if config.broker_topic_enable else 1),
        OFFSET_MOVED_TOPIC: (1, 6),
        SCHEDULE_TOPIC: (len(config.message_delay_level.split()), 6),
        reply_topic(cluster): (1, 6),
        revive_topic(cluster): (config.revive_queue_num, 6),
        f"rmq_sys_SYNC_BROKER_MEMBER_{broker}": (1, 1),
        HALF_TOPIC: (1, 6),
        OP_HALF_TOPIC: (1, 6),
    }
    if config.auto_create_topic_enable:
        topics[AUTO_CREATE_TOPIC] = (config.default_topic_queue_nums, 7)
    if config.trace_topic_enable:
        topics[config.msg_trace_topic_name] = (1, 6)
    if config.timer_wheel_enable:
        topics[TIMER_TOPIC] = (1, 6)
    return topics


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in built_in_topics(config)

"""Bodies of administration: statistics, connections, consume queues, users and access lists."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

from msgspec import field

from arrowmq.wire.bodies.clients import SubscriptionData
from arrowmq.wire.bodies.declare import Body, DataVersion
from arrowmq.wire.message_queue import MessageQueue


class TopicOffset(Body, kw_only=True):
    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


class TopicStatsTable(Body, kw_only=True):
    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(Body, kw_only=True):
    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0


class InFlight(Body, kw_only=True):
    """Messages of one pop of one queue that are not acknowledged. ArrowMQ's own."""

    topic: str = ""
    queue_id: int = 0
    offsets: list[int] = []
    client: str = ""
    pop_time: int = 0
    visible_at: int = 0
    in_order: bool = False


class ConsumeStats(Body, kw_only=True):
    # ArrowMQ's own, which Apache's tools pass over: what is popped and not acknowledged, the oldest of it, and how many
    arrowmq_in_flight: list[InFlight] | None = None
    arrowmq_in_flight_total: int | None = None
    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = {}


class ConsumeStatsList(Body, kw_only=True):
    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: int = 0
    total_inflight_diff: int = 0


class Connection(Body, kw_only=True):
    client_addr: str = ""
    client_id: str = ""
    language: str | None = None
    version: int = 0


class ConsumerConnection(Body, kw_only=True):
    connection_set: list[Connection] = []
    consume_from_where: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class ProducerConnection(Body, kw_only=True):
    connection_set: list[Connection] = []


class ProducerInfo(Body, kw_only=True):
    client_id: str = ""
    language: str | None = None
    last_update_timestamp: int = 0
    remote_ip: str = field(default="", name="remoteIP")
    version: int = 0


class ProducerTableInfo(Body, kw_only=True):
    data: dict[str, list[ProducerInfo]] = {}


class GroupList(Body, kw_only=True):
    group_list: list[str] = []


class QuerySubscriptionResult(Body, kw_only=True):
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


class QueueTimeSpan(Body, kw_only=True):
    consume_time_stamp: int = 0
    consume_time_stamp_str: str | None = None
    delay_time: int = 0
    delay_time_str: str | None = None
    max_time_stamp: int = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    min_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    consume_time_span_set: list[QueueTimeSpan] = []


class QueryCorrectionOffsetBody(Body, kw_only=True):
    correction_offsets: dict[int, int] = {}


class BrokerStatsItem(Body, kw_only=True):
    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body, kw_only=True):
    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0


class QueryConsumeQueueBody(Body, kw_only=True):
    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueData] = []
    subscription_data: SubscriptionData | None = None


class UserInfo(Body, kw_only=True):
    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class PolicyEntryInfo(Body, kw_only=True):
    actions: list[str] = []
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body, kw_only=True):
    entries: list[PolicyEntryInfo] = []
    policy_type: str | None = None


class AclInfo(Body, kw_only=True):
    policies: list[PolicyInfo] = []
    subject: str | None = None


class TimerMetric(Body, kw_only=True):
    count: int = 0
    time_stamp: int = 0


class TimerMetrics(Body, kw_only=True):
    """Answer to GET_TIMER_METRICS and the content of the file timermetrics."""

    data_version: DataVersion | None = None
    timing_count: dict[str, TimerMetric] = {}

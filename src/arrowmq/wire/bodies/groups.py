"""Bodies that describe subscription groups and their offsets."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

from msgspec import field

from arrowmq.wire.bodies.clients import SetMessageRequestMode
from arrowmq.wire.bodies.declare import Body, DataVersion


class CustomizedRetryPolicy(Body, kw_only=True):
    next: list[int] = []


class ExponentialRetryPolicy(Body, kw_only=True):
    initial: int = 5000
    max: int = 7200000
    multiplier: int = 2


class GroupRetryPolicy(Body, kw_only=True):
    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: str = "CUSTOMIZED"


class SimpleSubscriptionData(Body, kw_only=True):
    expression: str | None = None
    expression_type: str | None = None
    topic: str = ""
    version: int = 0


class SubscriptionGroupConfig(Body, kw_only=True):
    attributes: dict[str, str] = {}
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_name: str = ""
    group_retry_policy: GroupRetryPolicy | None = field(default_factory=GroupRetryPolicy)
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: int = 1


class SubscriptionGroupWrapper(Body, kw_only=True):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class SubscriptionGroupList(Body, kw_only=True):
    group_config_list: list[SubscriptionGroupConfig] = []


class GroupForbidden(Body, kw_only=True):
    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class ConsumerOffsetTable(Body, kw_only=True):
    """`topic@group` → queue → offset: answer to GET_ALL_CONSUMER_OFFSET and the content of consumerOffset.json."""

    data_version: DataVersion | None = None
    group_topic_map: dict[str, list[str]] | None = None
    offset_table: dict[str, dict[int, int]] = {}
    pull_offset_table: dict[str, dict[int, int]] | None = None


class DelayOffsetTable(Body, kw_only=True):
    """Delay level → offset: answer to GET_ALL_DELAY_OFFSET and the content of delayOffset.json."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = {}


class MessageRequestModeTable(Body, kw_only=True):
    """Topic → group → mode: answer to GET_ALL_MESSAGE_REQUEST_MODE."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestMode]] = {}

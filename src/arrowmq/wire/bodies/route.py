"""Bodies of NameServers: routes, registration, clusters, key-value tables."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

from msgspec import field

from arrowmq.wire.bodies.declare import Body, DataVersion
from arrowmq.wire.bodies.topics import TopicConfigSerializeWrapper, TopicQueueMappingInfo


class QueueData(Body, kw_only=True):
    broker_name: str = ""
    perm: int = 0
    read_queue_nums: int = 0
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class BrokerData(Body, kw_only=True):
    broker_addrs: dict[int, str] = {}  # broker id → address; id 0 is the master
    broker_name: str = ""
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body, kw_only=True):
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class RegisterBrokerBody(Body, kw_only=True):
    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)


class ClusterInfo(Body, kw_only=True):
    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body, kw_only=True):
    broker_addrs: dict[int, str] = {}
    broker_name: str | None = None
    cluster: str | None = None


class GetBrokerMemberGroupBody(Body, kw_only=True):
    broker_member_group: BrokerMemberGroup | None = None


class KVTable(Body, kw_only=True):
    """Answers to GET_KVLIST_BY_NAMESPACE, REGISTER_BROKER and GET_BROKER_RUNTIME_INFO."""

    table: dict[str, str] = {}


class TopicList(Body, kw_only=True):
    broker_addr: str | None = None
    topic_list: list[str] = []


__all__ = [
    "BrokerData",
    "BrokerMemberGroup",
    "ClusterInfo",
    "DataVersion",
    "GetBrokerMemberGroupBody",
    "KVTable",
    "QueueData",
    "RegisterBrokerBody",
    "TopicList",
    "TopicRouteData",
]

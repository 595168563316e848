"""Headers of requests to a NameServer: routes, registration of brokers, key-value configuration."""

from __future__ import annotations

from msgspec import field

from arrowmq.wire.headers.declare import Header, Int32, RpcHeader, TopicHeader


class GetRouteInfo(TopicHeader, kw_only=True):
    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBroker(Header, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: int
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int32 | None = None
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerResult(Header, kw_only=True):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBroker(Header, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersion(Header, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionResult(Header, kw_only=True):
    changed: bool


class BrokerHeartbeat(Header, kw_only=True):
    """To a NameServer the first three; a controller gets all."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None


class RegisterTopic(RpcHeader, kw_only=True):
    topic: str


class GetBrokerMemberGroup(Header, kw_only=True):
    cluster_name: str
    broker_name: str


class PutKVConfig(Header, kw_only=True):
    namespace: str
    key: str
    value: str


class GetKVConfig(Header, kw_only=True):
    namespace: str
    key: str


class GetKVConfigResult(Header, kw_only=True):
    value: str | None = None


class DeleteKVConfig(Header, kw_only=True):
    namespace: str
    key: str


class GetKVListByNamespace(Header, kw_only=True):
    namespace: str


class WipeWritePermOfBroker(Header, kw_only=True):
    broker_name: str


class WipeWritePermOfBrokerResult(Header, kw_only=True):
    wipe_topic_count: Int32


class AddWritePermOfBroker(Header, kw_only=True):
    broker_name: str


class AddWritePermOfBrokerResult(Header, kw_only=True):
    add_topic_count: int


class GetTopicsByCluster(Header, kw_only=True):
    cluster: str


class DeleteTopicFromNamesrv(TopicHeader, kw_only=True):
    topic: str
    cluster_name: str | None = None

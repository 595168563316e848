"""Headers of administration requests to a broker, as mqadmin and the dashboard send them."""

from __future__ import annotations

from arrowmq.wire.headers.declare import Header, Int32, RpcHeader, TopicHeader

# Topics -------------------------------------------------------------------------------------------------------------


class CreateTopic(TopicHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC and, with a mapping in its body, UPDATE_AND_CREATE_STATIC_TOPIC."""

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None  # `+key=value,-key`
    force: bool | None = None


class CreateTopicList(RpcHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST; the topics are in its body."""


class DeleteTopic(TopicHeader, kw_only=True):
    topic: str


class GetAllTopicConfig(Header, kw_only=True):
    topic_seq: int | None = None  # old clients ask without any field, and get everything
    data_version: str | None = None
    max_topic_num: int | None = None


class GetAllTopicConfigResult(Header, kw_only=True):
    total_topic_num: int | None = None


class GetTopicConfig(TopicHeader, kw_only=True):
    topic: str


class GetTopicStatsInfo(TopicHeader, kw_only=True):
    topic: str


# Groups -------------------------------------------------------------------------------------------------------------


class DeleteSubscriptionGroup(RpcHeader, kw_only=True):
    group_name: str
    clean_offset: bool | None = None


class GetAllSubscriptionGroup(Header, kw_only=True):
    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


class GetAllSubscriptionGroupResult(Header, kw_only=True):
    total_group_num: int | None = None


class GetSubscriptionGroupConfig(RpcHeader, kw_only=True):
    group: str


class UpdateGroupForbidden(TopicHeader, kw_only=True):
    group: str
    topic: str
    readable: bool | None = None


class GetConsumeStats(TopicHeader, kw_only=True):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # names, each followed by a semicolon

    def topics(self) -> list[str]:
        """The topics asked for; empty means all of the group's."""
        asked = [name for name in (self.topic_list or "").split(";") if name]
        return asked or ([self.topic] if self.topic else [])


class GetConsumeStatsInBroker(RpcHeader, kw_only=True):
    is_order: bool = False


class GetConsumerConnectionList(RpcHeader, kw_only=True):
    consumer_group: str


class GetProducerConnectionList(RpcHeader, kw_only=True):
    producer_group: str


class QueryTopicConsumeByWho(TopicHeader, kw_only=True):
    topic: str


class QueryTopicsByConsumer(RpcHeader, kw_only=True):
    group: str


class QuerySubscriptionByConsumer(TopicHeader, kw_only=True):
    group: str
    topic: str | None = None


class QueryConsumeTimeSpan(TopicHeader, kw_only=True):
    topic: str
    group: str


class QueryCorrectionOffset(TopicHeader, kw_only=True):
    compare_group: str
    topic: str
    filter_groups: str | None = None  # separated by commas


class CloneGroupOffset(TopicHeader, kw_only=True):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


# Broker -------------------------------------------------------------------------------------------------------------


class GetBrokerConfigResult(Header, kw_only=True):
    version: str  # a DataVersion as JSON


class ViewBrokerStatsData(RpcHeader, kw_only=True):
    stats_name: str
    stats_key: str


class QueryConsumeQueue(TopicHeader, kw_only=True):
    topic: str
    queue_id: Int32
    index: int
    count: int
    consumer_group: str | None = None


class ResumeCheckHalfMessage(TopicHeader, kw_only=True):
    topic: str | None = None
    msg_id: str


class ExportRocksDBConfigToJson(RpcHeader, kw_only=True):
    config_type: str | None = None


class CheckRocksdbCqWriteProgress(TopicHeader, kw_only=True):
    topic: str | None = None
    check_store_time: int | None = None


class PopRollback(TopicHeader, kw_only=True):
    """POP_ROLLBACK has no field of its own."""


# Users and access lists ---------------------------------------------------------------------------------------------


class CreateUser(RpcHeader, kw_only=True):
    username: str | None = None


class UpdateUser(RpcHeader, kw_only=True):
    username: str | None = None


class DeleteUser(RpcHeader, kw_only=True):
    username: str | None = None


class GetUser(RpcHeader, kw_only=True):
    username: str | None = None


class ListUsers(RpcHeader, kw_only=True):
    filter: str | None = None


class CreateAcl(RpcHeader, kw_only=True):
    subject: str | None = None


class UpdateAcl(RpcHeader, kw_only=True):
    subject: str | None = None


class DeleteAcl(RpcHeader, kw_only=True):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAcl(RpcHeader, kw_only=True):
    subject: str | None = None


class ListAcls(RpcHeader, kw_only=True):
    subject_filter: str | None = None
    resource_filter: str | None = None

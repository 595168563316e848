"""What each request needs: a table from request code to the rights that its user must have.

A row is Apache's annotation of the request where that says something. Where Apache asks for nothing although the
request reads or changes something (marked so below), this table does: the request's nature decides.

    Topic(PUB)             the topic that the header names in `topic`; a retry topic stands for its group
    Group(SUB, "group")    the group named in `group`; a header without the field needs nothing here
    Cluster(UPDATE)        the cluster that the server belongs to
    AllTopics(GET)         every topic at once: `Topic:*` or `*` have it
    a function             looks into the body

One of a row's actions is enough; every part of a row must be met. `ANY_USER` asks for a signature and no right. A code
that is not here is for super users only, and so is one of `SUPER_ONLY`, which says that somebody has thought about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from arrowmq.auth.resources import (
    EVERY,
    Action,
    Resource,
    ResourceType,
    cluster_resource,
    group_resource,
    is_retry_topic,
    topic_resource,
)
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    BatchAckMessage,
    CreateTopicListBody,
    HeartbeatData,
    LockBatch,
    QueryAssignment,
    SetMessageRequestMode,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from arrowmq.wire.codes import RequestCode as Code
from arrowmq.wire.command import Command

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
REPLY_TOPIC_ENDING = "_REPLY_TOPIC"

PUB, SUB, GET, LIST = Action.PUB, Action.SUB, Action.GET, Action.LIST
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

Actions = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """One right that a request needs: any of the actions, on the resource."""

    resource: Resource
    actions: Actions


Needs = Iterator[Need]
Part = Callable[[Command, str], Needs]
"""Finds the needs of a request to a server of the named cluster."""


# --- the parts of a row ----------------------------------------------------------------------------------------------


def _of_topic(name: str | None, actions: Actions) -> Need:
    """A retry topic is its group's."""
    return Need(group_resource(name) if is_retry_topic(name) else topic_resource(name), actions)


def Topic(*actions: Action, field: str = "topic", separator: str = "") -> Part:
    def part(command: Command, cluster: str) -> Needs:
        value = command.ext.get(field)
        if value is not None:
            for name in filter(None, value.split(separator)) if separator else (value,):
                yield _of_topic(name, actions)

    return part


def Group(*actions: Action, field: str = "consumerGroup", separator: str = "") -> Part:
    def part(command: Command, cluster: str) -> Needs:
        value = command.ext.get(field)
        if value is not None:
            for name in filter(None, value.split(separator)) if separator else (value,):
                yield Need(group_resource(name), actions)

    return part


def Cluster(*actions: Action, field: str = "") -> Part:
    """The server's own cluster, or the one that the header names, if it names one."""

    def part(command: Command, cluster: str) -> Needs:
        named = command.ext.get(field) if field else None
        yield Need(cluster_resource(cluster if named is None else named), actions)

    return part


def AllTopics(*actions: Action) -> Part:
    return partial(_everything, Resource(ResourceType.TOPIC, EVERY), actions)


def AllGroups(*actions: Action) -> Part:
    return partial(_everything, Resource(ResourceType.GROUP, EVERY), actions)


def _everything(resource: Resource, actions: Actions, command: Command, cluster: str) -> Needs:
    yield Need(resource, actions)


# --- requests that must be looked into -------------------------------------------------------------------------------


def _route(command: Command, cluster: str) -> Needs:
    topic = command.ext.get("topic")
    yield _of_topic(topic, (SUB, GET) if is_retry_topic(topic) else (PUB, SUB, GET))


def _send(topic_field: str, command: Command, cluster: str) -> Needs:
    """To a retry topic a consumer sends that gives a message back."""
    topic = command.ext.get(topic_field)
    yield _of_topic(topic, (SUB,) if is_retry_topic(topic) else (PUB,))


def _reply(topic_field: str, command: Command, cluster: str) -> Needs:
    """An answer to a request needs no right at Apache, and has none to name: it goes to the client that asked. The
    topic that it is stored in is the cluster's own; to any other one a reply would be a send."""
    topic = command.ext.get(topic_field)
    if topic != cluster + REPLY_TOPIC_ENDING:
        yield _of_topic(topic, (PUB,))


def _end_transaction(command: Command, cluster: str) -> Needs:
    """A client that answers a check names the half topic, or none. The message itself says which topic it is for, and
    the service asks for Pub on that (`Access.require`)."""
    topic = command.ext.get("topic")
    if topic and topic.strip() and topic != HALF_TOPIC:
        yield Need(topic_resource(topic), (PUB,))


def _pull(command: Command, cluster: str) -> Needs:
    topic = command.ext.get("topic")
    if not is_retry_topic(topic):
        yield Need(topic_resource(topic), (SUB,))
    group = command.ext.get("consumerGroup")
    yield Need(group_resource(group), (SUB,))
    if is_retry_topic(topic) and group_resource(topic) != group_resource(group) and not _is_pop_retry(topic, group):
        yield Need(group_resource(topic), (SUB,))  # another group's retry topic: Apache asks for nothing


def _is_pop_retry(topic: str | None, group: str | None) -> bool:
    """`%RETRY%group_topic` and `%RETRY%group+topic` are retry topics of the group as well."""
    return topic is not None and bool(group) and topic.startswith((f"%RETRY%{group}_", f"%RETRY%{group}+"))


def _offset(action: Action, command: Command, cluster: str) -> Needs:
    topic = command.ext.get("topic")
    if not is_retry_topic(topic):
        yield Need(topic_resource(topic), (SUB, action))
    yield Need(group_resource(command.ext.get("consumerGroup")), (SUB, action))


def _view_message(command: Command, cluster: str) -> Needs:
    """Clients before 5.0 do not name the topic, and Apache then asks for nothing. The service checks the message's own
    topic as well (`Access.require`), because an id tells nothing of it."""
    topic = command.ext.get("topic")
    if topic is None:
        yield Need(cluster_resource(cluster), (GET,))
    else:
        yield _of_topic(topic, (GET,))


def _heartbeat(command: Command, cluster: str) -> Needs:
    for consumer in fastjson.loads(command.body, type=HeartbeatData).consumer_data_set:
        yield Need(group_resource(consumer.group_name), (SUB,))
        for subscription in consumer.subscription_data_set:
            if not is_retry_topic(subscription.topic):
                yield Need(topic_resource(subscription.topic), (SUB,))


def _lock(command: Command, cluster: str) -> Needs:
    body = fastjson.loads(command.body, type=LockBatch)
    yield Need(group_resource(body.consumer_group), (SUB,))
    for queue in body.mq_set:
        if not is_retry_topic(queue.topic):
            yield Need(topic_resource(queue.topic), (SUB,))


def _assignment(command: Command, cluster: str) -> Needs:
    body = fastjson.loads(command.body, type=QueryAssignment)
    yield Need(group_resource(body.consumer_group), (SUB,))
    if not is_retry_topic(body.topic):
        yield Need(topic_resource(body.topic), (SUB,))


def _request_mode(command: Command, cluster: str) -> Needs:
    body = fastjson.loads(command.body, type=SetMessageRequestMode)
    yield Need(group_resource(body.consumer_group), (UPDATE,))
    yield _of_topic(body.topic, (UPDATE,))


def _batch_ack(command: Command, cluster: str) -> Needs:
    for ack in fastjson.loads(command.body, type=BatchAckMessage).acks:
        yield Need(group_resource(ack.consumer_group), (SUB,))
        yield _of_topic(ack.topic, (SUB,))


def _topics(command: Command, cluster: str) -> Needs:
    for topic in fastjson.loads(command.body, type=CreateTopicListBody).topic_config_list:
        yield _of_topic(topic.topic_name, (CREATE,))


def _group(command: Command, cluster: str) -> Needs:
    body = fastjson.loads(command.body, type=SubscriptionGroupConfig)
    yield Need(group_resource(body.group_name), (CREATE, UPDATE))


def _groups(command: Command, cluster: str) -> Needs:
    for group in fastjson.loads(command.body, type=SubscriptionGroupList).group_config_list:
        yield Need(group_resource(group.group_name), (CREATE, UPDATE))


# --- the table -------------------------------------------------------------------------------------------------------

Row = tuple[Part, ...]
ANY_USER: Row = ()

_POP: Row = (Group(SUB), Topic(SUB))

NEEDS: dict[int, Row] = {
    # Sending
    Code.SEND_MESSAGE: (partial(_send, "topic"),),
    Code.SEND_MESSAGE_V2: (partial(_send, "b"),),
    Code.SEND_BATCH_MESSAGE: (partial(_send, "b"),),
    Code.SEND_REPLY_MESSAGE: (partial(_reply, "topic"),),  # Apache: nothing, for any topic
    Code.SEND_REPLY_MESSAGE_V2: (partial(_reply, "b"),),  # Apache: nothing, for any topic
    Code.RECALL_MESSAGE: (Topic(PUB),),
    Code.END_TRANSACTION: (_end_transaction,),  # Apache: Pub on the half topic where that is named
    Code.CONSUMER_SEND_MSG_BACK: (Group(SUB, field="group"),),
    # Consuming
    Code.PULL_MESSAGE: (_pull,),
    Code.LITE_PULL_MESSAGE: (_pull,),  # Apache: nothing
    Code.POP_MESSAGE: _POP,
    Code.PEEK_MESSAGE: _POP,
    Code.ACK_MESSAGE: _POP,
    Code.BATCH_ACK_MESSAGE: (_batch_ack,),  # Apache: nothing
    Code.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    Code.NOTIFICATION: _POP,
    Code.POLLING_INFO: (Group(GET), Topic(GET)),
    Code.HEART_BEAT: (_heartbeat,),
    Code.UNREGISTER_CLIENT: (Group(SUB),),
    Code.CHECK_CLIENT_CONFIG: ANY_USER,  # whether a filter expression can be read
    Code.GET_CONSUMER_LIST_BY_GROUP: (Group(SUB, GET),),
    Code.LOCK_BATCH_MQ: (_lock,),
    Code.UNLOCK_BATCH_MQ: (_lock,),
    Code.QUERY_ASSIGNMENT: (_assignment,),  # Apache: nothing
    Code.QUERY_CONSUMER_OFFSET: (partial(_offset, GET),),
    Code.UPDATE_CONSUMER_OFFSET: (partial(_offset, UPDATE),),
    Code.GET_MAX_OFFSET: (Topic(GET),),
    Code.GET_MIN_OFFSET: (Topic(GET),),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (Topic(GET),),
    Code.GET_EARLIEST_MSG_STORETIME: (Topic(GET),),
    # Looking messages up
    Code.QUERY_MESSAGE: (Topic(SUB, GET),),
    Code.VIEW_MESSAGE_BY_ID: (_view_message,),  # Apache: nothing without a topic
    Code.QUERY_CONSUME_QUEUE: (Topic(GET), Group(GET)),
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: (Topic(CREATE),),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: (_topics,),  # Apache: nothing
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: (Topic(CREATE),),  # Apache: nothing
    Code.DELETE_TOPIC_IN_BROKER: (Topic(DELETE),),
    Code.GET_TOPIC_CONFIG: (Topic(GET),),
    Code.GET_ALL_TOPIC_CONFIG: (AllTopics(GET, LIST),),  # Apache: nothing
    Code.GET_TOPIC_STATS_INFO: (Topic(GET),),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (AllTopics(GET, LIST),),  # Apache: nothing
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (Topic(GET),),
    Code.RESUME_CHECK_HALF_MESSAGE: (Topic(UPDATE),),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: (Topic(GET),),
    # Groups and their progress
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_group,),  # Apache: nothing
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_groups,),  # Apache: nothing
    Code.DELETE_SUBSCRIPTIONGROUP: (Group(DELETE, field="groupName"),),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (Group(GET, field="group"),),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (AllGroups(GET, LIST),),  # Apache: nothing
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (Group(UPDATE, field="group"), Topic(UPDATE)),
    Code.SET_MESSAGE_REQUEST_MODE: (_request_mode,),  # Apache: nothing
    Code.GET_ALL_MESSAGE_REQUEST_MODE: (AllGroups(GET, LIST),),  # Apache: nothing
    Code.GET_CONSUME_STATS: (Group(GET), Topic(GET), Topic(GET, field="topicList", separator=";")),
    Code.GET_BROKER_CONSUME_STATS: (Cluster(GET),),
    Code.GET_CONSUMER_CONNECTION_LIST: (Group(GET),),
    Code.GET_CONSUMER_RUNNING_INFO: (Group(GET),),
    Code.CONSUME_MESSAGE_DIRECTLY: (Group(SUB), Topic(SUB)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (Group(UPDATE, field="group"), Topic(UPDATE)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (Topic(GET), Group(GET, field="group")),
    Code.QUERY_CONSUME_TIME_SPAN: (Topic(GET), Group(GET, field="group")),
    Code.QUERY_CORRECTION_OFFSET: (
        Group(GET, field="filterGroups", separator=","),
        Group(GET, field="compareGroup"),
        Topic(GET),
    ),
    Code.QUERY_TOPICS_BY_CONSUMER: (Group(GET, field="group"),),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (Group(GET, field="group"), Topic(GET)),
    Code.CLONE_GROUP_OFFSET: (Group(UPDATE, field="destGroup"), Topic(UPDATE)),
    Code.GET_ALL_CONSUMER_OFFSET: (Cluster(GET),),  # Apache: nothing
    Code.GET_PRODUCER_CONNECTION_LIST: (Cluster(GET),),
    Code.GET_ALL_PRODUCER_INFO: (Cluster(GET),),
    # A broker as a whole
    Code.UPDATE_BROKER_CONFIG: (Cluster(UPDATE),),  # Apache: nothing
    Code.GET_BROKER_CONFIG: (Cluster(GET),),  # Apache: nothing
    Code.GET_BROKER_RUNTIME_INFO: (Cluster(GET),),  # Apache: nothing
    Code.VIEW_BROKER_STATS_DATA: (Cluster(GET),),
    Code.GET_TIMER_METRICS: (Cluster(GET),),  # Apache: nothing
    Code.GET_TIMER_CHECK_POINT: (Cluster(GET),),  # Apache: nothing
    Code.GET_ALL_DELAY_OFFSET: (Cluster(GET),),  # Apache: nothing
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: (Cluster(UPDATE),),  # Apache: nothing
    Code.CLEAN_UNUSED_TOPIC: (Cluster(UPDATE),),  # Apache: nothing
    Code.DELETE_EXPIRED_COMMITLOG: (Cluster(UPDATE),),  # Apache: nothing
    Code.TRIGGER_DELETE_FILES: (Cluster(UPDATE),),
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: (Cluster(UPDATE),),
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: (Cluster(UPDATE),),
    Code.GET_COLD_DATA_FLOW_CTR_INFO: (Cluster(GET),),
    Code.SET_COMMITLOG_READ_MODE: (Cluster(UPDATE),),
    Code.SWITCH_TIMER_ENGINE: (Cluster(UPDATE),),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: (Cluster(GET),),
    Code.POP_ROLLBACK: (Cluster(UPDATE),),
    # Users and rights
    Code.AUTH_CREATE_USER: (Cluster(UPDATE),),
    Code.AUTH_UPDATE_USER: (Cluster(UPDATE),),
    Code.AUTH_DELETE_USER: (Cluster(UPDATE),),
    Code.AUTH_GET_USER: (Cluster(GET),),
    Code.AUTH_LIST_USER: (Cluster(GET),),
    Code.AUTH_CREATE_ACL: (Cluster(UPDATE),),
    Code.AUTH_UPDATE_ACL: (Cluster(UPDATE),),
    Code.AUTH_DELETE_ACL: (Cluster(UPDATE),),
    Code.AUTH_GET_ACL: (Cluster(GET),),
    Code.AUTH_LIST_ACL: (Cluster(GET),),
    # NameServer (Apache's checks nothing)
    Code.GET_ROUTEINFO_BY_TOPIC: (_route,),
    Code.PUT_KV_CONFIG: (Cluster(UPDATE),),
    Code.GET_KV_CONFIG: (Cluster(GET),),
    Code.DELETE_KV_CONFIG: (Cluster(UPDATE),),
    Code.GET_KVLIST_BY_NAMESPACE: (Cluster(GET),),
    Code.REGISTER_BROKER: (Cluster(UPDATE, field="clusterName"),),
    Code.UNREGISTER_BROKER: (Cluster(UPDATE, field="clusterName"),),
    Code.BROKER_HEARTBEAT: (Cluster(UPDATE, field="clusterName"),),
    Code.QUERY_DATA_VERSION: (Cluster(GET, field="clusterName"),),
    Code.GET_BROKER_MEMBER_GROUP: (Cluster(GET, field="clusterName"),),
    Code.GET_BROKER_CLUSTER_INFO: (Cluster(GET),),
    Code.WIPE_WRITE_PERM_OF_BROKER: (Cluster(UPDATE),),
    Code.ADD_WRITE_PERM_OF_BROKER: (Cluster(UPDATE),),
    Code.DELETE_TOPIC_IN_NAMESRV: (Cluster(UPDATE, field="clusterName"),),
    Code.REGISTER_TOPIC_IN_NAMESRV: (Cluster(UPDATE),),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (AllTopics(GET, LIST),),
    Code.GET_TOPICS_BY_CLUSTER: (AllTopics(GET, LIST),),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: (AllTopics(GET, LIST),),
    Code.GET_UNIT_TOPIC_LIST: (AllTopics(GET, LIST),),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: (AllTopics(GET, LIST),),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (AllTopics(GET, LIST),),
    Code.UPDATE_NAMESRV_CONFIG: (Cluster(UPDATE),),
    Code.GET_NAMESRV_CONFIG: (Cluster(GET),),
    # Replicas and controllers
    Code.EXCHANGE_BROKER_HA_INFO: (Cluster(UPDATE),),
    Code.GET_BROKER_HA_STATUS: (Cluster(GET),),
    Code.RESET_MASTER_FLUSH_OFFSET: (Cluster(UPDATE),),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: (Cluster(UPDATE),),
    Code.NOTIFY_BROKER_ROLE_CHANGED: (Cluster(UPDATE),),
    Code.GET_BROKER_EPOCH_CACHE: (Cluster(GET),),
    Code.ADD_BROKER: (Cluster(UPDATE),),
    Code.REMOVE_BROKER: (Cluster(UPDATE, field="brokerClusterName"),),
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: (Cluster(UPDATE),),
    Code.CONTROLLER_ELECT_MASTER: (Cluster(UPDATE, field="clusterName"),),
    Code.CONTROLLER_REGISTER_BROKER: (Cluster(UPDATE, field="clusterName"),),
    Code.CONTROLLER_GET_REPLICA_INFO: (Cluster(GET),),
    Code.CONTROLLER_GET_METADATA_INFO: (Cluster(GET),),
    Code.CONTROLLER_GET_SYNC_STATE_DATA: (Cluster(GET),),
    Code.UPDATE_CONTROLLER_CONFIG: (Cluster(UPDATE),),
    Code.GET_CONTROLLER_CONFIG: (Cluster(GET),),
    Code.CLEAN_BROKER_DATA: (Cluster(UPDATE, field="clusterName"),),
    Code.CONTROLLER_GET_NEXT_BROKER_ID: (Cluster(GET, field="clusterName"),),
    Code.CONTROLLER_APPLY_BROKER_ID: (Cluster(UPDATE, field="clusterName"),),
}

# Nobody but a super user: requests that go to clients, between controllers, or are served by no RocketMQ 5.5.
SUPER_ONLY: frozenset[int] = frozenset(
    {
        Code.CHECK_TRANSACTION_STATE,
        Code.NOTIFY_CONSUMER_IDS_CHANGED,
        Code.RESET_CONSUMER_CLIENT_OFFSET,
        Code.GET_CONSUMER_STATUS_FROM_CLIENT,
        Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        Code.NOTIFY_UNSUBSCRIBE_LITE,
        Code.BROKER_CLOSE_CHANNEL_REQUEST,
        Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        Code.GET_BROKER_LIVE_INFO_REQUEST,
        Code.GET_SYNC_STATE_DATA_REQUEST,
        Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        Code.QUERY_BROKER_OFFSET,
        Code.GET_TOPIC_CONFIG_LIST,
        Code.GET_TOPIC_NAME_LIST,
        Code.GET_CLIENT_CONFIG,
        Code.SUSPEND_CONSUMER,
        Code.RESUME_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.ADJUST_CONSUMER_THREAD_POOL,
        Code.WHO_CONSUME_THE_MESSAGE,
        Code.REGISTER_FILTER_SERVER,
        Code.REGISTER_MESSAGE_FILTER_CLASS,
        Code.POP_LITE_MESSAGE,
        Code.LITE_SUBSCRIPTION_CTL,
        Code.ACK_LITE_MESSAGE,
        Code.GET_BROKER_LITE_INFO,
        Code.GET_PARENT_TOPIC_INFO,
        Code.GET_LITE_TOPIC_INFO,
        Code.GET_LITE_CLIENT_INFO,
        Code.GET_LITE_GROUP_INFO,
        Code.TRIGGER_LITE_DISPATCH,
    }
)


def needs_of(command: Command, cluster: str) -> list[Need] | None:
    """The rights that this request needs at a server of this cluster, each once; None: only a super user may.

    Raises WireError where the body cannot be read.
    """
    row = NEEDS.get(command.code)
    if row is None:
        return None
    return list(dict.fromkeys(need for part in row for need in part(command, cluster)))


CHANGES: frozenset[int] = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET,
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.SET_COMMITLOG_READ_MODE,
        Code.SWITCH_TIMER_ENGINE,
        Code.POP_ROLLBACK,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.CONTROLLER_ELECT_MASTER,
        Code.UPDATE_CONTROLLER_CONFIG,
        Code.CLEAN_BROKER_DATA,
        Code.ADD_BROKER,
        Code.REMOVE_BROKER,
        *range(Code.AUTH_CREATE_USER, Code.AUTH_DELETE_USER + 1),
        *range(Code.AUTH_CREATE_ACL, Code.AUTH_DELETE_ACL + 1),
    }
)
"""What administrators change: each such request leaves an audit line."""

"""What a pull may see: the filter that it or its group's heartbeats brought, and every reason to refuse it."""

from __future__ import annotations

from arrowmq import filter as filters
from arrowmq.broker.apache_remarks import with_faq
from arrowmq.broker.clients.table import BROADCASTING, CONSUME_ACTIVELY, Clients
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.names import is_system_group
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.filter import TAG, FilterError, is_tag_type
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Refused
from arrowmq.store.results import EntryFilter
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import PullMessage

FLAG_COMMIT_OFFSET = 0x1
FLAG_SUSPEND = 0x2
FLAG_SUBSCRIPTION = 0x4
FLAG_CLASS_FILTER = 0x8

FORBIDDEN_BROKER = 1
FORBIDDEN_GROUP = 2
FORBIDDEN_TOPIC = 3
FORBIDDEN_BROADCAST = 4
FORBIDDEN_SUBSCRIPTION = 5


def forbidden(kind: int, remark: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})


def compiled(expression_type: str | None, expression: str | None) -> EntryFilter | None:
    """The filter of an expression, None where it lets everything pass. Raises `FilterError`."""
    if is_tag_type(expression_type) and (not expression or expression == "*"):
        return None
    return filters.compile(expression_type, expression)


class Subscriptions:
    def __init__(self, config: BrokerConfig, groups: SubscriptionGroups, clients: Clients) -> None:
        self.config = config
        self.groups = groups
        self.clients = clients

    def filter_of(self, request: PullMessage, connection: Channel) -> EntryFilter | None:
        """The filter a pull is answered with. Raises `Refused` as Apache's broker would, with the reason added."""
        if request.sys_flag & FLAG_CLASS_FILTER:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "class filter mode is not supported (RocketMQ dropped it): subscribe with tags or SQL92",
            )
        if request.sys_flag & FLAG_SUBSCRIPTION:
            expression_type, expression = request.expression_type or TAG, request.subscription or ""
        else:
            expression_type, expression = self._from_heartbeats(request)
        if not is_tag_type(expression_type) and not self.config.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}: "
                "set enablePropertyFilter=true in its configuration, or subscribe with tags",
            )
        self._check_active_pull(request, connection)
        try:
            return compiled(expression_type or TAG, expression)
        except FilterError as fault:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {fault}"
            ) from fault

    def _from_heartbeats(self, request: PullMessage) -> tuple[str, str]:
        group = self.clients.consumers.get(request.consumer_group)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, with_faq("the consumer's group info not exist"))
        settings = self.groups.get(request.consumer_group)
        if settings is not None and not settings.consume_broadcast_enable and group.message_model == BROADCASTING:
            raise forbidden(
                FORBIDDEN_BROADCAST,
                f"the consumer group[{request.consumer_group}] can not consume by broadcast way: "
                "its consumeBroadcastEnable is false",
            )
        if not self.groups.may_read(request.consumer_group, request.topic):
            raise forbidden(
                FORBIDDEN_SUBSCRIPTION,
                f"the consumer group[{request.consumer_group}] is forbidden for topic[{request.topic}]",
            )
        subscription = group.subscriptions.get(request.topic)
        if subscription is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, with_faq("the consumer's subscription not exist"))
        if subscription.sub_version < request.sub_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription.expression_type or TAG, subscription.sub_string or ""

    def _check_active_pull(self, request: PullMessage, connection: Channel) -> None:
        """rejectPullConsumerEnable: only consumers whose heartbeat came over this connection may pull."""
        if not self.config.reject_pull_consumer_enable or is_system_group(request.consumer_group):
            return
        group = self.clients.consumers.get(request.consumer_group)
        if group is None or (group.consume_type == CONSUME_ACTIVELY and connection not in group.channels):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                with_faq("the consumer's group info not exist, or the pull consumer is rejected by server."),
            )

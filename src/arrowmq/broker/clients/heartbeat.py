"""Heartbeats: clients say who they are and what they subscribe to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from arrowmq.broker import names
from arrowmq.broker.clients.table import CONSUME_ACTIVELY, ClientChannel, Clients
from arrowmq.broker.groups.subscriptions import compiled
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.filter import FilterError, is_tag_type
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import CheckClientConfig, ConsumerData, ConsumerIdList, HeartbeatData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import GetConsumerListByGroup, UnregisterClient

log = logging.getLogger(__name__)

# Clients ask for routes every 30 s and send a heartbeat a second after each of these polls: the first heartbeat that
# comes so much after a topic was made is that of a client which has had its route for a moment.
ROUTE_POLLED_MS = 25_000


@dataclass(eq=False, repr=False)
class HeartbeatService:
    config: BrokerConfig
    topics: Topics
    groups: SubscriptionGroups
    clients: Clients
    clock: Clock
    routed: Callable[[], Awaitable[None]]
    _retry_topics_made: dict[str, int] = field(default_factory=dict, init=False)  # group -> when, until it is notified

    @handles(RequestCode.HEART_BEAT)
    def heartbeat(self, beat: HeartbeatData, call: Call) -> Answer | Awaitable[Answer]:
        if not beat.client_id:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID: nobody can be registered by it")
        is_changed = beat.heartbeat_fingerprint == 0
        topics_before = len(self.topics.table)
        for consumer in beat.consumer_data_set:
            is_changed |= self._consumer(consumer, beat, call)
        for producer in beat.producer_data_set:
            self.clients.register_producer(producer.group_name, self._channel(beat, call))
        header = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_changed else "false"}
        answer = Answer(header=header)
        return self._when_routed(answer) if len(self.topics.table) != topics_before else answer

    async def _when_routed(self, answer: Answer) -> Answer:
        """The heartbeat brought a group whose retry topic is new. Its client asks the NameServer for that topic right
        away and then not for half a minute, in which it would get no retries: so the topic is in the route first."""
        await self.routed()
        return answer

    def _channel(self, beat: HeartbeatData, call: Call) -> ClientChannel:
        command = call.command
        return ClientChannel(call.connection, beat.client_id, command.language, command.version, self.clock.now_ms())

    def _say_unknown(self, group: str, beat: HeartbeatData, call: Call) -> None:
        """Once for a connection: its client repeats itself every thirty seconds."""
        said: set[str] = call.connection.attributes.setdefault("unknown groups", set())
        if group not in said:
            said.add(group)
            log.warning(
                "consumer ignored group=%s client=%s peer=%s reason=the group does not exist: %s",
                group,
                beat.client_id,
                call.connection.peer_text,
                self.groups.why_not_created(group),
            )

    def _consumer(self, consumer: ConsumerData, beat: HeartbeatData, call: Call) -> bool:
        """Registers one group of a heartbeat. True if the client must send its subscriptions in full next time."""
        if self.config.reject_pull_consumer_enable and consumer.consume_type == CONSUME_ACTIVELY:
            return False
        settings = self.groups.find(consumer.group_name)
        if settings is None:
            self._say_unknown(consumer.group_name, beat, call)
            return False
        is_changed = False
        fingerprint = beat.heartbeat_fingerprint
        if fingerprint != 0:
            known = self.clients.fingerprints.get(consumer.group_name)
            is_changed = known is not None and known != fingerprint
            # A client that leaves its subscriptions out relies on this broker having them. After a restart it has not.
            is_changed |= beat.without_sub and consumer.group_name not in self.clients.consumers
            self.clients.fingerprints[consumer.group_name] = fingerprint
        subscribed = (self.topics.get(subscription.topic) for subscription in consumer.subscription_data_set)
        retry_topic = names.retry_topic(consumer.group_name)
        if self.topics.get(retry_topic) is None:
            self._retry_topics_made[consumer.group_name] = self.clock.now_ms()
        self.topics.create_internal(
            retry_topic,
            settings.retry_queue_nums,
            unit=bool(consumer.unit_mode),
            order=any(topic is not None and topic.order for topic in subscribed),
        )
        self.clients.register_consumer(consumer, self._channel(beat, call), with_subscriptions=not beat.without_sub)
        self._notify_of_retry_topic(consumer.group_name)
        return is_changed

    def _notify_of_retry_topic(self, group: str) -> None:
        """A Java client that missed the new retry topic at its start learns of it by its next route poll, and shares
        out its queue at its next rebalancing, up to 20 s later. A notice makes it do so now."""
        made_ms = self._retry_topics_made.get(group)
        if made_ms is not None and self.clock.now_ms() - made_ms >= ROUTE_POLLED_MS:
            del self._retry_topics_made[group]
            self.clients.notify(group)

    @handles(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, request: UnregisterClient, call: Call) -> None:
        if request.producer_group:
            self.clients.unregister_producer(request.producer_group, request.client_id, call.connection)
        if request.consumer_group:
            self.clients.unregister_consumer(request.consumer_group, request.client_id, call.connection)

    @handles(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client_config(self, call: Call) -> None:
        """A client asks whether its filter expression would work here, before it starts."""
        if not call.body:
            return
        subscription = fastjson.loads(call.body, type=CheckClientConfig).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return
        if not self.config.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}: "
                "set enablePropertyFilter=true in its configuration, or subscribe with tags",
            )
        try:
            compiled(subscription.expression_type, subscription.sub_string)
        except FilterError as fault:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(fault)) from fault

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_list(self, request: GetConsumerListByGroup) -> Answer:
        group = self.clients.consumers.get(request.consumer_group)
        if group is None or not group.channels:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {request.consumer_group}: none sent a heartbeat on an open connection",
            )
        return Answer(body=fastjson.dumps(ConsumerIdList(consumer_id_list=group.client_ids)))

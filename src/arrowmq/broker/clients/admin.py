"""Administration that is about connected clients, and requests handed on to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.auth.resources import Action
from arrowmq.broker.clients.table import ClientChannel, language_name
from arrowmq.remoting.errors import RemotingError, RequestTimeout
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResult,
    TopicList,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import (
    ConsumeMessageDirectly,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetProducerConnectionList,
    QuerySubscriptionByConsumer,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
)
from arrowmq.wire.ids import IdError, parse_offset_message_id

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

CLIENT_TIMEOUT_S = 10.0


class ClientAdmin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clients = broker.clients

    # Who is there

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, request: GetConsumerConnectionList) -> Answer:
        group = self.clients.consumers.get(request.consumer_group)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{request.consumer_group}] not online")
        body = ConsumerConnection(
            connection_set=[_connection(channel) for channel in group.channels.values()],
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=group.subscriptions,
        )
        return Answer(body=fastjson.dumps(body))

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, request: GetProducerConnectionList) -> Answer:
        channels = self.clients.producers.get(request.producer_group)
        if not channels:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{request.producer_group}] not exist")
        body = ProducerConnection(connection_set=[_connection(channel) for channel in channels.values()])
        return Answer(body=fastjson.dumps(body))

    @handles(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self) -> Answer:
        table = {
            group: [
                ProducerInfo(
                    client_id=channel.client_id,
                    language=language_name(channel.language),
                    last_update_timestamp=channel.last_update_ms,
                    remote_ip=f"/{channel.connection.peer_text}",
                    version=channel.version,
                )
                for channel in channels.values()
            ]
            for group, channels in self.clients.producers.items()
        }
        return Answer(body=fastjson.dumps(ProducerTableInfo(data=table)))

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def who_consumes(self, request: QueryTopicConsumeByWho) -> Answer:
        online = {name for name, group in self.clients.consumers.items() if request.topic in group.subscriptions}
        groups = sorted(online | set(self.broker.offsets.groups_of(request.topic)))
        return Answer(body=fastjson.dumps(GroupList(group_list=groups)))

    @handles(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of(self, request: QueryTopicsByConsumer) -> Answer:
        topics = sorted(set(self.broker.offsets.topics_of(request.group)))
        return Answer(body=fastjson.dumps(TopicList(broker_addr=self.broker.address.text, topic_list=topics)))

    @handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription_of(self, request: QuerySubscriptionByConsumer) -> Answer:
        group = self.clients.consumers.get(request.group)
        body = QuerySubscriptionResult(group=request.group, topic=request.topic)
        if group is not None and request.topic:
            body.subscription_data = group.subscriptions.get(request.topic)
        return Answer(body=fastjson.dumps(body))

    # Handed on to a client

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, request: GetConsumerRunningInfo) -> Answer:
        channel = self._member(request.consumer_group, request.client_id)
        command = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, request)
        return await self._hand_on(channel, request.consumer_group, command)

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, request: ConsumeMessageDirectly, call: Call) -> Answer:
        """A message, named by its offset message id, is consumed once more by one client, which tells how it went."""
        try:
            place = parse_offset_message_id(request.msg_id or "").physical_offset
        except IdError as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {fault}") from fault
        record = self.broker.store.record_at(place)
        data = self.broker.store.record_bytes_at(place)
        if record is None or data is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {place}")
        self.broker.guard.require_topic(call, record.topic, Action.SUB)
        channel = self._member(request.consumer_group, request.client_id or "")
        topic = self.broker.topics.get(record.topic)
        group = self.broker.groups.get(request.consumer_group)
        request.broker_name = self.broker.config.broker_name
        request.topic_sys_flag = topic.topic_sys_flag if topic is not None else 0
        request.group_sys_flag = group.group_sys_flag if group is not None else 0
        command = Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, request, bytes(data))
        return await self._hand_on(channel, request.consumer_group, command)

    def _member(self, group_name: str, client_id: str) -> ClientChannel:
        group = self.clients.consumers.get(group_name)
        channel = group.channel_of(client_id) if group is not None else None
        if channel is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        return channel

    async def _hand_on(self, channel: ClientChannel, group: str, command: Command) -> Answer:
        try:
            answer = await channel.connection.request(command, CLIENT_TIMEOUT_S)
        except RequestTimeout as failure:
            raise Refused(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{channel.client_id}> Timeout: {failure}"
            ) from failure
        except RemotingError as failure:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{channel.client_id}> Exception: {failure}"
            ) from failure
        return Answer(answer.code, answer.ext, answer.body, answer.remark)


def _connection(channel: ClientChannel) -> Connection:
    return Connection(
        client_addr=channel.connection.peer_text,
        client_id=channel.client_id,
        language=language_name(channel.language),
        version=channel.version,
    )

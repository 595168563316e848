"""Offset reset: an administrator sends a group back, or ahead, to a time.

On the server (the default): the broker remembers the new offset and gives it to the group's next pull of each queue; no
consumer needs to be there. By the clients (useServerSideResetOffset=false, the old way): the online members are told to
drop what they hold and go on from the new offsets.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from arrowmq.broker.apache_remarks import NOT_SET
from arrowmq.broker.clients.table import ClientChannel, Clients
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.names import SLAVE
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pull.longpoll import LongPoll
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import MessageStore
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    GetConsumerStatusBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    ResetOffsetEntry,
    TopicConfig,
)
from arrowmq.wire.codes import LanguageCode, RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetConsumerStatus, ResetOffset
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger(__name__)

STATUS_TIMEOUT_S = 5.0
TO_THE_END = -1
EVERY_QUEUE = -1
NO_OFFSET = -1


@dataclass(eq=False, repr=False)
class ResetService:
    config: BrokerConfig
    store: MessageStore
    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    clients: Clients
    longpoll: LongPoll

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    async def reset_offset(self, request: ResetOffset, call: Call) -> Answer:
        log.info(
            "offsets reset group=%s topic=%s time_ms=%d by=%s",
            request.group,
            request.topic,
            request.timestamp,
            call.connection.peer_text,
        )
        if self.config.use_server_side_reset_offset:
            answer = self._reset_here(request)
            # Groups commit again by themselves; an administrator who was told yes does not. The group itself may be a
            # moment old, and without it its offsets are worth nothing.
            await self.groups.saved()
            await self.offsets.persist_if_changed()
            return answer
        return self._reset_by_clients(request, is_cpp=call.command.language == LanguageCode.CPP)

    def _target(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self.store.max_offset(topic, queue_id)
        return max(0, self.store.offset_by_time(topic, queue_id, timestamp))

    def _body(self, topic: str, offsets: dict[int, int]) -> ResetOffsetBody:
        table = {MessageQueue(topic, self.config.broker_name, queue): offset for queue, offset in offsets.items()}
        return ResetOffsetBody(offset_table=table)

    # On the server

    def _reset_here(self, request: ResetOffset) -> Answer:
        if self.config.broker_role == SLAVE:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic = self.topics.get(request.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {request.topic} does not exist")
        if self.groups.get(request.group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {request.group} does not exist")
        targets = self._targets(request, topic)
        if not targets:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"No queues to reset: topic {request.topic} has no read queues here"
            )
        for queue_id, offset in targets.items():
            self.offsets.reset(request.group, request.topic, queue_id, offset)
            # A member whose pull waits for the next message would else hear of it only when that wait is over.
            self.longpoll.poke(request.topic, queue_id)
        return Answer(body=fastjson.dumps(self._body(request.topic, targets)))

    def _targets(self, request: ResetOffset, topic: TopicConfig) -> dict[int, int]:
        queue_id = EVERY_QUEUE if request.queue_id is None else request.queue_id
        if queue_id < 0:
            return {each: self._target(request.topic, each, request.timestamp) for each in range(topic.read_queue_nums)}
        if request.offset is None or request.offset == NO_OFFSET:
            return {queue_id: self._target(request.topic, queue_id, request.timestamp)}
        lowest, highest = self.store.min_offset(request.topic, queue_id), self.store.max_offset(request.topic, queue_id)
        if not lowest <= request.offset <= highest + 1:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {request.offset} not in consume queue range [{lowest}-{highest}]",
            )
        return {queue_id: request.offset}

    # By the clients

    def _reset_by_clients(self, request: ResetOffset, *, is_cpp: bool) -> Answer:
        topic = self.topics.get(request.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={request.topic}",
            )
        targets = {}
        for queue_id in range(topic.write_queue_nums):
            current = self.offsets.get(request.group, request.topic, queue_id)
            if current is None:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{request.group}> not exist: "
                    f"it has no offset in queue {queue_id} of {request.topic}",
                )
            target = self._target(request.topic, queue_id, request.timestamp)
            targets[queue_id] = target if request.is_force else min(target, current)
        members = self._members(request.group)
        if not members:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {request.group} Topic: {request.topic} "
                f"Timestamp: {request.timestamp}",
            )
        body = self._body(request.topic, targets)
        pushed = fastjson.dumps(_for_cpp(body) if is_cpp else body)
        # Clients get isForce false, as from Apache's broker: the offsets they are given are final.
        header = ResetOffset(
            topic=request.topic, group=request.group, timestamp=request.timestamp, queue_id=EVERY_QUEUE
        )
        for member in members:
            command = Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, pushed, oneway=True)
            member.connection.send_oneway(command)
        return Answer(body=fastjson.dumps(body), remark=NOT_SET)

    def _members(self, group_name: str) -> list[ClientChannel]:
        group = self.clients.consumers.get(group_name)
        return [] if group is None else list(group.channels.values())

    # What clients have in hand

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def consumer_status(self, request: GetConsumerStatus) -> Answer:
        """Asks the online members of a group, or one of them, which offset each has reached in its queues."""
        members = self._members(request.group)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{request.group}]")
        asked = [member for member in members if request.client_addr in (None, "", member.client_id)]
        tables = await asyncio.gather(*(self._status_of(member, request) for member in asked))
        found = {member.client_id: table for member, table in zip(asked, tables, strict=True) if table is not None}
        return Answer(body=fastjson.dumps(GetConsumerStatusBody(consumer_table=found)), remark=NOT_SET)

    async def _status_of(self, member: ClientChannel, request: GetConsumerStatus) -> dict[MessageQueue, int] | None:
        header = GetConsumerStatus(topic=request.topic, group=request.group)
        command = Command.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        try:
            answer = await member.connection.request(command, STATUS_TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return None
            return fastjson.loads(answer.body, type=GetConsumerStatusBody).message_queue_table
        except (RemotingError, WireError) as failure:
            log.warning("client %s did not tell its status: %s", member.client_id, failure)
            return None


def _for_cpp(body: ResetOffsetBody) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            ResetOffsetEntry(broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic)
            for queue, offset in body.offset_table.items()
        ]
    )

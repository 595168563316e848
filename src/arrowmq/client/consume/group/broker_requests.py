"""Requests that brokers make to a consumer, on its own connections."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, Protocol

from arrowmq.client.consume.pulling import Lock, PulledQueue
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.session import Session
from arrowmq.remoting.handlers import LATER, Answer, Call, Outcome
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import decode_record

if TYPE_CHECKING:
    from arrowmq.client.consume.group.membership import GroupMember

log = logging.getLogger("arrowmq.client")


class ConsumesDirectly(Protocol):
    async def consume_directly(self, message: ReceivedMessage) -> str: ...


class Callbacks:
    def __init__(self, session: Session, member: GroupMember, consumer: ConsumesDirectly) -> None:
        self._session = session
        self._member = member
        self._consumer = consumer
        listen = session.remoting.on_request
        listen(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        listen(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets)
        listen(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._tell_offsets)
        listen(RequestCode.GET_CONSUMER_RUNNING_INFO, self._tell_running_info)
        listen(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _members_changed(self, call: Call) -> Outcome:
        if call.ext.get("consumerGroup") == self._member.group:
            self._member.rebalance_soon()
        return None

    def _reset_offsets(self, call: Call) -> Outcome:
        if call.ext.get("group") != self._member.group:
            return self._not_here(call.ext.get("group"))
        table = fastjson.loads(call.body, ResetOffsetBody).offset_table
        log.info("%s resets the offsets of %s at %d queues", call.connection.peer_text, self._member.group, len(table))
        self._session.spawn(self._member.move(table), "reset offsets")
        return None

    def _tell_offsets(self, call: Call) -> Outcome:
        if call.ext.get("group") != self._member.group:
            return self._not_here(call.ext.get("group"))
        topic = call.ext.get("topic")
        offsets = {
            queue: self._member.committable(pulled)
            for queue, pulled in self._member.pulled.items()
            if queue.topic == topic
        }
        return Answer(body=fastjson.dumps(GetConsumerStatusBody(message_queue_table=offsets)))

    def _tell_running_info(self, call: Call) -> Outcome:
        if call.ext.get("consumerGroup") != self._member.group:
            return self._not_here(call.ext.get("consumerGroup"))
        info = running_info(self._member)
        if call.ext.get("jstackEnable") == "true":
            info.jstack = stacks()
        return Answer(body=fastjson.dumps(info))

    def _consume_directly(self, call: Call) -> Outcome:
        if call.ext.get("consumerGroup") != self._member.group:
            return self._not_here(call.ext.get("consumerGroup"))
        self._session.spawn(self._run_directly(call), "consume a message directly")
        return LATER

    async def _run_directly(self, call: Call) -> None:
        started = self._session.clock.monotonic()
        result = ConsumeMessageDirectlyResult(order=self._member.membership.is_orderly)
        try:
            message = ReceivedMessage(decode_record(call.body, check_crc=False), call.ext.get("brokerName", ""))
            result.consume_result = await self._consumer.consume_directly(message)
        except Exception as error:
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = "".join(traceback.format_exception(error))
        finally:
            result.spent_time_mills = round((self._session.clock.monotonic() - started) * 1000)
            call.reply(Answer(body=fastjson.dumps(result)))

    @staticmethod
    def _not_here(group: str | None) -> Answer:
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist in this consumer")


def running_info(member: GroupMember) -> ConsumerRunningInfo:
    session = member.session
    return ConsumerRunningInfo(
        properties={
            "PROP_CLIENT_VERSION": "V5_5_0",
            "PROP_CONSUMEORDERLY": "true" if member.membership.is_orderly else "false",
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY" if member.membership.is_active else "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms),
            "PROP_NAMESERVER_ADDR": ";".join(session.options.namesrv),
            "PROP_THREADPOOL_CORE_SIZE": "1",
        },
        subscription_set=[subscription.to_data() for subscription in member.subscriptions.values()],
        mq_table={queue: _queue_info(pulled) for queue, pulled in member.pulled.items()},
        status_table={topic: ConsumeStatus() for topic in _topics(member.pulled)},
    )


def _topics(pulled: dict[MessageQueue, PulledQueue]) -> set[str]:
    return {queue.topic for queue in pulled}


def _queue_info(pulled: PulledQueue) -> ProcessQueueInfo:
    held = pulled.process_queue
    return ProcessQueueInfo(
        cached_msg_count=held.count,
        cached_msg_max_offset=max(held.highest_offset, 0) if held.count else 0,
        cached_msg_min_offset=held.committable() if held.count else 0,
        cached_msg_size_in_mib=held.held_bytes // (1024 * 1024),
        commit_offset=max(held.committable(), 0),
        droped=pulled.is_dropped,
        last_consume_timestamp=pulled.last_consume_ms,
        last_pull_timestamp=pulled.last_pull_ms,
        locked=pulled.lock is Lock.HELD,
    )


def stacks() -> str:
    """What every thread of this process does now, as Java's jstack shows it."""
    parts = []
    for thread_id, frame in sys._current_frames().items():
        parts.append(f"TID: {thread_id}\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)

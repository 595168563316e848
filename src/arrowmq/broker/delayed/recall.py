"""Recall: a sender takes a timer message back before it is due.

The answer to the send carried a handle that says what and when. The recall is stored as a timer message of its own, a
delete mark for the same second; SUCCESS means that the mark is kept as any acknowledged message is. Off by default, as
in Apache's broker.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.names import SLAVE, is_retry_or_dlq
from arrowmq.broker.send.message_path import MessagePath, PutRefused
from arrowmq.broker.send.service import peer_address
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import Put, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import RecallMessage
from arrowmq.wire.ids import IdError, RecallHandle, parse_recall_handle
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record

RECALL_TAG = "_RECALL_TAG_"


@dataclass(eq=False, repr=False)
class RecallService:
    config: BrokerConfig
    address: BrokerAddress
    topics: Topics
    path: MessagePath
    clock: Clock

    @handles(RequestCode.RECALL_MESSAGE)
    def recall(self, request: RecallMessage, call: Call) -> Answer | Awaitable[Answer]:
        if not self.config.recall_message_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: recallMessageEnable is false here"
            )
        if self.config.broker_role == SLAVE:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available: it is a slave"
            )
        if self.topics.get(request.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{request.topic}] not exist")
        try:
            handle = parse_recall_handle(request.recall_handle)
        except IdError as fault:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, f"recall failed, recall handle is invalid: {fault}"
            ) from fault
        if handle.topic != request.topic or is_retry_or_dlq(request.topic):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self.config.broker_name:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available: another broker's"
            )
        left_ms = handle.deliver_ms - self.clock.now_ms()
        if not 0 < left_ms < self.config.timer_max_delay_sec * 1000:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid: the message is due or gone"
            )
        mark = Record(
            topic=request.topic,
            queue_id=0,
            born_timestamp=self.clock.now_ms(),
            born_host=peer_address(call.connection),
            store_host=self.address.store_host,
            body=b"0",
            properties_raw=encode_properties(
                {
                    keys.TAGS: RECALL_TAG,
                    keys.PGROUP: request.producer_group or "",
                    keys.TIMER_DELIVER_MS: str(handle.deliver_ms),
                    keys.TIMER_DEL_UNIQKEY: self._mark_of(handle),
                    keys.UNIQ_KEY: handle.unique_id,
                    keys.BORN_TIMESTAMP: str(self.clock.now_ms()),
                }
            ),
        )
        try:
            put = self.path.put(mark)
        except PutRefused as refused:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, refused.reason) from None
        if put.status is not PutStatus.PUT_OK:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"recall failed, {put.reason or put.status.name}")
        return self._when_kept(put, handle) if self.path.makes_wait else self._recalled(handle)

    async def _when_kept(self, put: Put, handle: RecallHandle) -> Answer:
        status = await self.path.kept(put)
        if status is PutStatus.PUT_OK:
            return self._recalled(handle)
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{status.name}: the recall is stored, but not yet on disk")

    def _recalled(self, handle: RecallHandle) -> Answer:
        return Answer(header={"msgId": handle.unique_id, keys.MSG_REGION: self.config.region_id})

    def _mark_of(self, handle: RecallHandle) -> str:
        with_topic = self.config.append_topic_for_timer_delete_key
        return f"{handle.topic}+{handle.unique_id}" if with_topic else handle.unique_id

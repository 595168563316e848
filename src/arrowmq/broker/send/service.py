"""Sends: one message or a batch, checked in Apache's order, bent by the rules of other capabilities, stored, answered.

A refusal begins with the words Apache's broker uses, because people search for them and tools compare them, and goes on
with which of its possible causes it was and what helps.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from arrowmq.broker import names
from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.apache_remarks import with_faq
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused
from arrowmq.broker.send.message_types import message_type
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import Put, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.batch import decode_batch
from arrowmq.wire.bodies import TopicConfig
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import RecordError
from arrowmq.wire.headers import SendMessage
from arrowmq.wire.ids import RecallHandle, UniqueIds
from arrowmq.wire.properties import MAX_BYTES, encode_properties, parse_properties
from arrowmq.wire.records import Record

PEER_ADDRESS = "send.peer_address"
# The broker's own; what a sender writes there is dropped.
REPLACED_PROPERTIES = (keys.POP_CK, keys.MSG_REGION, keys.TRACE_ON, keys.CLUSTER)

PUT_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}

PUT_REMARKS = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and "
    "enableMultiDispatch, lmq consumeQueue num exceed maxLmqConsumeQueueNum config num",
    PutStatus.UNKNOWN_ERROR: "UNKNOWN_ERROR",
}

# The message is in the log in all of these; the sender learns what was not achieved beyond that.
STORED = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT}
)


@dataclass(eq=False, repr=False)
class SendService:
    config: BrokerConfig
    address: BrokerAddress
    topics: Topics
    path: MessagePath
    stats: BrokerStats
    clock: Clock
    routed: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self.unique_ids = UniqueIds(self.address.ip, self.clock.now_ms)

    @handles(RequestCode.SEND_MESSAGE)
    @handles(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, read=SendMessage.from_v2_ext)
    def send(self, request: SendMessage, call: Call) -> Answer | Awaitable[Answer]:
        is_known = self.topics.get(request.topic) is not None
        try:
            topic = self.check(request, call)
            if request.batch:
                outcome = self._accept_batch(request, call, topic)
            else:
                outcome = self._accept_one(request, call, topic)
            must_save = self.topics.is_unsaved(request.topic) and not (is_known and self._has_messages(topic))
            if is_known and not must_save:
                return outcome
            return self._answer_when_settled(outcome, must_save=must_save, must_route=not is_known)
        except Refused as refused:
            self.stats.put_failed()
            if refused.header is None:
                refused.header = self.region()
            raise

    async def _answer_when_settled(
        self, outcome: Answer | Awaitable[Answer], *, must_save: bool, must_route: bool
    ) -> Answer:
        """The first messages of a topic. Who is told that one is there may at once start a consumer, which would not
        ask the NameServer a second time for half a minute; so the topic is in the route first, as with Apache's broker.
        And it is on disk first: after a crash our broker finds a topic again by the messages in its queues, if there
        are any and not only half, delayed or timed ones; Apache's, opening this store, goes by the table alone."""
        if must_save:
            await self.topics.saved()
        if must_route:
            await self.routed()
        return outcome if isinstance(outcome, Answer) else await outcome

    def _has_messages(self, topic: TopicConfig) -> bool:
        return self.path.store.has_messages(topic.topic_name, topic.write_queue_nums)

    def region(self) -> dict[str, str]:
        """What every answer to a send tells the client: where it is, and whether to trace."""
        return region_of(self.config)

    # Checks

    def check(self, request: SendMessage, call: Call) -> TopicConfig:
        """Settles topic and queue of a send, making the topic if the rules say so; raises `Refused`."""
        for gate in self.path.gates:
            gate()
        accepts_from_ms = self.config.start_accept_send_request_time_stamp
        if self.clock.now_ms() < accepts_from_ms:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {accepts_from_ms} (ms): startAcceptSendRequestTimeStamp says so",
            )
        topic = self.topics.get(request.topic)
        if not self.config.is_writable and topic is not None and topic.order:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.address.host}] sending message is forbidden: brokerPermission is "
                f"{self.config.broker_permission}, without write, and topic[{request.topic}] is an order topic",
            )
        if topic is None and (fault := names.topic_fault(request.topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if request.topic in names.SEND_FORBIDDEN_TOPICS:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{request.topic}] is forbidden. The broker writes this topic itself",
            )
        if topic is None:
            self._check_sizes(request, call.body)
            topic = self._create_topic(request)
        if request.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{request.queue_id}] is illegal, topic[{topic.topic_name}] has "
                f"{topic.write_queue_nums} write queues and {topic.read_queue_nums} read queues here. "
                f"Producer: {call.connection.peer_text}",
            )
        if request.queue_id < 0:
            request.queue_id = random.randrange(topic.write_queue_nums) if topic.write_queue_nums > 0 else 0
        if (topic.attributes or {}).get("queue.type") == "BatchCQ":
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden: its queue.type is BatchCQ, which this "
                "broker does not keep; create a topic of queue.type=SimpleCQ",
            )
        self._check_sizes(request, call.body)
        return topic

    def _create_topic(self, request: SendMessage) -> TopicConfig:
        if request.topic.startswith(names.RETRY_PREFIX):
            return self.topics.create_internal(request.topic, 1, unit=bool(request.unit_mode))
        outcome = self.topics.create_by_message(
            request.topic, request.default_topic, request.default_topic_queue_nums, unit=bool(request.unit_mode)
        )
        if isinstance(outcome, TopicConfig):
            return outcome
        raise Refused(
            ResponseCode.TOPIC_NOT_EXIST,
            with_faq(
                f"topic[{request.topic}] not exist, apply first please! {outcome}: create the topic with "
                f"`arrowmq topic create {request.topic}` or mqadmin updateTopic"
            ),
        )

    def _check_sizes(self, request: SendMessage, body: bytes) -> None:
        if not body:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, it has no body: RocketMQ stores no empty message outside of a batch",
            )
        limit = self.config.max_message_size
        if len(body) > limit:
            raise self._illegal(f"the body has {len(body)} bytes")
        if request.properties is not None and len(request.properties.encode("utf-8", "replace")) > MAX_BYTES:
            raise self._illegal("the properties are longer than that")

    def _illegal(self, reason: str) -> Refused:
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self.config.max_message_size}B, msg properties length limit 32KB. Here {reason}",
        )

    # One message

    def _accept_one(self, request: SendMessage, call: Call, topic: TopicConfig) -> Answer | Awaitable[Answer]:
        record = self.record_of(request, call, topic)
        for rule in self.path.rules:
            rule(request, record)
        if len(record.properties_raw) > MAX_BYTES:
            raise self._illegal(f"the properties have {len(record.properties_raw)} bytes with those the broker adds")
        unique_id = record.properties.get(keys.UNIQ_KEY, "")
        must_wait = self.path.makes_wait and record.properties.get(keys.WAIT) != "false"
        # The answer names the queue that was asked for, also of a message that waits elsewhere before it gets there.
        queue_id = request.queue_id
        put = self._put(record)
        # Counted where it lies: a message that waits elsewhere comes to its topic later, and is counted there then.
        self.stats.put(record.topic, record.queue_id, 1, put.size, message_type(record.properties))
        handle = self._recall_handle(request.topic, record)
        if must_wait:
            return self._answer_when_kept(put, queue_id, unique_id, handle)
        message_id = self.address.message_id(put.physical_offset)
        return self._answer(put.status, message_id, queue_id, put, unique_id, handle)

    def _recall_handle(self, topic: str, record: Record) -> str | None:
        """By what a sender can take a timer message back; a millisecond on, it names the same second as the message."""
        if record.topic != names.TIMER_TOPIC:
            return None
        deliver_ms = int(record.properties[keys.TIMER_OUT_MS]) + 1
        return RecallHandle(topic, self.config.broker_name, deliver_ms, record.properties[keys.UNIQ_KEY]).encode()

    def record_of(self, request: SendMessage, call: Call, topic: TopicConfig) -> Record:
        """The record of a single message, with the properties that the broker adds."""
        properties = parse_properties(request.properties or "")
        for name in REPLACED_PROPERTIES:
            properties.pop(name, None)
        if (
            topic.attributes
            and topic.attributes.get("cleanup.policy") == "COMPACTION"
            and not properties.get(keys.KEYS)
        ):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"Required message key is missing: topic[{topic.topic_name}] is compacted by key (cleanup.policy)",
            )
        properties.update(self.region())
        if not properties.get(keys.UNIQ_KEY):
            properties[keys.UNIQ_KEY] = self.unique_ids.next()
        properties[keys.CLUSTER] = self.config.broker_cluster_name
        return Record(
            topic=request.topic,
            queue_id=request.queue_id,
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=peer_address(call.connection),
            store_host=self.address.store_host,
            reconsume_times=request.reconsume_times or 0,
            body=call.body,
            properties_raw=encode_properties(properties),
        )

    def _put(self, record: Record) -> Put:
        try:
            put = self.path.put(record)
        except PutRefused as refused:
            raise Refused(
                PUT_CODES.get(refused.status, ResponseCode.SYSTEM_ERROR), refused.reason or refused.status.name
            ) from None
        return self._stored(put)

    def _stored(self, put: Put) -> Put:
        if put.status in STORED:
            return put
        if put.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            raise self._illegal(put.reason or "the record would be too long")
        remark = PUT_REMARKS.get(put.status, put.status.name)
        if put.reason:
            remark = f"{remark} {put.reason}"
        raise Refused(PUT_CODES.get(put.status, ResponseCode.SYSTEM_ERROR), remark)

    async def _answer_when_kept(self, put: Put, queue_id: int, unique_id: str, handle: str | None) -> Answer:
        status = await self.path.kept(put) if put.status is PutStatus.PUT_OK else put.status
        return self._answer(status, self.address.message_id(put.physical_offset), queue_id, put, unique_id, handle)

    def _answer(
        self,
        status: PutStatus,
        message_id: str,
        queue_id: int,
        put: Put,
        transaction_id: str | None,
        recall_handle: str | None = None,
    ) -> Answer:
        header = self.region()
        header["msgId"] = message_id
        header["queueId"] = str(queue_id)
        header["queueOffset"] = str(put.queue_offset)
        if transaction_id:
            header["transactionId"] = transaction_id
        if recall_handle:
            header["recallHandle"] = recall_handle
        remark = None
        if status is not PutStatus.PUT_OK:
            remark = not_safe_yet(status)
        return Answer(PUT_CODES[status], header, remark=remark)

    # A batch

    def _accept_batch(self, request: SendMessage, call: Call, topic: TopicConfig) -> Answer | Awaitable[Answer]:
        if request.topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {request.topic}")
        try:
            items = decode_batch(call.body)
        except RecordError as fault:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal, the batch cannot be read: {fault}"
            ) from fault
        born_host = peer_address(call.connection)
        records = [
            Record(
                topic=request.topic,
                queue_id=request.queue_id,
                flag=item.flag,
                sys_flag=request.sys_flag,
                born_timestamp=request.born_timestamp,
                born_host=born_host,
                store_host=self.address.store_host,
                reconsume_times=request.reconsume_times or 0,
                body=item.body,
                properties_raw=item.properties_raw,
            )
            for item in items
        ]
        for rule in self.path.batch_rules:
            for record in records:
                rule(request, record)
        batch_properties = parse_properties(request.properties or "")
        put = self._stored(self.path.put_batch(records))
        self.stats.put(request.topic, request.queue_id, len(records), put.size)
        return self._answer_batch(request, records, put, batch_properties)

    def _answer_batch(
        self, request: SendMessage, records: list[Record], put: Put, properties: dict[str, str]
    ) -> Answer | Awaitable[Answer]:
        message_ids = ",".join(self.address.message_id(record.physical_offset) for record in records)
        unique_id = properties.get(keys.UNIQ_KEY)
        if not self.path.must_wait(put, properties):
            return self._answer(put.status, message_ids, request.queue_id, put, unique_id)

        async def when_kept() -> Answer:
            return self._answer(await self.path.kept(put), message_ids, request.queue_id, put, unique_id)

        return when_kept()


def not_safe_yet(status: PutStatus) -> str:
    return f"{status.name}: the message is stored, but not yet as safely as the broker is set to promise"


def region_of(config: BrokerConfig) -> dict[str, str]:
    return {keys.MSG_REGION: config.region_id, keys.TRACE_ON: "true" if config.trace_on else "false"}


def peer_address(connection: Channel) -> tuple[bytes, int]:
    """A connection's peer as a record carries it."""
    known: tuple[bytes, int] | None = connection.attributes.get(PEER_ADDRESS)
    if known is None:
        host, port = connection.peer
        try:
            known = (ipaddress.ip_address(host.partition("%")[0]).packed, port)
        except ValueError:
            known = (bytes(4), 0)
        connection.attributes[PEER_ADDRESS] = known
    return known

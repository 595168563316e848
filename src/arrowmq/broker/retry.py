"""Retries and dead letters: a message that a group could not consume comes back later, and in the end is put aside.

A consumer sends a message back by its place in the log. The broker stores a copy under `%RETRY%group`, delayed by a
level that grows with each try; after the last try, or when the consumer gives up, under `%DLQ%group`. A consumer that
cannot reach the broker that way sends the copy itself, as an ordinary message to `%RETRY%group`; the same limits hold
there.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable
from dataclasses import dataclass

from arrowmq.auth.guard import Guard
from arrowmq.auth.resources import Action
from arrowmq.broker import names
from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.apache_remarks import with_faq
from arrowmq.broker.groups.queue_locks import QueueLocks
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.runtime.stats import DLQ_PUT_NUMS, SNDBCK_PUT_NUMS, BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused, set_properties
from arrowmq.broker.settings.config import WRITE, BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.touches import Touches
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import SubscriptionGroupConfig
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import ConsumerSendMsgBack, SendMessage
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, RecordError

log = logging.getLogger(__name__)

# Older clients send a maximum that they do not mean.
VERSION_WITH_MAXIMUM = 121  # V3_4_9
FIRST_RETRY_LEVEL = 3
DLQ_QUEUES = 1


def group_of_retry_topic(topic: str) -> str:
    """The group of `%RETRY%group`, also of the pop form `%RETRY%group+topic`."""
    return topic.removeprefix(names.RETRY_PREFIX).partition("+")[0]


@dataclass(eq=False, repr=False)
class RetryService:
    config: BrokerConfig
    address: BrokerAddress
    store: MessageStore
    topics: Topics
    groups: SubscriptionGroups
    locks: QueueLocks
    path: MessagePath
    stats: BrokerStats
    guard: Guard

    def __post_init__(self) -> None:
        self.path.rules.add(self.rule, Touches(topics=(f"{names.RETRY_PREFIX}*",)))

    # Sent back by its place in the log

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(self, request: ConsumerSendMsgBack, call: Call) -> Answer | Awaitable[Answer]:
        settings = self._settings(request.group)
        if not self.config.is_writable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.address.host}] sending message is forbidden: brokerPermission is "
                f"{self.config.broker_permission}, without write",
            )
        if settings.retry_queue_nums <= 0:
            return Answer()  # the group wants no retries: its failed messages are dropped
        retry_topic = self.topics.create_internal(
            names.retry_topic(request.group), settings.retry_queue_nums, unit=bool(request.unit_mode)
        )
        if not retry_topic.perm & WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{retry_topic.topic_name}] sending message is forbidden: its perm is {retry_topic.perm}",
            )
        failed = self._look_up(request.offset)
        is_own = names.is_retry_or_dlq(failed.topic) and group_of_retry_topic(failed.topic) == request.group
        if not is_own:  # else any message could be had by its place in the log
            self.guard.require_topic(call, failed.topic, Action.SUB)
        maximum = settings.retry_max_times
        if call.command.version >= VERSION_WITH_MAXIMUM and request.max_reconsume_times is not None:
            maximum = request.max_reconsume_times
        is_dead = failed.reconsume_times >= maximum or request.delay_level < 0
        copy = self._copy(failed, request, settings, is_dead=is_dead)
        return self._store(copy, request, is_dead=is_dead, original=failed)

    def _settings(self, group: str) -> SubscriptionGroupConfig:
        settings = self.groups.find(group)
        if settings is None:
            why = self.groups.why_not_created(group)
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, with_faq(f"subscription group not exist, {group}. {why}")
            )
        return settings

    def _look_up(self, physical_offset: int) -> Record:
        try:
            found = self.store.record_at(physical_offset)
        except RecordError as damage:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}: {damage}"
            ) from damage
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {physical_offset}: no message begins there (any more)",
            )
        return found

    def _copy(
        self, failed: Record, request: ConsumerSendMsgBack, settings: SubscriptionGroupConfig, *, is_dead: bool
    ) -> Record:
        properties = dict(failed.properties)
        properties.setdefault(keys.RETRY_TOPIC, failed.topic)
        properties[keys.WAIT] = "false"
        properties.setdefault(keys.ORIGIN_MESSAGE_ID, failed.offset_msg_id)
        if is_dead:
            topic = self._dead_letter_topic(request.group)
            queue_id = 0
            properties[keys.DELAY] = "0"
        else:
            topic = names.retry_topic(request.group)
            queue_id = random.randrange(settings.retry_queue_nums)
            properties[keys.DELAY] = str(request.delay_level or FIRST_RETRY_LEVEL + failed.reconsume_times)
        return Record(
            topic=topic,
            queue_id=queue_id,
            flag=failed.flag,
            sys_flag=failed.sys_flag,
            born_timestamp=failed.born_timestamp,
            born_host=failed.born_host,
            store_host=self.address.store_host,
            reconsume_times=failed.reconsume_times + 1,
            body=failed.body,
            properties_raw=encode_properties(properties),
        )

    def _dead_letter_topic(self, group: str) -> str:
        return self.topics.create_internal(names.dlq_topic(group), DLQ_QUEUES).topic_name

    def _store(
        self, copy: Record, request: ConsumerSendMsgBack, *, is_dead: bool, original: Record
    ) -> Answer | Awaitable[Answer]:
        try:
            put = self.path.put(copy)
        except PutRefused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{refused.status.name}: {refused.reason}") from None
        if put.status is not PutStatus.PUT_OK:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{put.status.name}: {put.reason or 'the copy was not stored'}")
        topic = original.properties.get(keys.RETRY_TOPIC, original.topic)
        self.stats.add(DLQ_PUT_NUMS if is_dead else SNDBCK_PUT_NUMS, f"{topic}@{request.group}")
        if is_dead:
            log.warning(
                "group[%s] gave up message %s of topic[%s] after %d tries: it is in %s",
                request.group,
                original.msg_id,
                topic,
                original.reconsume_times,
                names.dlq_topic(request.group),
            )
        return self._when_kept(put) if self.path.makes_wait else Answer()

    async def _when_kept(self, put: Put) -> Answer:
        """The consumer goes on from its offset when this is answered, so the copy must be as safe as any message."""
        status = await self.path.kept(put)
        if status is PutStatus.PUT_OK:
            return Answer()
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{status.name}: the copy is stored, but not yet on disk")

    # Sent by the consumer itself

    def rule(self, request: SendMessage, record: Record) -> None:
        """An ordinary send to `%RETRY%group` goes to the DLQ after the last try, or if the group consumes in order."""
        if not record.topic.startswith(names.RETRY_PREFIX):
            return
        group = group_of_retry_topic(record.topic)
        settings = self._settings(group)
        maximum = settings.retry_max_times if request.max_reconsume_times is None else request.max_reconsume_times
        if record.reconsume_times <= maximum and not self.locks.is_held(group):
            return
        properties = dict(record.properties)
        properties[keys.DELAY] = "0"
        record.topic = self._dead_letter_topic(group)
        record.queue_id = 0
        set_properties(record, properties)
        self.stats.add(DLQ_PUT_NUMS, f"{properties.get(keys.RETRY_TOPIC, request.topic)}@{group}")

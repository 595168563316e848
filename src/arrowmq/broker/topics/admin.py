"""Administration of topics: create, change, delete, list."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from arrowmq import refusals
from arrowmq.broker import names
from arrowmq.broker.apache_remarks import NOT_SET
from arrowmq.broker.topics.table import MESSAGE_TYPE, WrongAttribute, parse_attribute_changes
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    CreateTopicListBody,
    DataVersion,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
    TopicList,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import CreateTopic, DeleteTopic, GetAllTopicConfig, GetTopicConfig

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

log = logging.getLogger(__name__)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
MOST_QUEUES = 65_536


class TopicAdmin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = broker.config
        self.topics = broker.topics

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def update(self, request: CreateTopic, call: Call) -> Answer:
        wanted = TopicConfig(
            topic_name=request.topic,
            read_queue_nums=request.read_queue_nums,
            write_queue_nums=request.write_queue_nums,
            perm=request.perm,
            topic_filter_type=request.topic_filter_type,
            topic_sys_flag=request.topic_sys_flag or 0,
            order=request.order,
        )
        with self._timed(wanted):
            try:
                changes = parse_attribute_changes(request.attributes)
            except WrongAttribute as fault:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(fault)) from fault
            self._check(wanted, changes)
            self._update(wanted, changes, call)
            await self._settled()
        return Answer(remark=NOT_SET)

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    async def update_list(self, request: CreateTopicListBody, call: Call) -> Answer:
        wanted = request.topic_config_list
        changes = [
            {key if key[:1] in "+-" else f"+{key}": value for key, value in topic.attributes.items()}
            for topic in wanted
        ]
        with self._timed(*wanted):
            for topic, change in zip(wanted, changes, strict=True):
                self._check(topic, change)
            for topic, change in zip(wanted, changes, strict=True):
                self._update(topic, change, call)
            await self._settled()
        return Answer()

    def _timed(self, *wanted: TopicConfig) -> AbstractContextManager[None]:
        is_system = any(names.is_system_topic(topic.topic_name, self.config) for topic in wanted)
        return self.broker.creation_times.of_topic(is_system=is_system)

    async def _settled(self) -> None:
        """Returns when a change is on disk and in the routes: whoever asked for it relies on both next."""
        await self.topics.saved()
        await self.broker.registration.settled()

    def _check(self, wanted: TopicConfig, changes: dict[str, str]) -> None:
        topic = wanted.topic_name
        if (fault := names.topic_fault(topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if self.config.validate_system_topic_when_update_topic and names.is_system_topic(topic, self.config):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic. Choose another name",
            )
        if not 0 <= wanted.read_queue_nums <= MOST_QUEUES or not 0 <= wanted.write_queue_nums <= MOST_QUEUES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"readQueueNums={wanted.read_queue_nums}, writeQueueNums={wanted.write_queue_nums}: "
                f"0 to {MOST_QUEUES} are possible",
            )
        if not 0 <= wanted.perm <= 15:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"perm={wanted.perm} is no permission: 2 is write, 4 read, 6 both"
            )
        if wanted.topic_filter_type not in FILTER_TYPES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"topicFilterType={wanted.topic_filter_type} must be SINGLE_TAG or MULTI_TAG",
            )
        for key, value in changes.items():
            if (why := refusals.reason(refusals.TOPIC_ATTRIBUTES, key.removeprefix("+"), value)) is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, why)
        if changes.get(f"+{MESSAGE_TYPE}") == "MIXED" and not self.config.enable_mixed_message_type:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "MIXED message type is not supported. Set enableMixedMessageType=true on the broker to allow it",
            )

    def _update(self, wanted: TopicConfig, changes: dict[str, str], call: Call) -> None:
        is_new = self.topics.get(wanted.topic_name) is None
        try:
            is_changed = self.topics.update(wanted, changes)
        except WrongAttribute as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(fault)) from fault
        if is_changed:
            log.info(
                "topic %s topic=%s readQueues=%d writeQueues=%d perm=%d by=%s",
                "created" if is_new else "changed",
                wanted.topic_name,
                wanted.read_queue_nums,
                wanted.write_queue_nums,
                wanted.perm,
                call.connection.peer_text,
            )

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, request: DeleteTopic, call: Call) -> None:
        topic = request.topic
        if (fault := names.topic_fault(topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if self.config.validate_system_topic_when_update_topic and names.is_system_topic(topic, self.config):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic. It belongs to the broker and cannot be deleted",
            )
        doomed = [topic]
        if self.config.clear_retry_topic_when_delete_topic:
            for group in self.broker.offsets.groups_of(topic):
                doomed += [f"{names.RETRY_PREFIX}{group}_{topic}", f"{names.RETRY_PREFIX}{group}+{topic}"]
        for name in doomed:
            if name == topic or self.topics.get(name) is not None:
                self._forget(name)
                log.info("topic deleted topic=%s by=%s", name, call.connection.peer_text)
        await self.topics.saved()

    def _forget(self, topic: str) -> None:
        self.topics.delete(topic)
        self.broker.offsets.remove_topic(topic)
        self.broker.stats.forget_topic(topic)
        self.broker.longpoll.wake_all(topic)
        for look_again in self.broker.look_again:
            look_again(topic)
        self.broker.store.delete_topic(topic)

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_configs(self, request: GetAllTopicConfig) -> Answer:
        """All topics, or a page of them: brokers with very many topics are asked in parts."""
        table = self.topics.table
        asked_version = request.data_version or ""
        begin = request.topic_seq or 0
        if asked_version and fastjson.loads(asked_version, type=DataVersion) != self.topics.version:
            begin = 0
        page = list(table.items())
        if request.topic_seq is not None:
            page = page[begin : begin + (request.max_topic_num or self.config.split_metadata_size)]
        wrapper = TopicConfigSerializeWrapper(
            data_version=self.topics.version,
            mapping_data_version=DataVersion(timestamp=self.broker.boot_ms),
            topic_config_table=dict(page),
            topic_queue_mapping_detail_map={},
            topic_queue_mapping_info_map={},
        )
        return Answer(header={"totalTopicNum": str(len(table))}, body=fastjson.dumps(wrapper))

    @handles(RequestCode.GET_TOPIC_CONFIG)
    def one_config(self, request: GetTopicConfig) -> Answer:
        topic = self.topics.get(request.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {request.topic}")
        found = TopicConfigAndQueueMapping(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=topic.attributes,
        )
        return Answer(body=fastjson.dumps(found))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self) -> Answer:
        topics = sorted(names.SYSTEM_TOPICS | set(names.built_in_topics(self.config)))
        return Answer(body=fastjson.dumps(TopicList(topic_list=topics)))

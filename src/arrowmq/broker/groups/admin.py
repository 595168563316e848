"""Administration of subscription groups: create, change, delete, list, and what a group may not read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arrowmq import refusals
from arrowmq.broker import names
from arrowmq.broker.groups.table import PRIORITY_FACTOR, is_priority_factor
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    DataVersion,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import (
    CloneGroupOffset,
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroup,
    GetSubscriptionGroupConfig,
    UpdateGroupForbidden,
)

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


log = logging.getLogger(__name__)


class GroupAdmin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = broker.config
        self.groups = broker.groups

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def update(self, wanted: SubscriptionGroupConfig, call: Call) -> None:
        with self.broker.creation_times.of_group():
            self._check(wanted)
            self._update(wanted, call)
            await self.groups.saved()

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def update_list(self, wanted: SubscriptionGroupList, call: Call) -> None:
        with self.broker.creation_times.of_group():
            for group in wanted.group_config_list:
                self._check(group)
            for group in wanted.group_config_list:
                self._update(group, call)
            await self.groups.saved()

    def _update(self, wanted: SubscriptionGroupConfig, call: Call) -> None:
        what = "changed" if self.groups.get(wanted.group_name) is not None else "created"
        self.groups.update(wanted)
        log.info(
            "group %s group=%s consumeEnable=%s retryMaxTimes=%d retryQueueNums=%d by=%s",
            what,
            wanted.group_name,
            str(wanted.consume_enable).lower(),
            wanted.retry_max_times,
            wanted.retry_queue_nums,
            call.connection.peer_text,
        )

    def _check(self, wanted: SubscriptionGroupConfig) -> None:
        if (fault := names.group_fault(wanted.group_name)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        for signed_key, value in (wanted.attributes or {}).items():
            key = signed_key.lstrip("+-")
            why = refusals.reason(refusals.GROUP_ATTRIBUTES, key, value)
            if why is None and key != PRIORITY_FACTOR:
                why = f"unsupported key: {key}, a subscription group has no such attribute"
            if why is None and not signed_key.startswith("-") and not is_priority_factor(value):
                why = f"value is not in range(0, 100): {value!r} for {key}"
            if why is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, why)
        if wanted.retry_queue_nums < 0:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"retryQueueNums={wanted.retry_queue_nums} must not be negative; 0 drops retries",
            )

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, request: DeleteSubscriptionGroup, call: Call) -> None:
        """Deletes a group; its offsets stay unless asked otherwise, so that a mistake can be undone."""
        self.groups.delete(request.group_name)
        log.info(
            "group deleted group=%s offsets=%s by=%s",
            request.group_name,
            "deleted" if request.clean_offset else "kept",
            call.connection.peer_text,
        )
        self.broker.stats.forget_group(request.group_name)
        if request.clean_offset:
            self.broker.offsets.remove_group(request.group_name)
        await self.groups.saved()

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_configs(self, request: GetAllSubscriptionGroup) -> Answer:
        begin = request.group_seq or 0
        if request.data_version and fastjson.loads(request.data_version, type=DataVersion) != self.groups.version:
            begin = 0
        page = list(self.groups.table.items())
        if request.group_seq is not None:
            page = page[begin : begin + (request.max_group_num or self.config.split_metadata_size)]
        wrapper = SubscriptionGroupWrapper(
            data_version=self.groups.version,
            forbidden_table=self.groups.forbidden,
            subscription_group_table=dict(page),
        )
        return Answer(header={"totalGroupNum": str(len(self.groups.table))}, body=fastjson.dumps(wrapper))

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def one_config(self, request: GetSubscriptionGroupConfig) -> Answer:
        group = self.groups.get(request.group)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {request.group}")
        return Answer(body=fastjson.dumps(group))

    @handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    async def forbid(self, request: UpdateGroupForbidden) -> Answer:
        if request.readable is not None:
            self.groups.set_readable(request.group, request.topic, request.readable)
            await self.groups.saved()
        state = GroupForbidden(
            group=request.group, topic=request.topic, readable=self.groups.may_read(request.group, request.topic)
        )
        return Answer(body=fastjson.dumps(state))

    @handles(RequestCode.CLONE_GROUP_OFFSET)
    async def clone_offset(self, request: CloneGroupOffset) -> None:
        """Copies a group's offsets; without a topic, those of all its topics (Apache's broker copies none then)."""
        offsets = self.broker.offsets
        topics = [request.topic] if request.topic else offsets.topics_of(request.src_group)
        for topic in topics:
            if self.broker.topics.get(topic) is not None:
                offsets.clone(request.src_group, request.dest_group, topic)
        await offsets.persist_if_changed()

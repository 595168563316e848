"""Administration of consumer groups: settings, members, offsets, lag."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from arrowmq.client import names
from arrowmq.client.admin.cluster import ClusterAdmin, text
from arrowmq.client.errors import ArrowMQError, InvalidUse, Refused
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    OffsetWrapper,
    ProducerConnection,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from arrowmq.wire.bodies.admin import InFlight
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue

_ASK_CLIENT_TIMEOUT_S = 12.0


class GroupAdmin(ClusterAdmin):
    async def create_group(
        self, /, group: str, *, cluster: str | None = None, broker: str | None = None, **settings: bool | int | str
    ) -> SubscriptionGroupConfig:
        """Create the group, or change it. `settings` are those of SubscriptionGroupConfig: retry_max_times=3, say."""
        names.check_group(group)
        known = {field.name for field in msgspec.structs.fields(SubscriptionGroupConfig)}
        if unknown := set(settings) - known:
            raise InvalidUse(
                f"unknown group settings {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
            )
        config = msgspec.convert({"groupName": self.namespace.wrap(group)}, SubscriptionGroupConfig)
        config = msgspec.structs.replace(config, **settings)
        for address in (await self.targets(cluster, broker)).values():
            await self.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, fastjson.dumps(config))
        return config

    async def delete_group(self, group: str, *, with_offsets: bool = True, cluster: str | None = None) -> None:
        ext = text(groupName=self.namespace.wrap(group), cleanOffset=with_offsets)
        for address in (await self.targets(cluster, None)).values():
            await self.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)

    async def groups(self) -> list[str]:
        """All groups that some broker knows, without RocketMQ's own."""
        found: set[str] = set()
        for address in (await self.masters()).values():
            sequence = 0
            while True:
                ext = text(groupSeq=sequence, maxGroupNum=2000)
                answer = await self.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext)
                page = fastjson.loads(answer.body, SubscriptionGroupWrapper).subscription_group_table
                found.update(page)
                sequence += len(page)
                if not page or sequence >= int(answer.ext.get("totalGroupNum", "0")):
                    break
        own = (
            group
            for group in found
            if not group.startswith(names.SYSTEM_GROUP_PREFIX) and group not in names.SYSTEM_GROUPS
        )
        return sorted(self.namespace.unwrap(group) for group in own)

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Broker name → the group's settings there."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for broker_name, address in (await self.masters()).items():
            name = self.namespace.wrap(group)
            answer = await self.call(
                address,
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
                {"group": name},
                accept=(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
            )
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a 4.9 broker tells of all or none
                code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
                known = await self.call_body(address, code, None, SubscriptionGroupWrapper)
                if name in known.subscription_group_table:
                    found[broker_name] = known.subscription_group_table[name]
            elif not answer.code:
                found[broker_name] = fastjson.loads(answer.body, SubscriptionGroupConfig)
        if not found:
            raise ArrowMQError(f"group {group} does not exist on any broker: `arrowmq group create {group}`")
        return found

    # -- members

    async def consumers(self, group: str) -> ConsumerConnection:
        """Who is online in the group, and what they subscribe to. Raises `Refused` when nobody is."""
        refused: Refused | None = None
        for address in (await self.masters()).values():
            ext = {"consumerGroup": self.namespace.wrap(group)}
            try:
                return await self.call_body(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ext, ConsumerConnection)
            except Refused as error:
                refused = error
        assert refused is not None
        raise refused

    async def producers(self, group: str, topic: str) -> ProducerConnection:
        """Who is online in a producer group, by a broker of the topic it sends to."""
        route = await self.route(topic)
        address = next(iter(route.addresses.values()))[0]
        ext = {"producerGroup": self.namespace.wrap(group)}
        return await self.call_body(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, ext, ProducerConnection)

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """What one member holds and does; the broker asks it."""
        ext = text(consumerGroup=self.namespace.wrap(group), clientId=client_id, jstackEnable=with_stacks)
        code, timeout_s = RequestCode.GET_CONSUMER_RUNNING_INFO, _ASK_CLIENT_TIMEOUT_S
        answer = await self.call(await self._broker_of_member(group, client_id), code, ext, timeout_s=timeout_s)
        return fastjson.loads(answer.body, ConsumerRunningInfo)

    async def consume_directly(self, group: str, client_id: str, offset_msg_id: str) -> ConsumeMessageDirectlyResult:
        """Let one member consume one message on the spot; offsets stay as they are."""
        ext = text(consumerGroup=self.namespace.wrap(group), clientId=client_id, msgId=offset_msg_id)
        code, timeout_s = RequestCode.CONSUME_MESSAGE_DIRECTLY, _ASK_CLIENT_TIMEOUT_S
        answer = await self.call(await self._broker_of_member(group, client_id), code, ext, timeout_s=timeout_s)
        return fastjson.loads(answer.body, ConsumeMessageDirectlyResult)

    async def _broker_of_member(self, group: str, client_id: str) -> str:
        for address in (await self.masters()).values():
            ext = {"consumerGroup": self.namespace.wrap(group)}
            try:
                found = await self.call_body(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ext, ConsumerConnection)
            except Refused:
                continue
            if any(connection.client_id == client_id for connection in found.connection_set):
                return address
        raise ArrowMQError(f"no broker knows a member {client_id} of group {group}: is it running?")

    # -- progress

    async def consume_stats(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
        """Per queue: the broker's end, the group's offset, and the time of the message there."""
        found: dict[MessageQueue, OffsetWrapper] = {}
        ext = text(consumerGroup=self.namespace.wrap(group), topic=self.namespace.wrap(topic) if topic else "")
        for address in (await self.masters()).values():
            try:
                stats = await self.call_body(address, RequestCode.GET_CONSUME_STATS, ext, ConsumeStats)
            except Refused as refused:
                if refused.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
                    raise
                continue
            found.update(stats.offset_table)
        return dict(sorted(found.items()))

    async def in_flight(
        self, group: str, topic: str | None = None, *, address: str | None = None
    ) -> tuple[list[InFlight], int]:
        """What the group has popped and not acknowledged: the oldest of it, and how many messages. Apache's brokers do
        not tell."""
        found: list[InFlight] = []
        total = 0
        ext = text(consumerGroup=self.namespace.wrap(group), topic=self.namespace.wrap(topic) if topic else "")
        for each in [address] if address is not None else (await self.masters()).values():
            stats = await self.call_body(each, RequestCode.GET_CONSUME_STATS, ext, ConsumeStats)
            found += stats.arrowmq_in_flight or ()
            total += stats.arrowmq_in_flight_total or 0
        return sorted(found, key=lambda each: each.pop_time), total

    async def lag(self, group: str, topic: str | None = None) -> dict[MessageQueue, int]:
        """Per queue, how many messages the group has not consumed yet."""
        stats = await self.consume_stats(group, topic)
        return {queue: max(0, each.broker_offset - max(0, each.consumer_offset)) for queue, each in stats.items()}

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: datetime | float | int | Literal["first", "last"],
        *,
        force: bool = True,
    ) -> Mapping[MessageQueue, int]:
        """Set the group back (or on) to a time, the first or the last message of every queue; gives the new offsets.

        `to` is a datetime, seconds since 1970, "first" or "last".
        """
        if isinstance(to, datetime):
            timestamp = round(to.timestamp() * 1000)
        elif to == "last":
            timestamp = -1
        elif to == "first":
            timestamp = 0
        else:
            timestamp = round(float(to) * 1000)
        route = await self.route(topic)
        ext = text(
            topic=route.topic,
            group=self.namespace.wrap(group),
            timestamp=timestamp,
            isForce=force,
            queueId=-1,
            offset=-1,
        )
        moved: dict[MessageQueue, int] = {}
        for by_id in route.addresses.values():
            if 0 in by_id:
                answer = await self.call(by_id[0], RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
                moved.update(fastjson.loads(answer.body, ResetOffsetBody).offset_table)
        return dict(sorted(moved.items()))

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset for a group whose members are offline (a running member would overwrite it)."""
        route = await self.route(queue.topic)
        address = route.master(queue.broker_name)
        if address is None:
            raise ArrowMQError(f"broker {queue.broker_name} has no master now; its offsets cannot be changed")
        ext = text(
            consumerGroup=self.namespace.wrap(group), topic=queue.topic, queueId=queue.queue_id, commitOffset=offset
        )
        await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group, or None."""
        route = await self.route(queue.topic)
        reader = route.reader(queue.broker_name)
        if reader is None:
            raise ArrowMQError(f"broker {queue.broker_name} is not in the route of {queue.topic}")
        ext = text(
            consumerGroup=self.namespace.wrap(group),
            topic=queue.topic,
            queueId=queue.queue_id,
            setZeroIfNotFound=False,
        )
        answer = await self.call(
            reader[1], RequestCode.QUERY_CONSUMER_OFFSET, ext, accept=(ResponseCode.QUERY_NOT_FOUND,)
        )
        return None if answer.code else int(answer.ext["offset"])

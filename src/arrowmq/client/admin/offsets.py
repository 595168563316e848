"""Resetting offsets in two steps: a plan that shows what would change, queue by queue, and its execution."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from arrowmq.client.admin.cluster import text
from arrowmq.client.admin.groups import GroupAdmin
from arrowmq.client.errors import ArrowMQError
from arrowmq.wire.bodies import TopicStatsTable
from arrowmq.wire.codes import V5_0_0, RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue

Target = datetime | int | Literal["first", "last"]


class PlannedReset(msgspec.Struct, frozen=True):
    """One queue of a plan; `current` is None if the group never consumed it."""

    queue: MessageQueue
    first: int
    last: int
    current: int | None
    target: int


class OffsetAdmin(GroupAdmin):
    async def plan_reset(
        self, group: str, topic: str, to: Target, *, queues: Iterable[MessageQueue] | None = None
    ) -> list[PlannedReset]:
        """What a reset would do: to a time, an offset, or either end of each queue. Changes nothing.

        An offset or a time that a queue does not reach becomes the nearest end of it.
        """
        route = await self.route(topic)
        wanted = None if queues is None else {(queue.broker_name, queue.queue_id) for queue in queues}
        planned: list[PlannedReset] = []
        for broker_name in sorted(route.addresses):
            address = route.master(broker_name)
            if address is None:
                raise ArrowMQError(f"broker {broker_name} has no master now: its offsets cannot be reset")
            ext = {"topic": route.topic}
            table = await self.call_body(address, RequestCode.GET_TOPIC_STATS_INFO, ext, TopicStatsTable)
            for queue, limits in sorted(table.offset_table.items()):
                if wanted is not None and (queue.broker_name, queue.queue_id) not in wanted:
                    continue
                target = await self._target(address, queue, to, limits.min_offset, limits.max_offset)
                current = await self.committed(group, queue)
                planned.append(PlannedReset(queue, limits.min_offset, limits.max_offset, current, target))
        if not planned:
            raise ArrowMQError(f"topic {topic} has no such queue; `arrowmq topic show {topic}` lists them")
        return planned

    async def _target(self, address: str, queue: MessageQueue, to: Target, first: int, last: int) -> int:
        if to == "first":
            return first
        if to == "last":
            return last
        if isinstance(to, datetime):
            ext = text(topic=queue.topic, queueId=queue.queue_id, timestamp=round(to.timestamp() * 1000))
            answer = await self.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
            return min(max(int(answer.ext["offset"]), first), last)
        return min(max(int(to), first), last)

    async def apply_reset(self, group: str, plan: Iterable[PlannedReset]) -> None:
        """Carry out a plan. Members that run go on from the new offsets with their next pull."""
        for step in plan:
            address = (await self.route(step.queue.topic)).master(step.queue.broker_name)
            if address is None:
                raise ArrowMQError(f"broker {step.queue.broker_name} has no master now: its offsets cannot be reset")
            name = self.namespace.wrap(group)
            if await self._is_before_5(address):
                await self._commit_offline(address, name, step)
                continue
            ext = text(
                topic=step.queue.topic,
                group=name,
                timestamp=-1,
                isForce=True,
                queueId=step.queue.queue_id,
                offset=step.target,
            )
            await self.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets that another one has in a topic; its members must be offline."""
        route = await self.route(topic)
        for broker_name in sorted(route.addresses):
            address = route.master(broker_name)
            if address is None:
                raise ArrowMQError(f"broker {broker_name} has no master now: its offsets cannot be cloned")
            ext = text(
                srcGroup=self.namespace.wrap(source),
                destGroup=self.namespace.wrap(target),
                topic=route.topic,
                offline=True,
            )
            await self.call(address, RequestCode.CLONE_GROUP_OFFSET, ext)

    async def _is_before_5(self, address: str) -> bool:
        """A broker from before RocketMQ 5 would take a reset of one queue for one of all queues, to their ends."""
        return int((await self.broker_runtime(address)).get("brokerVersion", V5_0_0)) < V5_0_0

    async def _commit_offline(self, address: str, group: str, step: PlannedReset) -> None:
        code, online = RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE
        members = await self.call(address, code, {"consumerGroup": group}, accept=(online, ResponseCode.SYSTEM_ERROR))
        if not members.code:
            raise ArrowMQError(
                f"group {group} has members online, and the broker at {address} is older than RocketMQ 5: it cannot "
                "move single queues of running members. Stop them, reset, and start them again"
            )
        queue = step.queue
        ext = text(consumerGroup=group, topic=queue.topic, queueId=queue.queue_id, commitOffset=step.target)
        await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

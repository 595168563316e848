"""Looking across all brokers of a cluster: every topic, every group's progress, every client, any topic's index.

What Apache's tools ask broker by broker, asked of all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from arrowmq.client.admin.cluster import ClusterAdmin, text
from arrowmq.client.errors import Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    ConsumerConnection,
    ConsumeStatsList,
    OffsetWrapper,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import decode_records

PAGE = 2000
AT_ONCE = 32
_QUERY_TIMEOUT_S = 6.0
_LATEST_MS = (1 << 63) - 1

_K = TypeVar("_K")
_V = TypeVar("_V")


async def each_of(items: Iterable[_K], ask: Callable[[_K], Awaitable[_V]]) -> dict[_K, _V]:
    """Ask about many things at once, but not about all of them at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: _K) -> tuple[_K, _V]:
        async with gate:
            return item, await ask(item)

    return dict(await asyncio.gather(*(one(item) for item in items)))


class InspectAdmin(ClusterAdmin):
    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """All topics of one broker with their settings, its own topics among them."""
        found: dict[str, TopicConfig] = {}
        while True:
            ext = text(topicSeq=len(found), maxTopicNum=PAGE)
            answer = await self.call(address, RequestCode.GET_ALL_TOPIC_CONFIG, ext)
            page = fastjson.loads(answer.body, TopicConfigSerializeWrapper).topic_config_table
            is_new = bool(page.keys() - found.keys())
            found.update(page)
            if not is_new or len(found) >= int(answer.ext.get("totalTopicNum", "0")):
                return found

    async def topic_stats_at(self, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Each queue of the topic at one broker: its first and next offset, and when it was last written."""
        ext = {"topic": self.namespace.wrap(topic)}
        stats = await self.call_body(address, RequestCode.GET_TOPIC_STATS_INFO, ext, TopicStatsTable)
        return dict(sorted(stats.offset_table.items()))

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of one broker with their settings, its own groups among them."""
        found: dict[str, SubscriptionGroupConfig] = {}
        while True:
            ext = text(groupSeq=len(found), maxGroupNum=PAGE)
            answer = await self.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext)
            page = fastjson.loads(answer.body, SubscriptionGroupWrapper).subscription_group_table
            is_new = bool(page.keys() - found.keys())
            found.update(page)
            if not is_new or len(found) >= int(answer.ext.get("totalGroupNum", "0")):
                return found

    async def progress_of_groups(self, address: str) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
        """Group → queue → progress, of every group with offsets at this broker; two requests, however many groups."""
        found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
        for is_order in (False, True):
            ext = text(isOrder=is_order)
            body = await self.call_body(address, RequestCode.GET_BROKER_CONSUME_STATS, ext, ConsumeStatsList)
            for by_group in body.consume_stats_list:
                for group, topics in by_group.items():
                    for stats in topics:
                        found.setdefault(group, {}).update(stats.offset_table)
        return found

    async def consumers_at(self, address: str, group: str) -> ConsumerConnection | None:
        """The members of a group that this broker knows; None if there is none."""
        ext = {"consumerGroup": self.namespace.wrap(group)}
        answer = await self.call(
            address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ext, accept=(ResponseCode.CONSUMER_NOT_ONLINE,)
        )
        return None if answer.code else fastjson.loads(answer.body, ConsumerConnection)

    async def producers_at(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Producer group → its members, at one broker."""
        return (await self.call_body(address, RequestCode.GET_ALL_PRODUCER_INFO, None, ProducerTableInfo)).data

    async def indexed_at(
        self, address: str, broker_name: str, topic: str, key: str, *, is_unique: bool, max_count: int = 64
    ) -> list[ReceivedMessage]:
        """Messages of a topic by key or unique id at one broker, whether the topic has a route or not."""
        ext = text(topic=topic, key=key, maxNum=max_count, beginTimestamp=0, endTimestamp=_LATEST_MS)
        ext["_UNIQUE_KEY_QUERY"] = "true" if is_unique else "false"
        answer = await self.call(
            address,
            RequestCode.QUERY_MESSAGE,
            ext,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
            timeout_s=_QUERY_TIMEOUT_S,
        )
        if answer.code:
            return []
        found = [ReceivedMessage(record, broker_name) for record in decode_records(bytes(answer.body))]
        # The index knows hashes only: what does not truly carry the key is left out.
        return [each for each in found if (each.msg_id == key if is_unique else key in each.keys)]

    async def queue_entries(
        self, address: str, topic: str, queue_id: int, offset: int, count: int = 1, group: str = ""
    ) -> QueryConsumeQueueBody | None:
        """Entries of a consume queue; with a group, whether its filter passes them. None if the broker refuses.

        It refuses for groups without a member online: their filter is not known then.
        """
        ext = text(topic=topic, queueId=queue_id, index=offset, count=count, consumerGroup=group or None)
        try:
            return await self.call_body(address, RequestCode.QUERY_CONSUME_QUEUE, ext, QueryConsumeQueueBody)
        except Refused:
            return None

"""Administration of topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from arrowmq.client import names
from arrowmq.client.admin.cluster import ClusterAdmin, joined, text
from arrowmq.client.errors import ArrowMQError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.client")

PERM_READ_WRITE = 6
ROUTE_WAIT_S = 5.0


class TopicAdmin(ClusterAdmin):
    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Create the topic, or change it, on one broker, one cluster, or every master.

        `attributes` such as {"message.type": "FIFO"} are set; with an empty value they are removed.
        """
        names.check_topic(topic)
        if queues < 1:
            raise ArrowMQError(f"a topic has at least one queue, not {queues}")
        changes = [f"+{key}={value}" if value else f"-{key}" for key, value in (attributes or {}).items()]
        ext = text(
            topic=self.namespace.wrap(topic),
            defaultTopic=names.AUTO_CREATE_TOPIC,
            readQueueNums=queues if read_queues is None else read_queues,
            writeQueueNums=queues if write_queues is None else write_queues,
            perm=perm,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=order,
            attributes=joined(changes),
        )
        targets = await self.targets(cluster, broker)
        for address in targets.values():
            await self.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        await self._await_route(self.namespace.wrap(topic), set(targets.values()))

    async def _await_route(self, topic: str, addresses: set[str]) -> None:
        """Brokers tell the NameServers a moment later; whoever creates a topic wants to use it at once."""
        deadline = self.session.clock.monotonic() + ROUTE_WAIT_S
        pause_s = 0.005
        while True:
            route = await self.session.fetch_route(topic)
            known = (
                set()
                if route is None
                else {address for by_id in route.addresses.values() for address in by_id.values()}
            )
            if addresses <= known:
                return
            if self.session.clock.monotonic() > deadline:
                log.warning(
                    "topic %s is created, but the NameServer does not show it on all of %s yet", topic, addresses
                )
                return
            await self.session.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.25)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Remove the topic from every broker and from the NameServers. Its messages are gone."""
        name = self.namespace.wrap(topic)
        for address in (await self.targets(cluster, None)).values():
            await self.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        for address in self.session.options.namesrv:
            await self.call(
                address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": name}, accept=(ResponseCode.TOPIC_NOT_EXIST,)
            )

    async def topics(self, *, with_system: bool = False) -> list[str]:
        """All topics that the NameServer knows; without the brokers' own unless asked for."""
        self.session.check_usable()
        answer = await self.session.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        found = set(fastjson.loads(answer.body, TopicList).topic_list)
        if not with_system:
            system = await self.session.ask_namesrv(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            found -= set(fastjson.loads(system.body, TopicList).topic_list)
            found = {
                topic
                for topic in found
                if not names.is_system_topic(topic)
                and not topic.endswith("_REPLY_TOPIC")
                and not topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
            }
        return sorted(self.namespace.unwrap(topic) for topic in found)

    async def topic_config(self, topic: str, *, broker: str | None = None) -> dict[str, TopicConfig]:
        """Broker name → the topic's settings there."""
        name = self.namespace.wrap(topic)
        found: dict[str, TopicConfig] = {}
        for broker_name, address in (await self.targets(None, broker)).items():
            answer = await self.call(
                address,
                RequestCode.GET_TOPIC_CONFIG,
                {"topic": name, "lo": "true"},
                accept=(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
            )
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a 4.9 broker tells of all or none
                known = await self.call_body(
                    address, RequestCode.GET_ALL_TOPIC_CONFIG, None, TopicConfigSerializeWrapper
                )
                if name in known.topic_config_table:
                    found[broker_name] = known.topic_config_table[name]
            elif not answer.code:
                found[broker_name] = fastjson.loads(answer.body, TopicConfigAndQueueMapping)
        if not found:
            raise ArrowMQError(f"topic {topic} does not exist on any broker: `arrowmq topic create {topic}`")
        return found

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Each queue's first and next offset, and when it was last written."""
        route = await self.route(topic)
        found: dict[MessageQueue, TopicOffset] = {}
        for broker_name in route.addresses:
            reader = route.reader(broker_name)
            if reader is not None:
                stats = await self.call_body(
                    reader[1], RequestCode.GET_TOPIC_STATS_INFO, {"topic": route.topic}, TopicStatsTable
                )
                found.update(stats.offset_table)
        return dict(sorted(found.items()))

    async def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that consume this topic, or did."""
        route = await self.route(topic)
        found: set[str] = set()
        for broker_name in route.addresses:
            reader = route.reader(broker_name)
            if reader is not None:
                ext = {"topic": route.topic}
                body = await self.call_body(reader[1], RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext, GroupList)
                found.update(body.group_list)
        return sorted(self.namespace.unwrap(group) for group in found)

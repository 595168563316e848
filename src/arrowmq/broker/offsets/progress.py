"""How far things are: queues of a topic, groups in their topics, entries of a consume queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.broker.apache_remarks import NOT_SET
from arrowmq.broker.groups.subscriptions import compiled
from arrowmq.broker.pop.in_flight import in_flight_of
from arrowmq.broker.runtime.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS
from arrowmq.filter import is_tag_type
from arrowmq.remoting.handlers import Answer, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import (
    GetConsumeStats,
    GetConsumeStatsInBroker,
    GetTopicStatsInfo,
    QueryConsumeQueue,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
)
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

MOST_ENTRIES = 1000


class ProgressAdmin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.store = broker.store
        self.topics = broker.topics
        self.offsets = broker.offsets

    def _topic(self, name: str) -> TopicConfig:
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.broker.config.broker_name, queue_id)

    @handles(RequestCode.GET_TOPIC_STATS_INFO)
    def topic_stats(self, request: GetTopicStatsInfo) -> Answer:
        topic = self._topic(request.topic)
        table = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            end = self.store.max_offset(topic.topic_name, queue_id)
            last_ms = self.store.store_time(topic.topic_name, queue_id, end - 1) if end > 0 else 0
            table[self._queue(topic.topic_name, queue_id)] = TopicOffset(
                min_offset=self.store.min_offset(topic.topic_name, queue_id),
                max_offset=end,
                last_update_timestamp=max(last_ms, 0),
            )
        rate = self.broker.stats.per_second(TOPIC_PUT_NUMS, topic.topic_name)
        return Answer(body=fastjson.dumps(TopicStatsTable(offset_table=table, topic_put_tps=rate)))

    @handles(RequestCode.GET_CONSUME_STATS)
    def consume_stats(self, request: GetConsumeStats) -> Answer:
        topics = request.topics() or self.offsets.topics_of(request.consumer_group)
        stats = ConsumeStats()
        for name in topics:
            self._add_progress(stats, request.consumer_group, name)
        services = self.broker.services
        in_flight, total = in_flight_of(
            services.pop_revive.table, services.pop_order, request.consumer_group, set(topics)
        )
        if total:
            stats.arrowmq_in_flight, stats.arrowmq_in_flight_total = in_flight, total
        return Answer(body=fastjson.dumps(stats))

    def _add_progress(self, stats: ConsumeStats, group: str, name: str) -> None:
        topic = self.topics.get(name)
        online = self.broker.clients.consumers.get(group)
        if topic is None or (online is not None and online.subscriptions and name not in online.subscriptions):
            return
        for queue_id in range(topic.read_queue_nums):
            stats.offset_table[self._queue(name, queue_id)] = self._progress(group, name, queue_id)
        stats.consume_tps += self.broker.stats.per_second(GROUP_GET_NUMS, f"{name}@{group}")

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(self.offsets.get(group, topic, queue_id) or 0, 0)
        pulled = self.offsets.pull_offset(group, topic, queue_id) or 0
        last_ms = self.store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(
            broker_offset=self.store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(pulled, consumed),
            last_timestamp=max(last_ms, 0),
        )

    @handles(RequestCode.GET_BROKER_CONSUME_STATS)
    def broker_consume_stats(self, request: GetConsumeStatsInBroker) -> Answer:
        """The progress of every group in every topic it has offsets for; a group without any is listed as well."""
        result = ConsumeStatsList(broker_addr=self.broker.address.text)
        topics = self.offsets.topics_by_group()
        for group in list(self.broker.groups.table):
            per_topic = []
            for name in topics.get(group, ()):
                topic = self.topics.get(name)
                if topic is None or topic.order != request.is_order:
                    continue
                stats = ConsumeStats()
                self._add_progress(stats, group, name)
                for progress in stats.offset_table.values():
                    result.total_diff += progress.broker_offset - progress.consumer_offset
                    result.total_inflight_diff += progress.pull_offset - progress.consumer_offset
                per_topic.append(stats)
            result.consume_stats_list.append({group: per_topic})
        return Answer(body=fastjson.dumps(result))

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def consume_time_span(self, request: QueryConsumeTimeSpan) -> Answer:
        topic = self._topic(request.topic)
        spans = []
        now_ms = self.broker.clock.now_ms()
        for queue_id in range(topic.read_queue_nums):
            begin = self.store.min_offset(topic.topic_name, queue_id)
            end = self.store.max_offset(topic.topic_name, queue_id)
            consumed = self.offsets.get(request.group, topic.topic_name, queue_id) or 0
            first_ms = self.store.store_time(topic.topic_name, queue_id, begin)
            last_ms = self.store.store_time(topic.topic_name, queue_id, end - 1)
            consumed_ms = self.store.store_time(topic.topic_name, queue_id, consumed - 1) if consumed > 0 else first_ms
            waiting_ms = self.store.store_time(topic.topic_name, queue_id, consumed) if consumed < end else -1
            spans.append(
                QueueTimeSpan(
                    message_queue=self._queue(topic.topic_name, queue_id),
                    min_time_stamp=first_ms,
                    max_time_stamp=last_ms,
                    consume_time_stamp=consumed_ms,
                    delay_time=max(0, now_ms - waiting_ms) if waiting_ms > 0 else 0,
                )
            )
        return Answer(body=fastjson.dumps(QueryConsumeTimeSpanBody(consume_time_span_set=spans)))

    @handles(RequestCode.QUERY_CORRECTION_OFFSET)
    def correction_offset(self, request: QueryCorrectionOffset) -> Answer:
        """The smallest offset of each queue over the groups of a topic, seen from the group that is compared."""
        left_out = {name.strip() for name in (request.filter_groups or "").split(",") if name.strip()}
        smallest: dict[int, int] = {}
        compared = self.offsets.queues(request.compare_group, request.topic)
        for group in self.offsets.groups_of(request.topic):
            if group in left_out:
                continue
            for queue_id, offset in self.offsets.queues(group, request.topic).items():
                if queue_id in compared:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, compared[queue_id]))
        return Answer(body=fastjson.dumps(QueryCorrectionOffsetBody(correction_offsets=smallest or compared)))

    @handles(RequestCode.QUERY_CONSUME_QUEUE)
    def consume_queue(self, request: QueryConsumeQueue) -> Answer:
        """Entries of a consume queue and, for a group that is online, whether its filter would pass them."""
        name, queue_id = request.topic, request.queue_id
        if request.index < 0 or not 0 < request.count <= MOST_ENTRIES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"index={request.index}, count={request.count}: an index begins at 0, the count ends at {MOST_ENTRIES}",
            )
        self._topic(name)
        begin, end = self.store.min_offset(name, queue_id), self.store.max_offset(name, queue_id)
        body = QueryConsumeQueueBody(min_queue_index=begin, max_queue_index=end)
        matches = None
        if request.consumer_group:
            body.subscription_data = self._subscription(request.consumer_group, name)
            if body.subscription_data is None:
                body.filter_data = f"{request.consumer_group}@{name} is not online!"
            else:
                body.filter_data = _filter_data(body.subscription_data, request.consumer_group)
                matches = compiled(body.subscription_data.expression_type, body.subscription_data.sub_string)
        for entry in self.store.entries(name, queue_id, request.index, request.count):
            passes = matches is None or matches.matches_entry(entry.tags_code)
            record = self.store.record_bytes_at(entry.physical_offset)
            if passes and matches is not None and matches.needs_record:
                passes = record is not None and matches.matches_record(record)
            body.queue_data.append(
                ConsumeQueueData(
                    physic_offset=entry.physical_offset,
                    physic_size=entry.size,
                    tags_code=entry.tags_code,
                    eval=body.subscription_data is not None and passes,
                )
            )
        return Answer(body=fastjson.dumps(body), remark=NOT_SET)

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        online = self.broker.clients.consumers.get(group)
        return None if online is None else online.subscriptions.get(topic)


def _filter_data(subscription: SubscriptionData, group: str) -> str:
    """What is known of a SQL92 filter, as text; a subscription to tags has none."""
    if is_tag_type(subscription.expression_type):
        return "null"
    known = {
        "topic": subscription.topic,
        "consumerGroup": group,
        "expression": subscription.sub_string,
        "expressionType": subscription.expression_type,
        "clientVersion": subscription.sub_version,
    }
    return fastjson.dumps(known).decode()

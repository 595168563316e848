"""Requests about offsets: what a group has consumed, where a queue begins and ends, which offset belongs to a time."""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.topics.table import Topics
from arrowmq.remoting.handlers import Answer, Refused, handles
from arrowmq.store import MessageStore
from arrowmq.store.results import Boundary
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import (
    GetEarliestMsgStoretime,
    GetEarliestMsgStoretimeResult,
    GetMaxOffset,
    GetMaxOffsetResult,
    GetMinOffset,
    GetMinOffsetResult,
    QueryConsumerOffset,
    QueryConsumerOffsetResult,
    SearchOffset,
    SearchOffsetResult,
    UpdateConsumerOffset,
)


class OffsetService:
    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        is_slave: Callable[[], bool],
    ) -> None:
        self.store = store
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.is_slave = is_slave

    @handles(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, request: QueryConsumerOffset) -> QueryConsumerOffsetResult:
        """Where a group goes on. A new group on a young queue starts at 0, whatever its consumers prefer."""
        topic, queue_id = request.topic, request.queue_id
        offset = self.offsets.get(request.consumer_group, topic, queue_id)
        if offset is not None and offset >= 0:
            return QueryConsumerOffsetResult(offset=offset)
        if request.set_zero_if_not_found is False:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")
        if self.store.min_offset(topic, queue_id) <= 0 and self._begins_in_memory(topic, queue_id):
            return QueryConsumerOffsetResult(offset=0)
        raise Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    def _begins_in_memory(self, topic: str, queue_id: int) -> bool:
        entries = self.store.entries(topic, queue_id, 0, 1)
        return bool(entries) and not self.store.is_cold(entries[0].physical_offset, entries[0].size)

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, request: UpdateConsumerOffset) -> Answer | None:
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        if self.groups.get(group) is None:
            # Pulls and heartbeats make a group, commits do not: who commits has consumed before.
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {group} not exist! A consumer's heartbeat or pull makes it, or an administrator",
            )
        config = self.topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"Topic {topic} not exist! Nothing of it is here",
            )
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues and not self.store.max_offset(topic, queue_id):
            # Or who likes could fill the table, and its file, with queues that there are not.
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {topic} has {queues} queues, and there is nothing in a queue {queue_id}",
            )
        if queue_id < 0 or request.commit_offset < 0:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId={queue_id} and commitOffset={request.commit_offset} must not be negative",
            )
        if self.offsets.has_reset(group, topic, queue_id):
            return Answer(remark="Offset has been previously reset")
        self.offsets.commit(group, topic, queue_id, request.commit_offset)
        if self.is_slave():
            self.offsets.committed_here(group, topic, queue_id, request.commit_offset)
        return None

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def search(self, request: SearchOffset) -> SearchOffsetResult:
        asked = (request.boundary_type or "").upper()
        boundary = Boundary.UPPER if asked == "UPPER" else Boundary.LOWER
        offset = self.store.offset_by_time(request.topic, request.queue_id, request.timestamp, boundary)
        return SearchOffsetResult(offset=offset)

    @handles(RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: GetMaxOffset) -> GetMaxOffsetResult:
        return GetMaxOffsetResult(offset=self.store.max_offset(request.topic, request.queue_id))

    @handles(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: GetMinOffset) -> Answer:
        offset = self.store.min_offset(request.topic, request.queue_id)
        # Apache's broker sets an empty remark here and only here.
        return Answer(header=GetMinOffsetResult(offset=offset), remark="")

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest(self, request: GetEarliestMsgStoretime) -> GetEarliestMsgStoretimeResult:
        first = self.store.min_offset(request.topic, request.queue_id)
        return GetEarliestMsgStoretimeResult(timestamp=self.store.store_time(request.topic, request.queue_id, first))

"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME: what becomes of a message that was handed out.

A receipt names a check point. If that is open, an ack is stored and then answered. If it is not, the receipt is stale:
the message was acknowledged before, or its time was over and it came back; that is answered as Apache's broker does,
with success for an ack. Only a receipt older than this broker's run may belong to a check point that Apache's broker
left in the timer; its acks are sent after it, the way Apache's go.
"""

from __future__ import annotations

from collections.abc import Awaitable

from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.pop.check_points import NOT_WRITTEN, CheckPoint, CheckPoints
from arrowmq.broker.pop.checks import PopChecks
from arrowmq.broker.pop.merging import Merging
from arrowmq.broker.pop.order import OrderTable, WrongOffset
from arrowmq.broker.pop.polling import Polling
from arrowmq.broker.pop.pop_counts import ACK, CHECK_POINT, PopCounts
from arrowmq.broker.pop.retry_topics import real_topic
from arrowmq.broker.pop.revive import ReviveService
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.pop.revive_messages import AckMessage as StoredAck
from arrowmq.broker.send.message_path import MessagePath
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.wire.bodies import BatchAck, BatchAckMessage
from arrowmq.wire.bodies.clients import decode_batch_ack
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import AckMessage, ChangeInvisibleTime
from arrowmq.wire.headers.pop import ORDERED_REVIVE_QUEUE, ChangeInvisibleTimeResult, Receipt, parse_receipt

NOT_ON_DISK = "the ack is stored, but not yet on disk"


def _batch_of(body: bytes) -> BatchAckMessage:
    return decode_batch_ack(body) if body else BatchAckMessage()


def ack_not_safe(answer: Command, status: PutStatus) -> None:
    """What is answered if an ack is stored, and what the broker promises of it is not true in time."""
    answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, f"{status.name}: {NOT_ON_DISK}"


class AckService:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        checks: PopChecks,
        table: CheckPoints,
        revive_log: ReviveLog,
        revive: ReviveService,
        merging: Merging,
        order: OrderTable,
        polling: Polling,
        path: MessagePath,
        counts: PopCounts,
        clock: Clock,
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.checks = checks
        self.table = table
        self.log = revive_log
        self.revive = revive
        self.merging = merging
        self.order = order
        self.polling = polling
        self.path = path
        self.counts = counts
        self.clock = clock

    # Acks

    @handles(RequestCode.ACK_MESSAGE)
    def ack(self, request: AckMessage, call: Call) -> Answer | Awaitable[Answer]:
        receipt = parse_receipt(request.extra_info)
        topic = self.checks.receipt(
            *(request.topic, request.consumer_group, request.queue_id, request.offset, receipt, call.connection),
            may_be_end=True,
        )
        if receipt.revive_queue_id == ORDERED_REVIVE_QUEUE:
            self._ack_in_order(
                topic, request.consumer_group, request.queue_id, request.offset, receipt, call.connection
            )
            return Answer()
        put = self._ack(topic, request.consumer_group, request.queue_id, receipt, [request.offset], is_batch=False)
        return self._answer(put)

    @handles(RequestCode.BATCH_ACK_MESSAGE, read=_batch_of)
    def batch_ack(self, request: BatchAckMessage, call: Call) -> Answer | Awaitable[Answer]:
        if not request.acks:
            return Answer(ResponseCode.NO_MESSAGE, remark="the batch has no acks")
        last: Put | None = None
        for ack in request.acks:
            last = self._ack_one_of_batch(ack, request.broker_name, call.connection) or last
        return self._answer(last)

    def _ack_one_of_batch(self, ack: BatchAck, broker_name: str | None, client: Channel) -> Put | None:
        topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
        config = self.topics.get(topic)
        if config is None or not 0 <= ack.queue_id < config.read_queue_nums:
            return None  # a batch may hold acks of a topic that is gone: the others count
        lowest, highest = self.store.min_offset(topic, ack.queue_id), self.store.max_offset(topic, ack.queue_id)
        offsets = [offset for offset in ack.offsets() if lowest <= offset <= highest]
        receipt = Receipt(
            *(ack.start_offset, ack.pop_time, ack.invisible_time, ack.revive_queue_id, ack.retry),
            *(broker_name or self.config.broker_name, ack.queue_id, -1),
        )
        if ack.revive_queue_id == ORDERED_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_in_order(topic, ack.consumer_group, ack.queue_id, offset, receipt, client)
            return None
        return self._ack(topic, ack.consumer_group, ack.queue_id, receipt, offsets, is_batch=True)

    def _ack(
        self, topic: str, group: str, queue_id: int, receipt: Receipt, offsets: list[int], *, is_batch: bool
    ) -> Put | None:
        """Acknowledges messages of one receipt. What was stored for it, if anything had to be. Raises `Refused`."""
        lane = self.table.find_lane(topic, group, queue_id)
        check_point = None if lane is None else lane.find(receipt.start_offset, receipt.pop_time)
        put: Put | None = None
        if check_point is not None:
            known = [offset for offset in offsets if check_point.index_of(offset) >= 0]
            if len(known) < len(offsets) and not is_batch:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"offset is illegal: {offsets[0]} is not among the messages of this receipt, {receipt.encode()}",
                )
            wanted = [offset for offset in known if not check_point.acked >> check_point.index_of(offset) & 1]
            put = self._settle(check_point, wanted, is_batch=is_batch)
            offsets = [offset for offset in known if offset not in wanted]
        elif self._may_be_in_timer(receipt):
            elsewhere = [
                offset for offset in offsets if lane is None or lane.moved_to(offset, receipt.pop_time) is None
            ]
            if elsewhere:
                put = self._ack_by_timer(topic, group, queue_id, receipt, elsewhere, is_batch=is_batch)
            offsets = [offset for offset in offsets if offset not in elsewhere]
        for offset in offsets:
            moved = None if lane is None else lane.moved_to(offset, receipt.pop_time)
            if moved is not None:
                put = self._settle(moved, [offset], is_batch=False) or put
        if self.config.enable_pop_message_threshold and lane is not None:
            self.polling.wake_for(topic, group, queue_id)
        return put

    def _settle(self, check_point: CheckPoint, offsets: list[int], *, is_batch: bool) -> Put | None:
        if not offsets:
            return None
        put = None
        if check_point.revive_offset != NOT_WRITTEN and not self.log.is_closed:
            put = self.log.write_ack(check_point, offsets, is_batch=is_batch)
            self._check_put(put, check_point.lane.group, check_point.lane.topic, ACK)
        self.table.settle(check_point, sum(1 << check_point.index_of(offset) for offset in offsets))
        return put

    def _check_put(self, put: Put, group: str, topic: str, kind: str) -> None:
        self.counts.wrote(group, topic, kind, put.status.name)
        if put.status is not PutStatus.PUT_OK:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{put.status.name}: {put.reason or 'it was not stored'}; repeat it before the message comes back",
            )

    def _may_be_in_timer(self, receipt: Receipt) -> bool:
        is_old = receipt.pop_time < self.log.known_since_ms
        is_over = receipt.pop_time + receipt.invisible_time <= self.clock.now_ms()
        return is_old and not is_over and 0 <= receipt.revive_queue_id < len(self.log.queues)

    def _ack_by_timer(
        self, topic: str, group: str, queue_id: int, receipt: Receipt, offsets: list[int], *, is_batch: bool
    ) -> Put:
        self.checks.invisible_time(receipt.invisible_time)
        ack = StoredAck(
            *(topic, group, queue_id, receipt.start_offset, receipt.pop_time, receipt.broker_name, offsets, is_batch)
        )
        put = self.log.write_ack_by_timer(ack, receipt.revive_queue_id, receipt.pop_time + receipt.invisible_time)
        self._check_put(put, group, topic, ACK)
        return put

    def _answer(self, put: Put | None) -> Answer | Awaitable[Answer]:
        """An ack is promised as much as a message is: under SYNC_FLUSH it is on disk when it is answered."""
        if put is None or not self.path.makes_wait:
            return Answer()
        return self._when_kept(put)

    async def _when_kept(self, put: Put) -> Answer:
        status = await self.path.kept(put)
        if status is PutStatus.PUT_OK:
            return Answer()
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{status.name}: {NOT_ON_DISK}")

    # In order

    def _ack_in_order(
        self, topic: str, group: str, queue_id: int, offset: int, receipt: Receipt, client: Channel
    ) -> None:
        committed = self.offsets.get(group, topic, queue_id)
        if committed is not None and offset < committed:
            return
        try:
            following = self.order.ack(topic, group, queue_id, offset, receipt.pop_time)
        except WrongOffset:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, commit:{offset}, next:-1, "
                f"{client.peer_text}",
            ) from None
        if following is None:
            return
        if not self.offsets.has_reset(group, topic, queue_id):
            self.offsets.commit(group, topic, queue_id, following)
        if not self.order.is_blocked(None, topic, group, queue_id, receipt.invisible_time):
            self.polling.wake_for(topic, group, queue_id)

    # The invisible time

    @handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    def change_invisible_time(
        self, request: ChangeInvisibleTime, call: Call
    ) -> ChangeInvisibleTimeResult | Answer | Awaitable[Answer]:
        receipt = parse_receipt(request.extra_info)
        topic = self.checks.receipt(
            *(request.topic, request.consumer_group, request.queue_id, request.offset, receipt, call.connection),
            may_be_end=False,
        )
        self.checks.invisible_time(request.invisible_time)
        if receipt.revive_queue_id == ORDERED_REVIVE_QUEUE:
            return self._change_in_order(topic, request, receipt)
        now_ms = self.clock.now_ms()
        lane = self.table.lane(topic, request.consumer_group, request.queue_id)
        old = self._open_for(lane.find(receipt.start_offset, receipt.pop_time), request.offset) or self._open_for(
            lane.moved_to(request.offset, receipt.pop_time), request.offset
        )
        if old is None and not self._may_be_in_timer(receipt):
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"the receipt {receipt.encode()} is stale: the message was acknowledged, or its time was over and it "
                "came back",
            )
        # Later than what it replaces, which may itself be a change of this millisecond: which receipt is the newer one
        # is told by that.
        replaced_ms = receipt.pop_time if old is None else max(receipt.pop_time, old.pop_time)
        pop_time = lane.free_pop_time(request.offset, max(now_ms, replaced_ms + 1))
        # Until `pop_time + invisible_time`, also if the pop time had to be moved to be another one
        new = CheckPoint(
            *(lane, request.offset, pop_time, request.invisible_time, [request.offset]),
            *(receipt.revive_queue_id if old is None else old.revive_queue, self.config.broker_name),
            is_suspend=bool(request.suspend),
            client=call.connection.peer_text,
        )
        put = self._move(old, new, receipt, request)
        result = ChangeInvisibleTimeResult(
            pop_time=pop_time, invisible_time=request.invisible_time, revive_qid=new.revive_queue
        )
        return self._result_when_kept(put, result) if self.path.makes_wait else result

    def _open_for(self, check_point: CheckPoint | None, offset: int) -> CheckPoint | None:
        if check_point is None:
            return None
        index = check_point.index_of(offset)
        return check_point if index >= 0 and not check_point.acked >> index & 1 else None

    def _move(self, old: CheckPoint | None, new: CheckPoint, receipt: Receipt, request: ChangeInvisibleTime) -> Put:
        group, topic = new.lane.group, new.lane.topic
        if old is not None and not self.merging.write(old):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the check point of the message cannot be stored now: repeat it")
        since_ms = receipt.pop_time if old is None else self.log.since_of(old) or old.pop_time
        if old is None:
            put = self.log.write_check_point(new, since_ms)
        else:
            put = self.log.write_move(new, old, request.offset, since_ms)
        self._check_put(put, group, topic, CHECK_POINT)
        self.table.add(new)
        self.table.move(request.offset, new, since_ms)
        self.revive.watch(new)
        if old is not None:
            self.table.settle(old, 1 << old.index_of(request.offset))
        else:
            self._ack_by_timer(topic, group, new.lane.queue_id, receipt, [request.offset], is_batch=False)
        return put

    async def _result_when_kept(self, put: Put, result: ChangeInvisibleTimeResult) -> Answer:
        answer = await self._when_kept(put)
        return Answer(header=result) if answer.code == ResponseCode.SUCCESS else answer

    def _change_in_order(
        self, topic: str, request: ChangeInvisibleTime, receipt: Receipt
    ) -> ChangeInvisibleTimeResult | Answer:
        group, queue_id = request.consumer_group, request.queue_id
        committed = self.offsets.get(group, topic, queue_id)
        if committed is not None and request.offset < committed:
            return Answer()
        visible_ms = self.clock.now_ms() + request.invisible_time
        self.order.show_at(topic, group, queue_id, request.offset, receipt.pop_time, visible_ms)
        return ChangeInvisibleTimeResult(
            pop_time=receipt.pop_time,
            invisible_time=visible_ms - receipt.pop_time,
            revive_qid=receipt.revive_queue_id,
        )

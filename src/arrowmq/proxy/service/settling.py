"""What becomes of a delivered message: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

The steps themselves (`ack`, `change`, `to_dead_letters`) are also used for messages that a client never sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from arrowmq.clock import Clock
from arrowmq.proxy.backs.acked import Acked
from arrowmq.proxy.backs.back import Back, Reply
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import OK, BrokerFault, Fault, status_of
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.clients import Client, ClientTable
from arrowmq.proxy.service.handles import check_not_expired, parse_handle, real_topic
from arrowmq.proxy.service.renewal import Renewal
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeResult, ConsumerSendMsgBack
from arrowmq.wire.headers.pop import Receipt

if TYPE_CHECKING:
    from arrowmq.proxy.grpc.call import Call
    from arrowmq.proxy.http2.connection import Http2Connection
    from arrowmq.wire.frames import Command


class Settling:
    def __init__(self, config: ProxyConfig, back: Back, clients: ClientTable, clock: Clock) -> None:
        self._config, self._back, self._clients, self._clock = config, back, clients, clock
        self.renewal = Renewal(config, back, self, clock)
        self.fast = back.fast_pops(config)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def ack_message(self, caller: Caller, request: calls.AckMessageRequest) -> calls.AckMessageResponse:
        topic, group = request.topic.name, request.group.name
        validation.check_topic(topic)
        validation.check_group(group)
        client = self._clients.get(caller.client_id)
        if len(request.entries) == 1:
            entries = [await self._ack_entry(caller.user, client, topic, group, request.entries[0])]
        else:
            entries = await asyncio.gather(
                *(self._ack_entry(caller.user, client, topic, group, entry) for entry in request.entries)
            )
        self.learn_ack(caller.call, request)
        return _answer(entries)

    def ack_fast(
        self, connection: Http2Connection, client: Client | None, raw: bytes
    ) -> bytes | Awaitable[Message] | None:
        """An ordinary request, by its bytes: the answer's bytes, or what to wait for. None: nothing was done."""
        assert self.fast is not None
        if client is not None and self.renewal.holds(client):
            named = self.fast.acknowledged(raw)
            if named is None or any(self.renewal.was_renewed(client, named[0], *each) for each in named[1]):
                return None
            for each in named[1]:
                self.renewal.taken(client, named[0], *each)
        acked = self.fast.ack(connection, raw, client, self._clock.now_ms())
        return self._acked_in_part(client, raw, acked) if isinstance(acked, Acked) else acked

    async def _acked_in_part(self, client: Client | None, raw: bytes, acked: Acked) -> Message:
        """Some entries had to be left, or the broker's promise has to be waited for."""
        request = calls.AckMessageRequest.FromString(raw)
        statuses = [OK] * acked.done
        if acked.asker is not None:
            kept: asyncio.Future[list[Command]] = asyncio.get_running_loop().create_future()
            acked.when_kept(kept.set_result)
            statuses = [_ack_status(Reply(each.code, each.remark)) for each in await kept]
        topic, group = request.topic.name, request.group.name
        entries = [_result(entry, status) for entry, status in zip(request.entries, statuses, strict=False)]
        entries += await asyncio.gather(
            *(self._ack_entry(None, client, topic, group, entry) for entry in request.entries[acked.done :])
        )
        return _answer(entries)

    def learn_ack(self, call: Call, request: calls.AckMessageRequest) -> None:
        """The general path has served this: the next one like it may be quicker."""
        if self.fast is not None and call.raw is not None:
            self.fast.learn_ack(call.raw, request.topic.name, request.group.name, self._clock.now_ms())

    def ack_now(
        self, client: Client | None, request: calls.AckMessageRequest
    ) -> calls.AckMessageResponse | Awaitable[calls.AckMessageResponse] | None:
        """One acknowledgement, as clients send them, where the broker can answer in this moment. None: nothing was
        done, and `ack_message` must serve it."""
        if len(request.entries) != 1:
            return None
        entry = request.entries[0]
        topic, group = request.topic.name, request.group.name
        try:
            validation.check_topic(topic)
            validation.check_group(group)
            receipt = parse_handle(entry.receipt_handle)
        except Fault:
            return None
        if not self._back.may_ask_now(receipt.broker_name):
            return None
        handle = self.renewal.taken(client, group, entry.message_id, entry.receipt_handle)
        if handle is not entry.receipt_handle:
            receipt = parse_handle(handle)
        try:
            check_not_expired(receipt, self._clock.now_ms())
        except Fault as fault:
            return _acked(entry, fault.status)
        reply = self._back.ask_now(RequestCode.ACK_MESSAGE, _ack_header(receipt, topic, group), client)
        return _acked(entry, _ack_status(reply)) if isinstance(reply, Reply) else self._acked_later(entry, reply)

    async def _acked_later(self, entry: calls.AckMessageEntry, waiting: Awaitable[Reply]) -> calls.AckMessageResponse:
        return _acked(entry, _ack_status(await waiting))

    async def _ack_entry(
        self, user: object, client: Client | None, topic: str, group: str, entry: calls.AckMessageEntry
    ) -> calls.AckMessageResultEntry:
        try:
            handle = self.renewal.taken(client, group, entry.message_id, entry.receipt_handle)
            await self.ack(parse_handle(handle), topic, group, client, user)
        except Fault as fault:
            return _result(entry, fault.status)
        return _result(entry, OK)

    async def change_invisible_duration(
        self, caller: Caller, request: calls.ChangeInvisibleDurationRequest
    ) -> calls.ChangeInvisibleDurationResponse:
        topic, group = request.topic.name, request.group.name
        validation.check_topic(topic)
        validation.check_group(group)
        duration = request.invisible_duration
        invisible_ms = duration.seconds * 1000 + duration.nanos // 1_000_000
        validation.check_invisible(self._config, invisible_ms)
        parse_handle(request.receipt_handle)
        client = self._clients.get(caller.client_id)
        handle = self.renewal.taken(client, group, request.message_id, request.receipt_handle)
        try:
            receipt = await self.change(parse_handle(handle), topic, group, invisible_ms, client, caller.user)
        except Fault as fault:
            # Clients put what they get into their message, also with a no: they shall not lose the handle by it.
            return calls.ChangeInvisibleDurationResponse(status=fault.status, receipt_handle=handle)
        return calls.ChangeInvisibleDurationResponse(status=OK, receipt_handle=receipt.encode())

    async def forward(
        self, caller: Caller, request: calls.ForwardMessageToDeadLetterQueueRequest
    ) -> calls.ForwardMessageToDeadLetterQueueResponse:
        topic, group = request.topic.name, request.group.name
        validation.check_topic(topic)
        validation.check_group(group)
        client = self._clients.get(caller.client_id)
        handle = self.renewal.taken(client, group, request.message_id, request.receipt_handle)
        await self.to_dead_letters(parse_handle(handle), topic, group, request.message_id, client, caller.user)
        return calls.ForwardMessageToDeadLetterQueueResponse(status=status_of(v2.OK, "0"))

    # --- steps -------------------------------------------------------------------------------------------------------

    async def ack(
        self, receipt: Receipt, topic: str, group: str, client: Client | None = None, user: object = None
    ) -> None:
        check_not_expired(receipt, self._clock.now_ms())
        header = _ack_header(receipt, topic, group)
        reply = await self._back.ask(receipt.broker_name, RequestCode.ACK_MESSAGE, header, client=client, user=user)
        _check_acked(reply)

    async def change(
        self,
        receipt: Receipt,
        topic: str,
        group: str,
        invisible_ms: int,
        client: Client | None = None,
        user: object = None,
    ) -> Receipt:
        """The message stays invisible for so long from now; the new receipt."""
        check_not_expired(receipt, self._clock.now_ms())
        header = ChangeInvisibleTime(
            consumer_group=group,
            topic=real_topic(receipt, topic, group),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.queue_offset,
            invisible_time=invisible_ms,
            bname=receipt.broker_name,
        )
        reply = await self._back.ask(
            receipt.broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, client=client, user=user
        )
        if not reply.is_ok:
            if reply.code == ResponseCode.SYSTEM_BUSY:
                raise BrokerFault(reply.code, reply.remark)
            raise Fault(v2.INTERNAL_SERVER_ERROR, "changeInvisibleDuration failed: status is abnormal")
        result = reply.header(ChangeInvisibleTimeResult)
        return receipt._replace(
            start_offset=receipt.queue_offset,
            pop_time=result.pop_time,
            invisible_time=result.invisible_time,
            revive_queue_id=result.revive_qid,
        )

    async def to_dead_letters(
        self,
        receipt: Receipt,
        topic: str,
        group: str,
        message_id: str,
        client: Client | None = None,
        user: object = None,
    ) -> None:
        if receipt.commit_log_offset < 0:
            raise Fault(v2.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        header = ConsumerSendMsgBack(
            offset=receipt.commit_log_offset,
            group=group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=real_topic(receipt, topic, group),
            max_reconsume_times=0,
            bname=receipt.broker_name,
        )
        reply = await self._back.ask(
            receipt.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, client=client, user=user
        )
        if not reply.is_ok:
            raise BrokerFault(reply.code, reply.remark)
        await self.ack(receipt, topic, group, client, user)


def _ack_header(receipt: Receipt, topic: str, group: str) -> AckMessage:
    return AckMessage(
        consumer_group=group,
        topic=real_topic(receipt, topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.encode(),
        offset=receipt.queue_offset,
        bname=receipt.broker_name,
    )


def _check_acked(reply: Reply) -> None:
    if reply.is_ok:
        return
    if reply.code == ResponseCode.SYSTEM_BUSY:
        raise BrokerFault(reply.code, reply.remark)
    raise Fault(v2.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")


def _ack_status(reply: Reply) -> v2.Status:
    try:
        _check_acked(reply)
    except Fault as fault:
        return fault.status
    return OK


def _result(entry: calls.AckMessageEntry, status: v2.Status) -> calls.AckMessageResultEntry:
    return calls.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)


def _answer(entries: list[calls.AckMessageResultEntry]) -> calls.AckMessageResponse:
    codes = {entry.status.code for entry in entries}
    if not codes:
        raise Fault(v2.INTERNAL_SERVER_ERROR, "ack message result is empty")
    status = status_of(codes.pop() if len(codes) == 1 else v2.MULTIPLE_RESULTS)
    return calls.AckMessageResponse(status=status, entries=entries)


def _acked(entry: calls.AckMessageEntry, status: v2.Status) -> calls.AckMessageResponse:
    """The answer to one acknowledgement."""
    answer = calls.AckMessageResponse(status=OK if status is OK else status_of(status.code))
    answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
    return answer

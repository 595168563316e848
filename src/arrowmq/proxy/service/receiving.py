"""ReceiveMessage: one pop at one broker, and its messages as a stream.

The stream is a status, the messages, and the time of delivery, in this order, as Apache's proxy writes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from arrowmq.clock import Clock
from arrowmq.filter import SQL92, FilterError, compile, split_tags
from arrowmq.proxy.backs.back import Back, Reply
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import OK, BrokerFault, Fault, status_of
from arrowmq.proxy.grpc.call import Call, parse_timeout
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.clients import Client, ClientTable
from arrowmq.proxy.service.handles import Receipts
from arrowmq.proxy.service.message_form import message_of, set_millis
from arrowmq.proxy.service.routing import Routing
from arrowmq.proxy.service.settling import Settling
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import PopMessage, PopMessageResult
from arrowmq.wire.headers.pop import Receipt, parse_receipt
from arrowmq.wire.records import Record, decode_records

if TYPE_CHECKING:
    from arrowmq.proxy.http2.connection import Http2Connection

log = logging.getLogger(__name__)

MAX_BATCH = 32
FROM_LAST = 1
NACK_MS = 1000
DEFAULT_ATTEMPTS = 17
#: From this version of a client on, "too little time to poll" has a code of its own
POLLING_CODE_SINCE = "5.0.3"

Found = tuple[Record, Receipt, int]


@dataclass(frozen=True, slots=True)
class Unusual:
    """Messages that a request's bytes were enough to take from the broker, and that are not all ordinary."""

    client_id: str
    client: Client | None
    raw: bytes
    reply: Reply


class Receiving:
    def __init__(
        self,
        config: ProxyConfig,
        back: Back,
        routing: Routing,
        settling: Settling,
        clients: ClientTable,
        clock: Clock,
    ) -> None:
        self._config, self._back, self._routing, self._settling = config, back, routing, settling
        self._clients, self._clock = clients, clock
        self._tasks: set[asyncio.Task[object]] = set()
        self.fast = settling.fast
        #: Told of each answer: the call's name and its code
        self.on_answered: Callable[[str, int], object] = lambda name, code: None

    async def receive_message(self, caller: Caller, request: calls.ReceiveMessageRequest) -> None:
        call = caller.call
        try:
            client = self._clients.get(caller.client_id)
            poll_ms = self._poll_ms(caller, client, request)
            header, broker = await self._pop_header(client, request, poll_ms)
            reply = await self._back.ask(
                broker,
                RequestCode.POP_MESSAGE,
                header,
                client=client,
                user=caller.user,
                call=call,
                timeout_s=poll_ms / 1000 + 3.0,
            )
            found = self._found(reply, broker, client, request)
        except Fault as fault:
            self.finish(call, fault.status)
            return
        self._learn(call, request, header, broker)
        self._deliver(call, client, caller.client_id, request, found, is_ok=reply.is_ok)

    def receive_now(
        self, connection: Http2Connection, metadata: dict[bytes, bytes], raw: bytes
    ) -> bytes | Unusual | None:
        """An ordinary request, by its bytes, for which there are messages at this moment: all that the client is sent.
        None: nothing was done."""
        client_id = metadata.get(b"x-mq-client-id", b"")
        if self.fast is None or not client_id.strip():
            return None
        timeout_s = parse_timeout(metadata.get(b"grpc-timeout"))
        if timeout_s is not None:
            remaining_ms = (timeout_s - (self._clock.monotonic() - connection.heard_at)) * 1000
            if remaining_ms < self._config.grpc_client_consumer_min_long_polling_timeout_millis:
                return None
        name = client_id.decode("utf-8", "replace")
        client = self._clients.get(name)
        if client is not None and client.merged is not None and client.merged.backoff_policy.max_attempts < 1:
            return None
        popped = self.fast.pop(connection, raw, client)
        if popped is None:
            return None
        reply, subject, is_renewed = popped
        handed: list[tuple[str, str]] | None = [] if is_renewed else None
        stream = self.fast.stream(reply, subject, self._clock.now_ms(), handed)
        if stream is None:
            return Unusual(name, client, raw, reply)
        if handed and client is not None:
            for message_id, handle in handed:
                self._settling.renewal.add(client, subject.group, subject.topic, message_id, parse_receipt(handle), 0)
        self.on_answered("ReceiveMessage", v2.OK)
        return stream

    def deliver_unusual(self, call: Call, popped: Unusual) -> None:
        """What was taken from the broker by a request's bytes, and is not as ordinary as that."""
        assert self.fast is not None
        request = calls.ReceiveMessageRequest.FromString(popped.raw)
        found = self._found(popped.reply, self.fast.broker_name, popped.client, request)
        self._deliver(call, popped.client, popped.client_id, request, found, is_ok=popped.reply.is_ok)
        call.end()

    def _learn(self, call: Call, request: calls.ReceiveMessageRequest, header: PopMessage, broker: str) -> None:
        if self.fast is None or call.raw is None or request.message_queue.broker.name != broker:
            return
        if request.filter_expression.type != v2.SQL:
            self.fast.learn_pop(call.raw, header, tags_of(request.filter_expression.expression))

    def _deliver(
        self,
        call: Call,
        client: Client | None,
        client_id: str,
        request: calls.ReceiveMessageRequest,
        found: list[Found],
        *,
        is_ok: bool,
    ) -> None:
        """Send the client what was found for it."""
        topic, group = request.message_queue.topic.name, request.group.name
        if not found:
            self.finish(call, status_of(v2.MESSAGE_NOT_FOUND, "no match message" if is_ok else "no new message"))
            return
        if self._config.enable_proxy_auto_renew and request.auto_renew:
            if client is None or client.closed:
                self._give_back(found, topic, group)
                said = f"The client [{client_id}] is disconnected."
                self.finish(call, status_of(v2.MESSAGE_NOT_FOUND, said))
                return
            for record, receipt, times in found:
                self._settling.renewal.add(client, group, topic, record.msg_id, receipt, times)
        if call.is_cancelled:
            self._taken_back(found, topic, group, client)
            return
        call.send(calls.ReceiveMessageResponse(status=OK))
        now_ms = self._clock.now_ms()
        for record, receipt, times in found:
            call.send(calls.ReceiveMessageResponse(message=message_of(record, topic, receipt, times, now_ms)))
        self.finish(call, None)

    # --- before ------------------------------------------------------------------------------------------------------

    def _poll_ms(self, caller: Caller, client: Client | None, request: calls.ReceiveMessageRequest) -> int:
        remaining = caller.remaining_ms(self._clock.monotonic())
        least = self._config.grpc_client_consumer_min_long_polling_timeout_millis
        most = self._config.grpc_client_consumer_max_long_polling_timeout_millis
        if request.HasField("long_polling_timeout"):
            wanted = _millis(request.long_polling_timeout)
        elif remaining is not None:
            settings = client.settings if client is not None else None
            timeout = _millis(settings.request_timeout) if settings is not None else 0
            wanted = remaining - timeout // 2
        else:
            wanted = most
        poll_ms = min(max(wanted, least), most)
        if remaining is None or poll_ms <= remaining:
            return poll_ms
        if remaining >= least:
            return remaining
        has_code = bool(caller.version) and caller.version >= POLLING_CODE_SINCE
        raise Fault(
            v2.ILLEGAL_POLLING_TIME if has_code else v2.BAD_REQUEST,
            "The deadline time remaining is not enough for polling, please check network condition",
        )

    async def _pop_header(
        self, client: Client | None, request: calls.ReceiveMessageRequest, poll_ms: int
    ) -> tuple[PopMessage, str]:
        topic, group = request.message_queue.topic.name, request.group.name
        validation.check_topic(topic)
        validation.check_group(group)
        if self._config.enable_proxy_auto_renew and request.auto_renew:
            invisible_ms = self._config.default_invisible_time_mills
        else:
            invisible_ms = _millis(request.invisible_duration)
            validation.check_invisible(self._config, invisible_ms, self._config.min_invisible_time_mills_for_recv)
        expression = request.filter_expression.expression
        is_sql = request.filter_expression.type == v2.SQL
        if is_sql:
            check_sql(expression)
        else:
            expression = expression.strip() or "*"
            tags_of(expression)
        broker = await self._routing.readable_broker(topic, request.message_queue.broker.name)
        header = PopMessage(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=min(max(request.batch_size, 0), MAX_BATCH),
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._clock.now_ms(),
            init_mode=FROM_LAST,
            exp_type="SQL92" if is_sql else "TAG",
            exp=expression,
            order=await self._is_fifo(client, group),
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
            bname=broker,
        )
        return header, broker

    async def _is_fifo(self, client: Client | None, group: str) -> bool:
        config = await self._back.group_config(group)
        if config is not None:
            return config.consume_message_orderly
        return client is not None and client.merged is not None and client.merged.subscription.fifo

    # --- after -------------------------------------------------------------------------------------------------------

    def _found(
        self, reply: Reply, broker: str, client: Client | None, request: calls.ReceiveMessageRequest
    ) -> list[Found]:
        if not reply.is_ok:
            if reply.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.NO_MESSAGE):
                return []
            if reply.code == ResponseCode.POLLING_FULL:
                raise Fault(v2.TOO_MANY_REQUESTS, "polling full")
            raise BrokerFault(reply.code, reply.remark)
        topic, group = request.message_queue.topic.name, request.group.name
        receipts = Receipts(reply.header(PopMessageResult), broker)
        is_sql = request.filter_expression.type == v2.SQL
        tags = frozenset() if is_sql else tags_of(request.filter_expression.expression)
        merged = client.merged if client is not None else None
        attempts = merged.backoff_policy.max_attempts if merged is not None else DEFAULT_ATTEMPTS
        found: list[Found] = []
        for record in decode_records(reply.body):
            receipt, times = receipts.of(record), receipts.reconsume_times(record)
            if tags and record.tag not in tags:  # two tags may have one hash
                self._spawn(self._settling.ack(receipt, topic, group))
            elif times >= attempts:
                self._spawn(self._settling.to_dead_letters(receipt, topic, group, record.msg_id))
            else:
                found.append((record, receipt, times))
        return found

    def _taken_back(self, found: list[Found], topic: str, group: str, client: Client | None) -> None:
        """The client has left while its messages were on their way."""
        if client is not None:
            for record, receipt, _ in found:
                self._settling.renewal.taken(client, group, record.msg_id, receipt.encode())
        self._give_back(found, topic, group)

    def _give_back(self, found: list[Found], topic: str, group: str) -> None:
        for _, receipt, _ in found:
            self._spawn(self._settling.change(receipt, topic, group, NACK_MS))

    def _spawn(self, step: Awaitable[object]) -> None:
        async def guarded() -> None:
            try:
                await step
            except Fault as fault:
                log.info("a message that no client has was not settled: %s", fault)

        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finish(self, call: Call, status: v2.Status | None) -> None:
        self.on_answered("ReceiveMessage", v2.OK if status is None else status.code)
        if status is not None:
            call.send(calls.ReceiveMessageResponse(status=status))
        last = calls.ReceiveMessageResponse()
        set_millis(last.delivery_timestamp, self._clock.now_ms())
        call.send(last)


def tags_of(expression: str) -> frozenset[str]:
    """The tags that are wanted; none for all of them."""
    text = expression.strip()
    tags = frozenset(split_tags(text))
    if not tags and text not in ("", "*"):
        raise Fault(v2.ILLEGAL_FILTER_EXPRESSION, "subString split error")
    return tags


def check_sql(expression: str) -> None:
    if not expression.strip():
        raise Fault(v2.ILLEGAL_FILTER_EXPRESSION, "Expression can not be null! SQL92")
    try:
        compile(SQL92, expression)
    except FilterError as error:
        raise Fault(v2.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def _millis(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000

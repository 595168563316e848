"""The producer: sends messages and gives a receipt for each.

async with Producer("localhost:9876") as producer:
    receipt = await producer.send("orders", b"...", tag="created", keys=["o-1"])
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from arrowmq.client import names
from arrowmq.client.async_scope import Scope
from arrowmq.client.errors import InvalidUse, Refused, TimedOut, Unreachable
from arrowmq.client.hooks import Hook, Hooks
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.produce.batches import Accumulator, Batching, batch_of, receipts_of
from arrowmq.client.produce.outgoing import MAX_MESSAGE_BYTES, Message, MessageDetails, Packed, Packing, pack
from arrowmq.client.produce.pending_sends import Lane
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.client.produce.request_reply import Replies, reply_properties
from arrowmq.client.produce.selectors import QueueSelector, by_hash
from arrowmq.client.produce.send_budget import SendBudget
from arrowmq.client.produce.sending import Choice, Sender
from arrowmq.client.produce.transactions import (
    Checker,
    Transaction,
    TransactionListener,
    Transactions,
    TransactionState,
    state_from,
)
from arrowmq.client.session import Session
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.compression import CompressionType
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_recall_handle
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.client")

DEFAULT_GROUP = "arrowmq_producer"
#: What the fast path knows of a message beside topic and body.
_PLAIN_DETAILS = frozenset({"tag", "keys", "properties", "flag", "wait_store"})


class Producer(Scope):
    """Sends to any number of topics. Safe to share between the tasks of one event loop.

    `timeout_s` is the time for all attempts of a send together; `retries` the attempts after the first. No more than
    `max_in_flight` messages and `max_in_flight_bytes` are under way at once: who sends more, waits. With `batching` the
    producer gathers messages of a topic into batches by itself.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        timeout_s: float = 3.0,
        retries: int = 2,
        avoid_slow_brokers: bool = True,
        retry_when_not_flushed: bool = False,
        max_in_flight: int = 1024,
        max_in_flight_bytes: int = 100 * 1024 * 1024,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        compress_from_bytes: int = 4096,
        compression: CompressionType | str = CompressionType.ZLIB,
        compression_level: int = 5,
        batching: Batching | bool = False,
        transaction_checker: Checker | None = None,
        transaction_listener: TransactionListener | None = None,
        hooks: Sequence[Hook] = (),
        **connect: Unpack[ConnectOptions],
    ) -> None:
        names.check_group(group)
        options = Options.of(namesrv, connect)
        self._namespace = options.namespace
        self.group = self._namespace.wrap(group)
        self._timeout_s = timeout_s
        self._packing = Packing(
            max_message_bytes,
            compress_from_bytes,
            CompressionType[compression.upper()] if isinstance(compression, str) else compression,
            compression_level,
        )
        self._session = Session(options)
        self._sender = Sender(
            self._session,
            self.group,
            retries=retries,
            avoid_slow_brokers=avoid_slow_brokers,
            retry_when_not_flushed=retry_when_not_flushed,
        )
        self._session.pending_sends.on_silence = self._sender.seek_masters
        self._budget = SendBudget(max_in_flight, max_in_flight_bytes)
        self._hooks = Hooks(hooks)
        self._listener = transaction_listener
        checker = transaction_checker or (transaction_listener.check if transaction_listener is not None else None)
        self._transactions = Transactions(self._session, self.group, checker)
        self._replies = Replies(self._session)
        self._accumulator: Accumulator | None = None
        if batching:
            rules = batching if isinstance(batching, Batching) else Batching()
            self._accumulator = Accumulator(self._session, self._sender, rules, timeout_s, max_message_bytes)
        self._checked_topics: set[str] = set()
        #: The fast paths, where nothing may see or change a message between `send` and the wire.
        self._lanes: dict[str, Lane] | None = None
        if not (batching or hooks or retry_when_not_flushed or self._namespace.name) and self._session.is_plain:
            self._lanes = self._sender.lanes
        self._is_closing = False

    # -- life

    @property
    def client_id(self) -> str:
        return self._session.client_id

    async def start(self) -> None:
        self._session.producer_groups.add(self.group)
        await self._session.start()

    async def close(self) -> None:
        """Wait for what is under way, leave the group, end all connections."""
        if self._is_closing:
            return
        self._is_closing = True
        self._lanes = None
        try:
            if not self._session.is_closed:
                await self.flush()
                await self._hooks.close()
                await self._session.unregister(producer_group=self.group)
        finally:
            await self._session.close()

    # -- sending

    async def send(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tag: str | None = None,
        keys: Sequence[str] | str = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        order_key: str | None = None,
        flag: int = 0,
        wait_store: bool = True,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message and wait until a broker has stored it.

        Which queue: `queue` names it, `selector` chooses it, equal `order_key`s share one; else round robin. When: at
        once, or after `delay` seconds (or a timedelta), or at the time `deliver_at`, or by RocketMQ's `delay_level`.
        """
        message: Message | None = None
        if isinstance(topic, Message):
            message = topic
            topic, body, tag, keys, properties = (
                message.topic,
                message.body,
                message.tag,
                message.keys,
                message.properties,
            )
            delay_level, delay, deliver_at = message.delay_level, message.delay, message.deliver_at
            order_key, flag, wait_store = message.order_key, message.flag, message.wait_store
        if (
            self._lanes is not None and order_key is None and queue is None and selector is None
            and delay is None and delay_level is None and deliver_at is None
        ):  # fmt: skip
            # The way that nearly every message takes: no message object, one coroutine, one future.
            lane = self._lanes.get(topic)
            if lane is not None and type(body) is bytes and self._budget.try_enter(size := len(body)):
                wait_s = self._timeout_s if timeout_s is None else timeout_s
                try:
                    pending = lane.begin(body, tag, keys, properties, flag, wait_store, wait_s)
                    if pending is not None:
                        try:
                            return await pending.future
                        except (Unreachable, TimedOut, Refused):
                            message = Message(topic, body, tag, keys, properties, flag=flag, wait_store=wait_store)
                            packed = self._pack(message, msg_id=pending.msg_id)
                            return await self._sender.send(packed, wait_s, begun=pending)
                        finally:
                            if pending.future.cancelled():
                                self._session.pending_sends.forget(pending)
                finally:
                    self._budget.leave(size)
        message = message or Message(
            topic, body, tag, keys, properties, delay_level, delay, deliver_at, order_key, flag, wait_store
        )
        receipt = await self._send(self._pack(message), _choice(message, queue, selector), timeout_s)
        self._open_lane(topic)
        return receipt

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        **details: Unpack[MessageDetails],
    ) -> None:
        """Send without waiting for an answer: fast, and nobody tells whether it arrived."""
        if self._lanes is not None and queue is None and selector is None and _PLAIN_DETAILS >= details.keys():
            lane = self._lanes.get(topic) if isinstance(topic, str) else None
            if lane is not None:
                connection = lane.begin_oneway(
                    body,
                    details.get("tag"),
                    details.get("keys", ()),
                    details.get("properties"),
                    details.get("flag", 0),
                    details.get("wait_store", True),
                )
                if connection is not None:
                    await connection.drain()
                    return
        message = topic if isinstance(topic, Message) else Message(topic, body, **details)
        packed = self._pack(message)
        if self._hooks:
            self._hooks.before_send(packed)
        await self._sender.send_oneway(packed, _choice(message, queue, selector))
        self._open_lane(message.topic)

    async def submit(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
        **details: Unpack[MessageDetails],
    ) -> asyncio.Task[SendReceipt]:
        """Begin a send and go on; await the result later, or `flush()`. Waits only while too much is in flight.

        An error of a result that nobody awaits is logged.
        """
        message = topic if isinstance(topic, Message) else Message(topic, body, **details)
        packed = self._pack(message)
        size = len(packed.body)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        if not self._budget.try_enter(size):
            await self._budget.enter(size, timeout_s, message.topic)
        work = self._deliver(packed, _choice(message, queue, selector), timeout_s)
        task = self._session.spawn(work, "send")
        # Not at the end of the work itself: a task that is cancelled before its first step never runs it.
        task.add_done_callback(lambda _ended: self._budget.leave(size))
        return task

    async def flush(self) -> None:
        """Wait until nothing is under way."""
        if self._accumulator is not None:
            self._accumulator.flush()
        await self._budget.drained()

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request: all of them are stored, one behind the other, or none."""
        self._session.check_usable()
        parts = [self._pack(message, may_compress=False) for message in messages]
        whole = batch_of(parts, self._packing.max_message_bytes)
        choice = _choice(messages[0], queue, selector)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        size = len(whole.body)
        if not self._budget.try_enter(size):
            await self._budget.enter(size, timeout_s, whole.topic)
        try:
            receipt = await self._attempt(whole, choice, timeout_s, RequestCode.SEND_BATCH_MESSAGE)
        finally:
            self._budget.leave(size)
        return receipts_of(parts, receipt)

    def _open_lane(self, topic: str) -> None:
        """Messages to this topic that need nothing special take the fast path from now on."""
        lanes, route = self._lanes, self._session.routes.get(topic)
        if lanes is not None and ((lane := lanes.get(topic)) is None or lane.route is not route):
            packing = self._packing
            self._sender.open_lane(topic, min(packing.max_message_bytes, packing.compress_from_bytes - 1))

    def _pack(self, message: Message, *, may_compress: bool = True, msg_id: str = "") -> Packed:
        session = self._session
        if session.is_closed or self._is_closing:
            raise InvalidUse("this producer is closed; make a new one")
        topic = message.topic
        if topic not in self._checked_topics:
            session.check_usable()
            names.check_topic_for_sending(topic)
            self._checked_topics.add(topic)
        packed = pack(
            message,
            self._namespace.wrap(topic),
            msg_id or session.new_msg_id(),
            self._packing,
            may_compress=may_compress,
        )
        if self._namespace.name:
            packed.properties[prop.INSTANCE_ID] = self._namespace.name
        return packed

    async def _send(self, packed: Packed, choice: Choice | None, timeout_s: float | None) -> SendReceipt:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        size = len(packed.body)
        if not self._budget.try_enter(size):
            await self._budget.enter(size, timeout_s, packed.topic)
        try:
            return await self._deliver(packed, choice, timeout_s)
        finally:
            self._budget.leave(size)

    async def _deliver(self, packed: Packed, choice: Choice | None, timeout_s: float) -> SendReceipt:
        accumulator = self._accumulator
        if accumulator is None or not accumulator.takes(packed):
            return await self._attempt(packed, choice, timeout_s, RequestCode.SEND_MESSAGE_V2)
        queue: MessageQueue | None = None
        if choice is not None:
            route = await self._session.route(packed.topic, for_sending=True)
            queue = choice(route.publish_queues)
        if not self._hooks:
            return await accumulator.send(packed, queue, timeout_s)
        return await self._hooked(packed, lambda: accumulator.send(packed, queue, timeout_s))

    async def _attempt(self, packed: Packed, choice: Choice | None, timeout_s: float, code: int) -> SendReceipt:
        if not self._hooks:
            return await self._sender.send(packed, timeout_s, choice, code=code)
        return await self._hooked(packed, lambda: self._sender.send(packed, timeout_s, choice, code=code))

    async def _hooked(self, packed: Packed, send: Callable[[], Awaitable[SendReceipt]]) -> SendReceipt:
        """A send with its hooks."""
        if not self._hooks:
            return await send()
        self._hooks.before_send(packed)
        monotonic = self._session.clock.monotonic
        started = monotonic()
        try:
            receipt = await send()
        except BaseException as error:
            self._hooks.after_send(packed, None, error, (monotonic() - started) * 1000)
            raise
        self._hooks.after_send(packed, receipt, None, (monotonic() - started) * 1000)
        return receipt

    # -- transactions

    def transaction(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        **details: Unpack[MessageDetails],
    ) -> Transaction:
        """`async with producer.transaction("orders", b"...") as tx:` commits at its end, or rolls back on an error."""
        message = topic if isinstance(topic, Message) else Message(topic, body, **details)
        packed = self._pack(message)
        self._transactions.prepare(packed)
        return Transaction(self, packed, self._transactions, timeout_s)

    async def send_half(self, packed: Packed, timeout_s: float | None) -> SendReceipt:
        """Store a half message, at a broker that knows this producer and can ask it."""
        try:
            await self._session.route(packed.topic, for_sending=True)
            if not self._session.addresses(masters_only=True) <= self._session.broker_versions.keys():
                await self._session.heartbeat()
            return await self._attempt(
                packed, None, self._timeout_s if timeout_s is None else timeout_s, RequestCode.SEND_MESSAGE_V2
            )
        except BaseException:
            # It may be stored, with its answer lost. Then a broker asks, and nothing was done on the strength of it.
            self._transactions.decisions.set(packed.msg_id, TransactionState.ROLLBACK)
            raise

    async def send_in_transaction(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        argument: Any = None,
        timeout_s: float | None = None,
        **details: Unpack[MessageDetails],
    ) -> tuple[SendReceipt, TransactionState]:
        """With a `transaction_listener`: store the half message, let the listener execute, tell its verdict."""
        if self._listener is None:
            raise InvalidUse("send_in_transaction needs a producer with a transaction_listener; or use transaction()")
        message = topic if isinstance(topic, Message) else Message(topic, body, **details)
        packed = self._pack(message)
        self._transactions.prepare(packed)
        receipt = await self.send_half(packed, timeout_s)
        state = TransactionState.ROLLBACK
        if receipt.status is SendStatus.SEND_OK:
            try:
                state = await state_from(self._listener.execute(message, receipt.msg_id, argument))
            except Exception:
                # The local work may or may not have happened: only the listener's check can tell.
                log.exception("the listener failed for transaction %s; the broker will ask for it", receipt.msg_id)
                state = TransactionState.UNKNOWN
            except BaseException:  # cancelled: the same, and nobody is told now
                self._transactions.decisions.forget(receipt.msg_id)
                raise
        if state is TransactionState.UNKNOWN:
            self._transactions.decisions.forget(receipt.msg_id)
        await self._transactions.end(receipt, state)
        return receipt, state

    # -- request and reply

    async def request(
        self, topic: str | Message, body: bytes = b"", *, timeout_s: float = 3.0, **details: Unpack[MessageDetails]
    ) -> ReceivedMessage:
        """Send a request and wait for the reply that some consumer of the topic gives with `reply`."""
        message = topic if isinstance(topic, Message) else Message(topic, body, **details)
        packed = self._pack(message)
        packed.properties.update(self._replies.request_properties(timeout_s))
        await self._session.route(packed.topic, for_sending=True)
        if not self._session.addresses(masters_only=True) <= self._session.broker_versions.keys():
            await self._session.heartbeat()  # the reply comes on our own connection: the brokers must know us
        started = self._session.clock.monotonic()
        reply = self._replies.expect(packed.properties[prop.CORRELATION_ID])
        try:
            await self._send(packed, None, timeout_s)
            left_s = timeout_s - (self._session.clock.monotonic() - started)
            return await self._replies.wait(reply, message.topic, left_s)
        finally:
            reply.cancel()

    async def reply(self, request: ReceivedMessage, body: bytes, *, timeout_s: float | None = None) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        self._session.check_usable()
        topic, properties = reply_properties(request)
        packed = pack(Message(topic, body), topic, self._session.new_msg_id(), self._packing)
        packed.properties.update(properties)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._attempt(packed, None, timeout_s, RequestCode.SEND_REPLY_MESSAGE_V2)

    # -- timers

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a timer message back before it is delivered; gives the id of the message. The broker must allow it."""
        self._session.check_usable()
        wire_topic = self._namespace.wrap(topic)
        broker_name = parse_recall_handle(recall_handle).broker_name
        route = await self._session.route(wire_topic, for_sending=True)
        address = route.master(broker_name)
        if address is None:
            raise Refused("recalling a message", broker_name, 0, f"topic {topic} has no route to broker {broker_name}")
        ext = {
            "producerGroup": self.group,
            "topic": wire_topic,
            "recallHandle": recall_handle,
            "bname": broker_name,
        }
        answer = await self._session.ask(
            address, Command.request(RequestCode.RECALL_MESSAGE, ext), "recalling a message"
        )
        return answer.ext["msgId"]

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a send to this topic can go to."""
        self._session.check_usable()
        return list((await self._session.route(self._namespace.wrap(topic), for_sending=True)).publish_queues)


def _choice(message: Message, queue: MessageQueue | None, selector: QueueSelector | None) -> Choice | None:
    if queue is not None:
        return lambda _queues: queue
    if selector is None:
        if message.order_key is None:
            return None
        selector = by_hash(message.order_key)
    chosen = selector

    def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
        picked = chosen(queues, message)
        if not isinstance(picked, MessageQueue):
            raise InvalidUse(
                f"the queue selector gave {picked!r} for topic {message.topic}; it must give one of the queues"
            )
        return picked

    return choose

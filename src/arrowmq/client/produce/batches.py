"""Several messages in one request: given as a batch, or gathered by the producer itself.

All messages of a batch go to one queue, where they lie one behind the other. Automatic gathering keeps the order per
queue: of each lane (a topic, or one queue of it) one batch is under way, and what comes meanwhile makes up the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from arrowmq.client.errors import InvalidMessage, SendTimedOut
from arrowmq.client.names import RETRY_PREFIX
from arrowmq.client.produce.outgoing import Message, Packed
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.client.produce.sending import Choice, Sender
from arrowmq.client.session import Session
from arrowmq.wire import properties as prop
from arrowmq.wire.batch import BatchItem, encode_batch
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.properties import encode_properties

ITEM_HEAD_BYTES = 22


def batch_of(messages: Sequence[Packed], max_bytes: int) -> Packed:
    """One message that carries them all. Raises `InvalidMessage` for what cannot travel together."""
    if not messages:
        raise InvalidMessage("an empty batch: give at least one message")
    first = messages[0]
    for packed in messages:
        if packed.topic != first.topic:
            raise InvalidMessage(f"a batch has one topic, this one has {first.topic} and {packed.topic}")
        if packed.is_delayed:
            raise InvalidMessage("a batch cannot be delayed; send delayed messages one by one")
        if packed.topic.startswith(RETRY_PREFIX):
            raise InvalidMessage(f"no batches to the retry topic {packed.topic}")
        if packed.message.wait_store != first.message.wait_store:
            raise InvalidMessage("messages of a batch agree on wait_store")
    items = [BatchItem(packed.flag, packed.body, encode_properties(packed.properties)) for packed in messages]
    body = encode_batch(items)
    if len(body) > max_bytes:
        raise InvalidMessage(f"the batch has {len(body)} bytes, over the limit of {max_bytes}: split it")
    # No unique id for the whole: a 4.9 broker appends these properties to those of every message, and the last counts.
    properties = {prop.WAIT: first.properties[prop.WAIT]}
    return Packed(Message(first.message.topic, body), first.topic, body, properties, 0, first.msg_id)


def receipts_of(messages: Sequence[Packed], receipt: SendReceipt) -> list[SendReceipt]:
    """Each message's own receipt out of the one for the batch."""
    offset_ids = receipt.offset_msg_id.split(",")
    return [
        SendReceipt(
            receipt.topic,
            receipt.broker_name,
            receipt.queue_id,
            receipt.queue_offset + position,
            packed.msg_id,
            offset_ids[position] if position < len(offset_ids) else receipt.offset_msg_id,
            receipt.status,
            receipt.transaction_id,
            None,
            receipt.region_id,
        )
        for position, packed in enumerate(messages)
    ]


@dataclass(frozen=True, slots=True)
class Batching:
    """Automatic gathering: a batch leaves when it has `max_bytes` or its first message has waited `linger_ms`."""

    max_bytes: int = 32 * 1024
    linger_ms: float = 10.0


_Waiting = tuple[Packed, "asyncio.Future[SendReceipt]", float]


class _Lane:
    __slots__ = ("choice", "is_sending", "size", "timer", "waiting")

    def __init__(self, choice: Choice | None) -> None:
        self.choice = choice
        self.waiting: list[_Waiting] = []
        self.size = 0
        self.is_sending = False
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    def __init__(self, session: Session, sender: Sender, batching: Batching, timeout_s: float, max_bytes: int) -> None:
        self._session = session
        self._sender = sender
        self._batching = batching
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._lanes: dict[tuple[str, MessageQueue | None, bool], _Lane] = {}

    def takes(self, packed: Packed) -> bool:
        """Whether this message may travel in a batch; a large one gains nothing by it."""
        return not (
            packed.is_delayed
            or packed.sys_flag
            or len(packed.body) >= self._batching.max_bytes
            or packed.topic.startswith(RETRY_PREFIX)
            or prop.PGROUP in packed.properties
        )

    async def send(self, packed: Packed, queue: MessageQueue | None, timeout_s: float) -> SendReceipt:
        key = (packed.topic, queue, packed.message.wait_store)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(None if queue is None else lambda _queues: queue)
        receipt: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        lane.waiting.append((packed, receipt, timeout_s))
        lane.size += ITEM_HEAD_BYTES + len(packed.body) + 128
        if not lane.is_sending:
            if lane.size >= self._batching.max_bytes:
                self._start(lane)
            elif lane.timer is None:
                loop = asyncio.get_running_loop()
                lane.timer = loop.call_later(self._batching.linger_ms / 1000, self._start, lane)
        if timeout_s >= self._timeout_s:
            return await receipt
        # The batch has the time of the most patient of its senders; this one has less.
        try:
            async with asyncio.timeout(timeout_s):
                return await receipt
        except TimeoutError as late:
            waited = TimeoutError(f"no answer within {timeout_s:g} s to the batch it was gathered into")
            raise SendTimedOut(packed.message.topic, ["gathered"], [waited], timeout_s * 1000) from late

    def _start(self, lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if not lane.is_sending and lane.waiting:
            lane.is_sending = True
            # Not at the end of the work itself: a task that is cancelled before its first step never runs it.
            self._session.spawn(self._work(lane), "send a batch").add_done_callback(lambda _ended: _rest(lane))

    def flush(self) -> None:
        for lane in self._lanes.values():
            self._start(lane)

    async def _work(self, lane: _Lane) -> None:
        """Send what has gathered, and what gathers while that is under way, one batch at a time."""
        while lane.waiting:
            batch = self._take(lane)
            # A sender that was cancelled while its message waited does not want it sent any more.
            batch = [waiting for waiting in batch if not waiting[1].done()]
            if batch:
                await self._send(batch, lane.choice)
        lane.is_sending = False

    def _take(self, lane: _Lane) -> list[_Waiting]:
        size = 0
        for position, (packed, _, _) in enumerate(lane.waiting):
            size += ITEM_HEAD_BYTES + len(packed.body) + 128
            if size >= self._batching.max_bytes:
                taken, lane.waiting = lane.waiting[: position + 1], lane.waiting[position + 1 :]
                lane.size -= size
                return taken
        taken, lane.waiting, lane.size = lane.waiting, [], 0
        return taken

    async def _send(self, batch: list[_Waiting], choice: Choice | None) -> None:
        messages = [packed for packed, _, _ in batch]
        timeout_s = max(waiting[2] for waiting in batch)
        try:
            if len(messages) == 1:
                receipts = [await self._sender.send(messages[0], timeout_s, choice)]
            else:
                whole = batch_of(messages, self._max_bytes)
                answered = await self._sender.send(whole, timeout_s, choice, code=RequestCode.SEND_BATCH_MESSAGE)
                receipts = receipts_of(messages, answered)
        except BaseException as error:
            for _, receipt, _ in batch:
                if not receipt.done():
                    if isinstance(error, asyncio.CancelledError):
                        receipt.cancel()
                    else:
                        receipt.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for (_, waiting, _), done in zip(batch, receipts, strict=True):
            if not waiting.done():
                waiting.set_result(done)


def _rest(lane: _Lane) -> None:
    """The work on a lane has ended; if it was cancelled, nobody will send what still waits."""
    if lane.is_sending:
        lane.is_sending = False
        for _, receipt, _ in lane.waiting:
            receipt.cancel()
        lane.waiting.clear()
        lane.size = 0

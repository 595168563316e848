"""RocketMQ's message trace: records of who sent and consumed a message, themselves messages of a trace topic.

Fields are joined by 0x01, records end with 0x02. The keys of a trace message are the traced ids and keys, so that a
query by a message's id finds its history; mqadmin's queryMsgTraceById and the dashboard read it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable

from arrowmq.client.errors import ArrowMQError
from arrowmq.client.hooks import Hook
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.produce.outgoing import Message, Packed, Packing, pack
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.client.produce.sending import Sender
from arrowmq.client.session import Session
from arrowmq.wire import properties as prop

log = logging.getLogger("arrowmq.client")

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
MAX_TRACE_BYTES = 128_000
MAX_QUEUED = 2048
BATCH = 20
LINGER_S = 1.0
_NORMAL, _HALF, _DELAY = 0, 1, 3
# How consuming ended, numbered as RocketMQ's ConsumeReturnType.
_SUCCESS, _TIME_OUT, _EXCEPTION = 0, 1, 2


class MessageTrace(Hook):
    """Give it to a producer or consumer as a hook. It has connections of its own and never slows a message down:

    what it cannot send in time it drops and counts.
    """

    def __init__(
        self, namesrv: str, *, group: str, topic: str = TRACE_TOPIC, connect: ConnectOptions | None = None
    ) -> None:
        self._session = Session(Options.of(namesrv, connect or {}))
        self._sender = Sender(self._session, f"_INNER_TRACE_PRODUCER-{group}-{uuid.uuid4().hex[:8]}", retries=1)
        self._group = group
        self._topic = topic
        self._queue: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue(MAX_QUEUED)
        self._worker: asyncio.Task[None] | None = None
        self._request_ids: dict[str, str] = {}
        self.dropped_count = 0

    # -- hooks

    def after_send(
        self, packed: Packed, receipt: SendReceipt | None, error: BaseException | None, took_ms: float
    ) -> None:
        if packed.topic == self._topic:
            return
        properties = packed.properties
        kind = _HALF if prop.TRAN_MSG in properties else _DELAY if packed.is_delayed else _NORMAL
        keys = properties.get(prop.KEYS, "")
        is_ok = receipt is not None and receipt.status is SendStatus.SEND_OK
        fields = [
            "Pub", self._now() - round(took_ms), (receipt and receipt.region_id) or "DefaultRegion", self._group,
            packed.message.topic, packed.msg_id, properties.get(prop.TAGS, ""), keys,
            receipt.broker_name if receipt is not None else "", len(packed.body), round(took_ms), kind,
            receipt.offset_msg_id if receipt is not None else "", "true" if is_ok else "false",
        ]  # fmt: skip
        self._put(fields, [packed.msg_id, *keys.split()])

    def before_consume(self, group: str, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            request_id = uuid.uuid4().hex
            self._request_ids[message.msg_id] = request_id
            keys = " ".join(message.keys)
            region = message.properties.get(prop.MSG_REGION, "DefaultRegion")
            fields = [
                "SubBefore",
                self._now(),
                region,
                group,
                request_id,
                message.msg_id,
                message.reconsume_times,
                keys,
            ]
            self._put(fields, [message.msg_id, *message.keys])
        while len(self._request_ids) > MAX_QUEUED:
            self._request_ids.pop(next(iter(self._request_ids)))

    def after_consume(
        self, group: str, messages: list[ReceivedMessage], error: BaseException | None, took_ms: float
    ) -> None:
        for message in messages:
            request_id = self._request_ids.pop(message.msg_id, uuid.uuid4().hex)
            is_ok = "true" if error is None else "false"
            context = _SUCCESS if error is None else _TIME_OUT if isinstance(error, TimeoutError) else _EXCEPTION
            keys = " ".join(message.keys)
            cost = round(took_ms / max(1, len(messages)))
            fields = ["SubAfter", request_id, message.msg_id, cost, is_ok, keys, context, self._now(), group]
            self._put(fields, [message.msg_id, *message.keys])

    async def close(self) -> None:
        """Send what is queued, then end."""
        if self._worker is not None:
            try:
                async with asyncio.timeout(3.0):
                    await self._queue.join()
            except TimeoutError:
                log.warning("%d trace records were not sent before the end", self._queue.qsize())
        await self._session.close()

    # -- sending

    def _now(self) -> int:
        return self._session.clock.now_ms()

    def _put(self, fields: Iterable[object], keys: list[str]) -> None:
        record = "\x01".join("null" if value is None else str(value) for value in fields) + "\x02"
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="arrowmq trace")
        try:
            self._queue.put_nowait((record, keys))
        except asyncio.QueueFull:
            self.dropped_count += 1

    async def _work(self) -> None:
        try:
            await self._session.start()
        except ArrowMQError as error:
            log.warning("messages are not traced: %s", error)
            return
        self._worker = self._session.spawn(self._send_forever(), "trace")

    async def _send_forever(self) -> None:
        while True:
            batch = [await self._queue.get()]
            try:
                async with asyncio.timeout(LINGER_S):
                    while len(batch) < BATCH:
                        batch.append(await self._queue.get())
            except TimeoutError:
                pass  # a lot that is not full leaves when its time is over
            try:
                await self._send(batch)
            except ArrowMQError as error:
                self.dropped_count += len(batch)
                log.warning("%d trace records are lost: %s", len(batch), error)
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def _send(self, batch: list[tuple[str, list[str]]]) -> None:
        body = "".join(record for record, _ in batch).encode()[:MAX_TRACE_BYTES]
        keys = list(dict.fromkeys(key for _, keys in batch for key in keys if key))
        message = Message(self._topic, body, keys=keys)
        packed = pack(message, self._topic, self._session.new_msg_id(), Packing())
        await self._sender.send(packed, 5.0)

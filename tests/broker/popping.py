"""A client that pops: what it got, with the receipts as the Java client builds them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.pop import Receipt, parse_offset_info, parse_receipt
from arrowmq.wire.records import Record, decode_records

INVISIBLE_MS = 10_000


@dataclass
class Popped:
    record: Record
    receipt: Receipt
    topic: str
    group: str
    count: int = 0  # how often it was consumed before, as the client sees it

    @property
    def body(self) -> bytes:
        return self.record.body


@dataclass
class Pop:
    answer: Command
    messages: list[Popped]

    @property
    def code(self) -> int:
        return self.answer.code

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def rest(self) -> int:
        return int(self.answer.ext["restNum"])


def received(answer: Command, topic: str, group: str, *, broker: str = "broker-a") -> Pop:
    if answer.code != ResponseCode.SUCCESS:
        return Pop(answer, [])
    ext = answer.ext
    starts = parse_offset_info(ext["startOffsetInfo"])
    offsets = parse_offset_info(ext["msgOffsetInfo"])
    counts = parse_offset_info(ext.get("orderCountInfo"))
    messages = []
    taken: dict[tuple[str, str], int] = {}
    for record in decode_records(answer.body):
        text = record.properties.get("POP_CK")
        if text is not None:
            messages.append(Popped(record, parse_receipt(text), topic, group, record.reconsume_times))
            continue
        key = ("0" if not record.topic.startswith("%RETRY%") else "1", str(record.queue_id))
        place = taken.get(key, 0)
        taken[key] = place + 1
        assert offsets[key][place] == record.queue_offset
        receipt = Receipt(
            *(starts[key][0], int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"])),
            *(key[0], broker, record.queue_id, record.queue_offset),
        )
        each = counts.get((key[0], f"qo{record.queue_id}%{record.queue_offset}"), counts.get(key, [0]))
        messages.append(Popped(record, receipt, topic, group, each[0]))
    return Pop(answer, messages)


class Popping:
    """One connection, one topic, one group."""

    def __init__(self, node: Any, topic: str = "orders", group: str = "G") -> None:
        self.node, self.topic, self.group = node, topic, group
        self.client = node.connect()

    def header(self, count: int = 32, **more: Any) -> dict[str, Any]:
        return {
            "consumerGroup": self.group, "topic": self.topic, "queueId": -1, "maxMsgNums": count,
            "invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": self.node.clock.now_ms(), "initMode": 0,
            "order": False, **more,
        }  # fmt: skip

    async def pop(self, count: int = 32, **more: Any) -> Pop:
        answer = await self.client.ask(RequestCode.POP_MESSAGE, self.header(count, **more))
        return received(answer, self.topic, self.group)

    def popping(self, count: int = 32, **more: Any) -> Any:
        """A pop that may wait for a message."""
        return self.client.asking(RequestCode.POP_MESSAGE, self.header(count, **{"pollTime": 10_000, **more}))

    @staticmethod
    def records_of(node: Any, topic: str, queue_id: int) -> list[Record]:
        """What lies in a queue."""
        store = node.broker.store
        return [store.record_at(entry.physical_offset) for entry in store.entries(topic, queue_id, 0, 1000)]

    async def ack(self, message: Popped, **more: Any) -> Command:
        return await self.client.ask(RequestCode.ACK_MESSAGE, {**self._of(message), **more})

    async def change(self, message: Popped, invisible_ms: int, **more: Any) -> Command:
        answer = await self.client.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {**self._of(message), "invisibleTime": invisible_ms, **more}
        )
        if answer.code == ResponseCode.SUCCESS and answer.ext:
            old, ext = message.receipt, answer.ext
            message.receipt = old._replace(
                start_offset=old.queue_offset,
                pop_time=int(ext["popTime"]),
                invisible_time=int(ext["invisibleTime"]),
                revive_queue_id=int(ext["reviveQid"]),
            )
        return answer

    def _of(self, message: Popped) -> dict[str, Any]:
        receipt = message.receipt
        prefix = {"0": "", "1": f"%RETRY%{message.group}_", "2": f"%RETRY%{message.group}+"}[receipt.retry_flag]
        return {
            "consumerGroup": message.group, "topic": prefix + message.topic, "queueId": receipt.queue_id,
            "offset": receipt.queue_offset, "extraInfo": receipt.encode(),
        }  # fmt: skip

    async def ack_all(self, messages: list[Popped]) -> Command:
        """One BATCH_ACK of messages of any number of receipts."""
        together: dict[tuple[Any, ...], set[int]] = {}
        for message in messages:
            receipt = message.receipt
            key = (*receipt[:5], receipt.queue_id)
            together.setdefault(key, set()).add(receipt.queue_offset - receipt.start_offset)
        acks = [
            {
                "b": bits(offsets), "c": self.group, "it": key[2], "pt": key[1], "q": key[5], "r": key[4], "rq": key[3],
                "so": key[0], "t": self.topic,
            }
            for key, offsets in together.items()
        ]  # fmt: skip
        body = fastjson.dumps({"acks": acks, "brokerName": "broker-a"})
        return await self.client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)


def bits(offsets: set[int]) -> str:
    data = bytearray(max(offsets, default=0) // 8 + 1)
    for offset in offsets:
        data[offset >> 3] |= 1 << (offset & 7)
    return base64.b64encode(bytes(data)).decode()

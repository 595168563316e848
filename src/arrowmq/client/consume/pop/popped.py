"""A popped message with its receipt, by which it is acknowledged; and how receipts are read from a pop's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.client.consume.decoding import INNER_BATCH, unwrapped
from arrowmq.client.errors import InvalidUse
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.names import RETRY_PREFIX
from arrowmq.wire import properties as prop
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import decode_header
from arrowmq.wire.headers.pop import PopMessageResult, Receipt, parse_offset_info, parse_receipt
from arrowmq.wire.records import Record, decode_records

if TYPE_CHECKING:
    from arrowmq.client.consume.pop.simple import SimpleConsumer

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"


class PoppedMessage(ReceivedMessage):
    """A message that is lent for a time. Not acknowledged by then, it is delivered again, to any member of the group.

    `ack()` says that it is done, `nack()` that it should come back, `extend()` that more time is needed.
    """

    __slots__ = ("consumer", "receipt")

    consumer: SimpleConsumer
    receipt: Receipt

    @property
    def invisible_until_ms(self) -> int:
        """When it becomes visible to others, by the broker's clock."""
        return self.receipt.pop_time + self.receipt.invisible_time

    async def ack(self) -> None:
        """Done: do not deliver it to this group again. Returns when the broker has it in its log."""
        await self._consumer().acknowledge(self)

    async def nack(self, delay_s: float = 0.0) -> None:
        """Deliver it again, now or after so many seconds."""
        await self._consumer().change_invisible_time(self, delay_s)

    async def extend(self, seconds: float) -> None:
        """Keep it for so many seconds from now on."""
        await self._consumer().change_invisible_time(self, seconds)

    def _consumer(self) -> SimpleConsumer:
        if not hasattr(self, "consumer"):
            raise InvalidUse(f"message {self.msg_id} was not popped: it has no receipt")
        return self.consumer

    @property
    def popped_topic(self) -> str:
        """The topic that the receipt is of: the retry topic, if it came from there."""
        group, topic = self.consumer.group, self.consumer.wrapped(self.topic)
        if self.receipt.retry_flag == RETRY_V1:
            return f"{RETRY_PREFIX}{group}_{topic}"
        return f"{RETRY_PREFIX}{group}+{topic}" if self.receipt.retry_flag == RETRY_V2 else topic


def messages_of(consumer: SimpleConsumer, answer: Command, topic: str, broker_name: str) -> list[PoppedMessage]:
    header = decode_header(PopMessageResult, answer.ext)
    starts, offsets = parse_offset_info(header.start_offset_info), parse_offset_info(header.msg_offset_info)
    counts = parse_offset_info(header.order_count_info)
    taken: dict[tuple[str, str], int] = {}
    messages = []
    for record in _records(answer.body):
        message = consumer.message_type(record, broker_name, topic=consumer.unwrapped(topic))
        text = record.properties.get(prop.POP_CK)
        if text is not None:  # a retry, which the broker shows under the topic it belongs to
            receipt = parse_receipt(text)
        else:
            key = (_flag_of(record.topic), str(record.queue_id))
            place = taken.get(key, 0)
            taken[key] = place + 1
            known = offsets.get(key, ())
            offset = known[place] if place < len(known) else record.queue_offset
            start = starts[key][0] if key in starts else offset
            receipt = Receipt(
                *(start, header.pop_time, header.invisible_time, header.revive_qid),
                *(key[0], broker_name, record.queue_id, offset),
            )
            count = counts.get((key[0], f"qo{record.queue_id}%{offset}")) or counts.get(key)
            if count:
                message.extra_reconsumes = max(0, count[0] - record.reconsume_times)
        message.receipt, message.consumer = receipt, consumer
        messages.append(message)
    return messages


def _records(body: bytes) -> list[Record]:
    records = decode_records(body)
    if any(record.sys_flag & INNER_BATCH == INNER_BATCH for record in records):
        return unwrapped(records)
    return records


def _flag_of(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1

"""A message as a consumer gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from arrowmq.client.errors import InvalidUse
from arrowmq.wire import properties as prop
from arrowmq.wire.records import Record

if TYPE_CHECKING:
    from arrowmq.client.consume.pulling import PulledQueue


class Delivered(Protocol):
    """What inboxes and process queues hold: a message, or a whole pull of them (`chunks.Chunk`)."""

    delivered_ms: int

    @property
    def queue_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def pulled_from(self) -> PulledQueue | None: ...


class Settles(Protocol):
    """Who takes a message's acknowledgement or its return."""

    def acknowledge(self, message: ReceivedMessage) -> None: ...

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None: ...


class ReceivedMessage:
    """Reads straight from the decoded record; what is not asked for is not computed.

    `ack()` says that the message is done: its offset is committed with the next commit of the queue. `nack()` gives it
    back: the broker delivers it again later, and after the group's last attempt puts it among the dead letters.
    """

    __slots__ = ("_body", "_topic", "broker_name", "delivered_ms", "extra_reconsumes", "owner", "record", "source")

    record: Record
    broker_name: str

    def __init__(
        self,
        record: Record,
        broker_name: str,
        source: PulledQueue | None = None,
        owner: Settles | None = None,
        topic: str | None = None,
    ) -> None:
        self.record = record
        self.broker_name = broker_name
        self.source = source
        self.owner = owner
        self.delivered_ms = 0
        self.extra_reconsumes = 0
        self._topic = topic
        self._body: bytes | None = None

    @property
    def topic(self) -> str:
        """The topic it was sent to; of a retried message the original topic."""
        return self._topic if self._topic is not None else self.record.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed."""
        body = self._body
        if body is None:
            body = self._body = self.record.decompressed_body()
        return body

    @property
    def tag(self) -> str | None:
        return self.record.tag

    @property
    def keys(self) -> list[str]:
        return self.record.keys

    @property
    def properties(self) -> dict[str, str]:
        return self.record.properties

    @property
    def msg_id(self) -> str:
        """The id that the sender gave it, which its receipt shows as well."""
        return self.record.msg_id

    @property
    def offset_msg_id(self) -> str:
        """The broker's id: where the record lies."""
        return self.record.offset_msg_id

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def pulled_from(self) -> PulledQueue | None:
        return self.source

    @property
    def physical_offset(self) -> int:
        return self.record.physical_offset

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp

    @property
    def reconsume_times(self) -> int:
        return self.record.reconsume_times + self.extra_reconsumes

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def sys_flag(self) -> int:
        return self.record.sys_flag

    @property
    def size(self) -> int:
        return self.record.size

    @property
    def transaction_id(self) -> str | None:
        properties = self.record.properties
        return properties.get(prop.TRANSACTION_ID) or properties.get(prop.UNIQ_KEY)

    async def ack(self) -> None:
        """Done: do not deliver it to this group again."""
        self._settler().acknowledge(self)

    async def nack(self, delay_level: int = 0) -> None:
        """Deliver it again later. `delay_level` 0: after the broker's growing delays; -1: to the dead letters now."""
        await self._settler().send_back(self, delay_level)

    def _settler(self) -> Settles:
        if self.owner is None:
            raise InvalidUse(f"message {self.msg_id} was not delivered by a consumer group: it needs no ack or nack")
        return self.owner

    def __repr__(self) -> str:
        record = self.record
        return (
            f"<ReceivedMessage {self.topic} {self.broker_name} queue {record.queue_id} offset {record.queue_offset} "
            f"tag {record.tag!r} {len(record.body)} bytes, id {self.msg_id}>"
        )

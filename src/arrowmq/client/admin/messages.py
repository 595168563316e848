"""Looking at stored messages: by id, by key, by offset; and the dead letters of a group."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from datetime import datetime

from arrowmq.client import names
from arrowmq.client.admin.cluster import ClusterAdmin, text
from arrowmq.client.consume.decoding import INNER_BATCH, unwrapped
from arrowmq.client.errors import ArrowMQError, NoRoute
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.produce.outgoing import Message, Packed
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.client.produce.sending import Sender
from arrowmq.wire import properties as prop
from arrowmq.wire import sysflag
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import Record, decode_record, decode_records

PULL_GROUP = "TOOLS_CONSUMER"
QUERY_TIMEOUT_S = 6.0
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
#: What the broker wrote into a dead letter and must not be sent on with it.
_DEAD_LETTER_MARKS = (
    prop.RETRY_TOPIC, prop.DLQ_ORIGIN_TOPIC, prop.DLQ_ORIGIN_MESSAGE_ID, prop.ORIGIN_MESSAGE_ID, prop.DELAY,
    prop.REAL_TOPIC, prop.REAL_QID, prop.MIN_OFFSET, prop.MAX_OFFSET, prop.RECONSUME_TIME, prop.MAX_RECONSUME_TIMES,
)  # fmt: skip


class MessageAdmin(ClusterAdmin):
    async def message_by_offset_id(self, offset_msg_id: str, topic: str = "") -> ReceivedMessage:
        """The message with a broker's id, which says where it lies."""
        place = parse_offset_message_id(offset_msg_id)
        host = ipaddress.ip_address(place.ip)
        address = f"[{host}]:{place.port}" if host.version == 6 else f"{host}:{place.port}"
        ext = text(offset=place.physical_offset, topic=topic or None)
        answer = await self.call(address, RequestCode.VIEW_MESSAGE_BY_ID, ext)
        return self._shown(decode_record(bytes(answer.body)), "")

    async def message_by_id(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message with the id that its sender's receipt shows; the newest, if it was sent again."""
        found = await self._query(topic, msg_id, 32, 0, None, is_unique=True)
        return max(found, key=lambda message: message.store_timestamp, default=None)

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 64,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """Messages that carry this key, by the time they were stored."""
        begin_ms = 0 if begin is None else round(begin.timestamp() * 1000)
        end_ms = None if end is None else round(end.timestamp() * 1000)
        found = await self._query(topic, key, max_count, begin_ms, end_ms, is_unique=False)
        return sorted(found, key=lambda message: message.store_timestamp)[:max_count]

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int | None, *, is_unique: bool
    ) -> list[ReceivedMessage]:
        route = await self.route(topic)
        ext = text(
            topic=route.topic,
            key=key,
            maxNum=max_count,
            beginTimestamp=begin_ms,
            endTimestamp=(1 << 63) - 1 if end_ms is None else end_ms,
        )
        ext[_UNIQUE_KEY_QUERY] = "true" if is_unique else "false"
        found: list[ReceivedMessage] = []
        for broker_name in route.addresses:
            reader = route.reader(broker_name)
            if reader is None:
                continue
            answer = await self.call(
                reader[1],
                RequestCode.QUERY_MESSAGE,
                ext,
                accept=(ResponseCode.QUERY_NOT_FOUND,),
                timeout_s=QUERY_TIMEOUT_S,
            )
            if not answer.code:
                found += [self._shown(record, broker_name) for record in decode_records(bytes(answer.body))]
        # The index knows hashes only: what does not truly carry the key is left out.
        if is_unique:
            return [message for message in found if message.msg_id == key]
        return [message for message in found if key in message.keys]

    async def messages_at(self, queue: MessageQueue, offset: int, max_count: int = 32) -> list[ReceivedMessage]:
        """Messages of a queue from this offset on; an empty list at its end."""
        route = await self.route(queue.topic)
        reader = route.reader(queue.broker_name)
        if reader is None:
            raise NoRoute(
                queue.topic, self.session.options.namesrv[0], f"Broker {queue.broker_name} is not in its route"
            )
        ext = text(
            consumerGroup=PULL_GROUP,
            topic=queue.topic,
            queueId=queue.queue_id,
            queueOffset=offset,
            maxMsgNums=max_count,
            sysFlag=sysflag.PULL_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=self.session.clock.now_ms(),
            expressionType="TAG",
        )
        answer = await self.call(
            reader[1],
            RequestCode.PULL_MESSAGE,
            ext,
            accept=(
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            ),
        )
        if answer.code:
            return []
        records = decode_records(bytes(answer.body))
        if any(record.sys_flag & INNER_BATCH == INNER_BATCH for record in records):
            records = unwrapped(records)
        return [self._shown(record, queue.broker_name) for record in records]

    async def read(self, topic: str, *, max_per_pull: int = 32) -> AsyncIterator[ReceivedMessage]:
        """Every message of a topic that is stored now, queue by queue; consumes nothing."""
        for queue, limits in sorted((await self._stats(topic)).items()):
            offset = limits[0]
            while offset < limits[1]:
                found = await self.messages_at(queue, offset, max_per_pull)
                if not found:
                    break
                for message in found:
                    if message.queue_offset >= limits[1]:
                        break
                    yield message
                offset = found[-1].queue_offset + 1

    async def _stats(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        from arrowmq.wire.bodies import TopicStatsTable

        route = await self.route(topic)
        limits: dict[MessageQueue, tuple[int, int]] = {}
        for broker_name in route.addresses:
            reader = route.reader(broker_name)
            if reader is not None:
                ext = {"topic": route.topic}
                table = await self.call_body(reader[1], RequestCode.GET_TOPIC_STATS_INFO, ext, TopicStatsTable)
                limits |= {queue: (each.min_offset, each.max_offset) for queue, each in table.offset_table.items()}
        return limits

    # -- dead letters

    async def dead_letters(self, group: str, *, max_count: int = 1000) -> list[ReceivedMessage]:
        """Messages that the group failed to consume too often."""
        topic = names.dlq_topic(self.namespace.wrap(group))
        route = await self.session.fetch_route(topic)
        if route is None:
            return []  # no message of the group ever died
        found: list[ReceivedMessage] = []
        async for message in self.read(topic):
            found.append(message)
            if len(found) >= max_count:
                break
        return found

    async def resend_dead_letter(
        self, letter: ReceivedMessage, *, msg_id: str | None = None, retries: int = 2
    ) -> SendReceipt:
        """Send a dead letter to the topic it came from, as a new message; the letter itself stays where it is.

        Who keeps a record of what was sent gives the new message its id, and repeats by itself what failed.
        """
        properties = dict(letter.properties)
        topic = properties.get(prop.DLQ_ORIGIN_TOPIC) or properties.get(prop.RETRY_TOPIC)
        if not topic:
            raise ArrowMQError(f"{letter!r} does not say which topic it came from")
        for name in _DEAD_LETTER_MARKS:
            properties.pop(name, None)
        properties[prop.UNIQ_KEY] = msg_id or self.session.new_msg_id()
        body = letter.record.body
        flags = letter.sys_flag & (sysflag.COMPRESSED | sysflag.COMPRESSION_MASK)
        message = Message(topic, body, flag=letter.flag)
        packed = Packed(message, topic, body, properties, flags, properties[prop.UNIQ_KEY])
        return await Sender(self.session, names.CLIENT_INNER_PRODUCER, retries=retries).send(packed, 3.0)

    def _shown(self, record: Record, broker_name: str) -> ReceivedMessage:
        return ReceivedMessage(record, broker_name, topic=self.namespace.unwrap(record.topic))

"""How messages are found, and what is told of one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.inspect.texts import body_text
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.ids import IdError, parse_offset_message_id
from arrowmq.wire.message_queue import MessageQueue


class MessageGone(ArrowMQError):
    """No broker has the message: it was never stored here, or is older than what is kept."""


def message_row(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "topic": message.topic,
        "broker": message.broker_name or None,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "tag": message.tag,
        "keys": message.keys,
        "born": message.born_timestamp,
        "bornHost": host_text(message.record.born_host),
        "stored": message.store_timestamp,
        "storeHost": host_text(message.record.store_host),
        "reconsumeTimes": message.reconsume_times,
        "size": message.size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "properties": message.properties,
        "body": body_text(message.body),
    }


def host_text(host: tuple[bytes, int]) -> str:
    address = ipaddress.ip_address(host[0])
    return f"[{address}]:{host[1]}" if address.version == 6 else f"{address}:{host[1]}"


async def find_by_id(
    admin: Admin,
    msg_id: str,
    topic: str | None,
    also: Sequence[str] = (),
    *,
    on_searched: Callable[[int], object] = lambda total: None,
) -> ReceivedMessage:
    """By the sender's id or the broker's; without a topic every topic is searched for the sender's.

    `on_searched` is called after each topic that was searched, with the number of all of them.
    """
    message = await _by_offset_id(admin, msg_id)
    if message is not None:
        return message
    topics = [topic, *also] if topic is not None else await admin.topics(with_system=True)
    masters = await admin.masters()
    found: list[ReceivedMessage] = []

    async def search(name: str) -> None:
        wanted = admin.namespace.wrap(name)
        for broker, address in masters.items():
            found.extend(await admin.indexed_at(address, broker, wanted, msg_id, is_unique=True))
        on_searched(len(topics))

    await each_of(topics, search)
    if found:
        # Of all its forms (delayed, retried, parked) the one that users mean is the one in the topic it was sent to.
        return min(found, key=lambda each: (is_internal(each.topic), each.store_timestamp))
    where = f"topic {topic}" if topic is not None else f"any of {len(topics)} topics"
    raise MessageGone(
        f"message {msg_id} is not in {where}: it was never stored here, or it is older than what is kept "
        "(`arrowmq topic show TOPIC` tells the first offset of each queue)"
    )


def is_internal(topic: str) -> bool:
    """Topics in which brokers keep forms of a message."""
    return topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)) or names.is_system_topic(topic)


async def _by_offset_id(admin: Admin, msg_id: str) -> ReceivedMessage | None:
    """A broker's id says where the message lies; a sender's id of the same length says nothing of the kind."""
    try:
        place = parse_offset_message_id(msg_id)
    except IdError:
        return None
    host = host_text((place.ip, place.port))
    info = await admin.cluster_info()
    broker_names = {
        address: name for name, each in info.broker_addr_table.items() for address in each.broker_addrs.values()
    }
    if host not in broker_names:
        return None
    try:
        message = await admin.message_by_offset_id(msg_id)
    except Refused:
        return None
    return ReceivedMessage(message.record, broker_names[host], topic=message.topic)


async def offsets_at(
    admin: Admin, topic: str, queues: Sequence[MessageQueue], timestamp_ms: int
) -> dict[MessageQueue, int]:
    """In each queue the first message that was stored at this time or later."""
    route = await admin.route(topic)
    found = {}
    for queue in queues:
        reader = route.reader(queue.broker_name)
        assert reader is not None
        ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "timestamp": str(timestamp_ms)}
        answer = await admin.call(reader[1], RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        found[queue] = int(answer.ext["offset"])
    return found

"""How messages are found and shown: shared by `message`, `dead-letters` and `explain`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from arrowmq.cli.cluster_link import Failure, Link
from arrowmq.cli.screen import Column, body_text, time_text
from arrowmq.client import names
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.ids import IdError, parse_offset_message_id
from arrowmq.wire.message_queue import MessageQueue

MESSAGE_COLUMNS = [
    Column("stored", "STORED", time_text, is_whole=True),
    Column("msgId", "ID", is_whole=True),
    Column("broker", "BROKER", is_extra=True),
    Column("queueId", "QUEUE", is_number=True, is_extra=True),
    Column("queueOffset", "OFFSET", is_number=True, is_extra=True),
    Column("tag", "TAG"),
    Column("keys", "KEYS", is_extra=True),
    Column("body", "BODY", lambda body: body[:200].replace("\n", " "), is_cut=True),
]


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


def show_message(link: Link, message: ReceivedMessage) -> None:
    """One message with everything that is known of it."""
    row = message_row(message)
    if link.screen.as_json:
        link.screen.json(row)
        return
    link.screen.fields(
        [
            ("id", row["msgId"]),
            ("broker's id", row["offsetMsgId"]),
            ("topic", row["topic"]),
            ("place", f"{row['broker'] or '?'} queue {row['queueId']} offset {row['queueOffset']}"),
            ("in the log at", f"{row['physicalOffset']} ({row['size']} bytes)"),
            ("born", f"{time_text(row['born'])} at {row['bornHost']}"),
            ("stored", f"{time_text(row['stored'])} at {row['storeHost']}"),
            ("tag", row["tag"]),
            ("keys", row["keys"]),
            ("tries before", row["reconsumeTimes"]),
        ]
    )
    link.screen.say("")
    link.screen.fields(sorted(row["properties"].items()), title="properties")
    link.screen.say("")
    link.screen.say(f"body, {len(message.body)} bytes", "bold")
    link.screen.say(body_text(message.body, 10_000))


async def find_by_id(link: Link, msg_id: str, topic: str | None, also: Sequence[str] = ()) -> ReceivedMessage:
    """By the sender's id or the broker's; without a topic every topic is searched for the sender's."""
    message = await _by_offset_id(link, msg_id)
    if message is not None:
        return message
    topics = [topic, *also] if topic is not None else await link.admin.topics(with_system=True)
    masters = await link.admin.masters()
    found: list[ReceivedMessage] = []
    with link.screen.progress("topics", len(topics)) as bar:

        async def search(name: str) -> None:
            wanted = link.admin.namespace.wrap(name)
            for broker, address in masters.items():
                found.extend(await link.admin.indexed_at(address, broker, wanted, msg_id, is_unique=True))
            bar.advance(bar.task_ids[0])

        await each_of(topics, search)
    if found:
        # Of all its forms (delayed, retried, parked) the one that users mean is the one in the topic it was sent to.
        return min(found, key=lambda each: (is_internal(each.topic), each.store_timestamp))
    where = f"topic {topic}" if topic is not None else f"any of {len(topics)} topics"
    raise Failure(
        f"message {msg_id} is not in {where}: it was never stored here, or it is older than what is kept "
        "(`arrowmq topic show TOPIC` tells the first offset of each queue)"
    )


def is_internal(topic: str) -> bool:
    """Topics in which brokers keep forms of a message."""
    return topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)) or names.is_system_topic(topic)


async def _by_offset_id(link: Link, msg_id: str) -> ReceivedMessage | None:
    """A broker's id says where the message lies; a sender's id of the same length says nothing of the kind."""
    try:
        place = parse_offset_message_id(msg_id)
    except IdError:
        return None
    host = host_text((place.ip, place.port))
    info = await link.admin.cluster_info()
    broker_names = {
        address: name for name, each in info.broker_addr_table.items() for address in each.broker_addrs.values()
    }
    if host not in broker_names:
        return None
    try:
        message = await link.admin.message_by_offset_id(msg_id)
    except Refused:
        return None
    return ReceivedMessage(message.record, broker_names[host], topic=message.topic)


async def offsets_at(
    link: Link, topic: str, queues: Sequence[MessageQueue], timestamp_ms: int
) -> dict[MessageQueue, int]:
    """In each queue the first message that was stored at this time or later."""
    route = await link.admin.route(topic)
    found = {}
    for queue in queues:
        reader = route.reader(queue.broker_name)
        assert reader is not None
        ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "timestamp": str(timestamp_ms)}
        answer = await link.admin.call(reader[1], RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        found[queue] = int(answer.ext["offset"])
    return found

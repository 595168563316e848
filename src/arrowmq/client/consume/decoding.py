"""From a pull's body to messages: decoded in native code, inner batches unwrapped, tags compared by text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.client.consume.pulling import PulledQueue
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.names import RETRY_PREFIX
from arrowmq.wire import properties as prop
from arrowmq.wire import sysflag
from arrowmq.wire.batch import decode_batch
from arrowmq.wire.records import Record, decode_records

if TYPE_CHECKING:
    from arrowmq.client.consume.group.membership import GroupMember

INNER_BATCH = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP


def messages_of(member: GroupMember, pulled: PulledQueue, body: bytes) -> list[ReceivedMessage]:
    records = decode_records(body)
    if any(record.sys_flag & INNER_BATCH == INNER_BATCH for record in records):
        records = unwrapped(records)
    tags = pulled.subscription.tags
    if tags:
        # The broker compares hashes of tags; two tags may share one.
        records = [record for record in records if record.tag in tags]
    make = member.membership.message_type
    broker_name, settler, topic = pulled.queue.broker_name, member.settler, pulled.queue.topic
    namespace = member.session.options.namespace
    if topic.startswith(RETRY_PREFIX):
        return [
            make(record, broker_name, pulled, settler, namespace.unwrap(_original_topic(record))) for record in records
        ]
    shown = namespace.unwrap(topic)
    return [make(record, broker_name, pulled, settler, shown) for record in records]


def _original_topic(record: Record) -> str:
    return record.properties.get(prop.RETRY_TOPIC) or record.topic


def unwrapped(records: list[Record]) -> list[Record]:
    """The messages inside of inner batches (topics with queue.type=BatchCQ), at consecutive offsets."""
    flat: list[Record] = []
    for record in records:
        if record.sys_flag & INNER_BATCH != INNER_BATCH:
            flat.append(record)
            continue
        for position, item in enumerate(decode_batch(record.decompressed_body())):
            flat.append(
                Record(
                    topic=record.topic,
                    body=item.body,
                    properties_raw=item.properties_raw,
                    queue_id=record.queue_id,
                    flag=item.flag,
                    queue_offset=record.queue_offset + position,
                    physical_offset=record.physical_offset,
                    sys_flag=record.sys_flag & ~(INNER_BATCH | sysflag.COMPRESSED | sysflag.COMPRESSION_MASK),
                    born_timestamp=record.born_timestamp,
                    born_host=record.born_host,
                    store_timestamp=record.store_timestamp,
                    store_host=record.store_host,
                    reconsume_times=record.reconsume_times,
                    size=len(item.body) + len(item.properties_raw) + 91,
                )
            )
    return flat

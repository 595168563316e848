"""Appending messages, one by one and in batches: the pure-Python reference.

A record, its queue entry and its index entries are written together. If room for any of them is missing, nothing is
written, and the answer says which: the store makes that room and asks again.
"""

from __future__ import annotations

from arrowmq.store.append._tail_plain import (
    NEEDS_INDEX_ROOM,
    NEEDS_QUEUE_ROOM,
    NEEDS_SEGMENT,
    IndexTail,
    LogTail,
    QueueTail,
    dispatch_facts,
    has_index_room,
    has_queue_room,
    index_keys,
    key_hash,
    put_entry,
    put_key,
    tags_code,
)
from arrowmq.wire.batch import decode_batch
from arrowmq.wire.records import Record, RecordError, encode_record

BLANK_BYTES = 8  # at least so much stays free at a segment's end, for the blank record
_PREPARED, _ROLLBACK, _TRANSACTION = 0x4, 0xC, 0xC


def append(
    log: LogTail, queue: QueueTail, index: IndexTail, record: Record, store_timestamp: int, with_crc: bool = False
) -> int:
    """Write a record with its entries; its size, or which room is missing. Gives the record its place and time."""
    transaction = record.sys_flag & _TRANSACTION
    is_queued = transaction not in (_PREPARED, _ROLLBACK)
    record.queue_offset = queue.next_offset if is_queued else 0
    record.physical_offset = log.start + log.position
    record.store_timestamp = store_timestamp
    data = encode_record(record, with_record_crc=with_crc)
    size = len(data)
    if log.view is None or log.position + size + BLANK_BYTES > log.size:
        return NEEDS_SEGMENT
    if is_queued and (queue.view is None or not has_queue_room(queue, 1)):
        return NEEDS_QUEUE_ROOM
    tags, keys, unique, delay = dispatch_facts(record.properties_raw)
    words = index_keys(keys, unique, tags) if index.enabled and transaction != _ROLLBACK else []
    if words and not has_index_room(index, len(words)):
        return NEEDS_INDEX_ROOM
    log.view[log.position : log.position + size] = data
    log.position += size
    log.last_store_timestamp = store_timestamp
    if is_queued:
        put_entry(log, queue, record.physical_offset, size, tags_code(queue, tags, delay, store_timestamp))
    for word in words:
        put_key(index, key_hash(queue.topic_bytes + b"#" + word), record.physical_offset, store_timestamp)
    return size


def append_batch(
    log: LogTail,
    queue: QueueTail,
    index: IndexTail,
    records: list[Record],
    store_timestamp: int,
    with_crc: bool = False,
    max_body: int = 0x7FFFFFFF,
) -> tuple[int, int]:
    """Write messages of one queue, all or none, in one segment; their bytes, or which room is missing.

    The second number is how many bytes, entries or keys of room that takes.
    """
    total = words = queued = 0
    for record in records:
        transaction = record.sys_flag & _TRANSACTION
        if record.topic != queue.topic or record.queue_id != queue.queue_id:
            raise RecordError("the messages of a batch are of one queue")
        if len(record.body) > max_body:
            raise RecordError(f"a message of the batch has {len(record.body)} bytes, {max_body} are allowed")
        total += len(encode_record(record, with_record_crc=with_crc))
        queued += transaction not in (_PREPARED, _ROLLBACK)
        if index.enabled and transaction != _ROLLBACK:
            tags, keys, unique, _ = dispatch_facts(record.properties_raw)
            words += len(index_keys(keys, unique, tags))
    if log.view is None or log.position + total + BLANK_BYTES > log.size:
        return NEEDS_SEGMENT, total
    if not has_queue_room(queue, queued):
        return NEEDS_QUEUE_ROOM, queued
    if queue.view is None:
        if queue.grow is None:
            return NEEDS_QUEUE_ROOM, queued
        queue.grow()
    if words and not has_index_room(index, words):
        return NEEDS_INDEX_ROOM, words
    for record in records:
        if append(log, queue, index, record, store_timestamp, with_crc) <= 0:
            raise RuntimeError("room for the whole batch was made, and yet it is missing")
    return total, len(records)


def append_client_batch(
    log: LogTail,
    queue: QueueTail,
    index: IndexTail,
    template: Record,
    data: bytes,
    store_timestamp: int,
    with_crc: bool = False,
    max_body: int = 0x7FFFFFFF,
) -> tuple[int, int]:
    """Write the messages of a client's batch body, each with the template's queue, hosts and flags; as `append_batch`.

    Of the answer's two numbers the second is the count of messages.
    """
    records = []
    for flag, body, properties in decode_batch(data):
        records.append(
            Record(
                template.topic,
                body,
                properties,
                template.queue_id,
                flag,
                sys_flag=template.sys_flag,
                born_timestamp=template.born_timestamp,
                born_host=template.born_host,
                store_host=template.store_host,
                reconsume_times=template.reconsume_times,
                prepared_transaction_offset=template.prepared_transaction_offset,
            )
        )
    if not records:
        raise RecordError("a batch needs at least one message")
    answer = append_batch(log, queue, index, records, store_timestamp, with_crc, max_body)
    if answer[0] > 0:
        template.queue_offset = records[0].queue_offset
        template.physical_offset = records[0].physical_offset
        template.store_timestamp = store_timestamp
    return answer

"""Messages and small stores for tests of the store."""

from __future__ import annotations

from pathlib import Path

from arrowmq.store import MessageStore, StoreConfig
from arrowmq.store.positions import FLUSHED
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, decode_records

HOST = (bytes((127, 0, 0, 1)), 10911)
SMALL = StoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=100,
    max_message_size=8192,
)


def message(
    body: bytes = b"hello",
    topic: str = "orders",
    queue_id: int = 0,
    *,
    tag: str | None = None,
    keys: str | None = None,
    unique: str | None = None,
    sys_flag: int = 0,
    **properties: str,
) -> Record:
    if tag:
        properties["TAGS"] = tag
    if keys:
        properties["KEYS"] = keys
    if unique:
        properties["UNIQ_KEY"] = unique
    return Record(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties_raw=encode_properties(properties),
        sys_flag=sys_flag,
        born_timestamp=1_757_400_000_000,
        born_host=(bytes((10, 0, 0, 9)), 50123),
        store_host=HOST,
    )


def numbered(number: int, topic: str = "orders", queues: int = 3) -> Record:
    """A message that can be recognised: its body says its number and has a length of its own."""
    body = (b"%d:" % number) + bytes((number * 7 + place) % 251 for place in range(number * 37 % 400))
    return message(body, topic, number % queues, tag=f"t{number % 4}", keys=f"k{number} common", unique=f"u{number}")


def opened(root: Path, config: StoreConfig = SMALL, **parts: object) -> MessageStore:
    store = MessageStore(root, config, **parts)  # type: ignore[arg-type]
    store.open()
    return store


def abandon(store: MessageStore) -> None:
    """Leave a store as a killed process does: without closing it, and with its lock gone."""
    store._lock.release()


def bodies(store: MessageStore, topic: str = "orders") -> list[bytes]:
    """Every body of a topic, queue after queue, as readers get them."""
    found = []
    for queue_id in store.queues().get(topic, []):
        offset = store.min_offset(topic, queue_id)
        while offset < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, offset, 32)
            found += [record.body for record in decode_records(got.body(), check_crc=True)]
            assert got.next_offset > offset
            offset = got.next_offset
    return found


async def is_flushed(store: MessageStore, end: int) -> bool:
    """Waits for the disk; False if that takes too long."""
    return not await store.positions.wait(end, FLUSHED)

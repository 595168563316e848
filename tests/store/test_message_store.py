"""Goal: what is put is read back, by queue, by key and by time, with Apache's outcomes and limits."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from writing import abandon, message, numbered, opened

from arrowmq import native
from arrowmq.clock import VirtualClock
from arrowmq.store import Boundary, GetStatus, MessageStore, PutStatus, StoreConfig, StoreError
from arrowmq.store.disk import Disk
from arrowmq.store.errors import OutOfSpace, StoreUnwritable
from arrowmq.store.read.reader import is_resident
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import decode_records


def test_a_put_gives_place_and_time_and_a_get_gives_the_same_bytes(tmp_path: Path) -> None:
    clock = VirtualClock(1_757_400_000_123)
    store = opened(tmp_path, clock=clock)
    record = message(tag="TagA", keys="order-1")
    put = store.put(record)
    assert (PutStatus.PUT_OK, 0, 0, 1_757_400_000_123, 1) == (
        put.status, put.physical_offset, put.queue_offset, put.store_timestamp, put.count,
    )  # fmt: skip
    got = store.get("orders", 0, 0, 32)
    assert (GetStatus.FOUND, 1, 0, 1) == (got.status, got.next_offset, got.min_offset, got.max_offset)
    assert store.appended == got.total_bytes == put.size
    (read,) = decode_records(got.body(), check_crc=True)
    assert (b"hello", "TagA", 1_757_400_000_123) == (read.body, read.tag, read.store_timestamp)
    store.close()


def test_the_files_have_the_bytes_of_the_specification(tmp_path: Path) -> None:
    """The record, the queue entry and the index entry of the format's own test vector."""
    config = StoreConfig(mapped_file_size_commit_log=65_536)
    store = MessageStore(tmp_path, config, VirtualClock(1_757_400_000_123))
    store.open()
    store.commit_log.roll()
    store.commit_log.tail.position = 4096
    queue = store.consume_queues.get("orders", 2)
    queue.begin_at(7)
    queue.tail.max_physical = 0
    record = message(b"hello", "orders", 2, TAGS="TagA", KEYS="order-1")
    record.born_host, record.store_host = (bytes((10, 0, 0, 9)), 50123), (bytes((10, 0, 0, 1)), 10911)
    assert store.put(record).is_ok
    expected = bytes.fromhex(
        "0000007d daa320a7 3610a686 00000002 00000000 0000000000000007 0000000000001000"
        "00000000 000001992d33e600 0a0000090000c3cb 000001992d33e67b 0a00000100002a9f"
        "00000000 0000000000000000 00000005 68656c6c6f 06 6f7264657273"
        "0017 54414753 01 54616741 02 4b455953 01 6f726465722d31 02"
    )
    log = (tmp_path / "commitlog" / "00000000000000000000").read_bytes()
    assert expected == log[4096 : 4096 + 125]
    entries = (tmp_path / "consumequeue" / "orders" / "2" / "00000000000000000000").read_bytes()
    assert bytes.fromhex("0000000000001000 0000007d 000000000027a807") == entries[140:160]
    (index,) = (tmp_path / "index").iterdir()
    with open(index, "rb") as file:
        file.seek(20_000_060)
        assert bytes.fromhex("346ac1d4 0000000000001000 00000000 00000000") == file.read(20)
        file.seek(17_646_712)
        assert (1).to_bytes(4, "big") == file.read(4)
    abandon(store)


def test_the_edges_of_a_queue_have_outcomes_of_their_own(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert GetStatus.NO_MESSAGE_IN_QUEUE is store.get("orders", 0, 5, 32).status
    for number in range(5):
        store.put(message(b"%d" % number))
    for offset, status, next_offset in (
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
        (4, GetStatus.FOUND, 5),
    ):
        got = store.get("orders", 0, offset, 32)
        assert (status, next_offset) == (got.status, got.next_offset)
    store.close()


def test_a_read_stops_at_count_bytes_and_the_end_of_a_queue_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for _ in range(50):
        store.put(message(b"x" * 100))
    size = store.get("orders", 0, 0, 1).total_bytes
    assert 7 == store.get("orders", 0, 0, 7).count
    assert 3 == store.get("orders", 0, 0, 32, size * 3 + 5).count
    assert 1 == store.get("orders", 0, 0, 32, 1).count  # the first message always goes through
    assert 20 == store.get("orders", 0, 0, 32).count  # 400 bytes of queue file hold 20 entries
    assert 5 == store.get("orders", 0, 15, 32).count
    store.close()


class Tags:
    needs_record = False

    def __init__(self, *tags: str) -> None:
        self.codes = {java_hash(tag) for tag in tags}

    def matches_entry(self, tags_code: int) -> bool:
        return tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:
        raise AssertionError("a tag filter needs no record")


class Bodies(Tags):
    needs_record = True

    def matches_entry(self, tags_code: int) -> bool:
        return True  # as it has no codes

    def matches_record(self, record: memoryview) -> bool:
        return b"7" in bytes(record[88:])


def test_filters_are_asked_with_the_entry_and_then_with_the_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(20):
        store.put(message(b"body-%d" % number, tag=f"t{number % 2}"))
    got = store.get("orders", 0, 0, 32, matches=Tags("t1"))
    assert (10, 20) == (got.count, got.next_offset)
    got = store.get("orders", 0, 0, 32, matches=Tags("none"))
    assert (GetStatus.NO_MATCHED_MESSAGE, 20) == (got.status, got.next_offset)
    got = store.get("orders", 0, 0, 32, matches=Bodies())
    assert [b"body-7", b"body-17"] == [record.body for record in decode_records(got.body())]
    store.close()


def test_a_batch_goes_into_one_segment_with_consecutive_offsets(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(message(b"x" * 7000))
    put = store.put_batch([message(b"%d" % number * 150, keys=f"k{number}") for number in range(30)])
    assert (PutStatus.PUT_OK, 1, 30) == (put.status, put.queue_offset, put.count)
    assert 16_384 == put.physical_offset  # it did not fit behind the first message
    assert 31 == store.max_offset("orders", 0)
    assert 1 == len(store.query("orders", "k29", 32, 0, 1 << 62))
    refused = store.put_batch([message(b"a"), message(b"b", queue_id=1)])
    assert PutStatus.MESSAGE_ILLEGAL is refused.status
    assert 31 == store.max_offset("orders", 0)
    store.close()


def test_a_clients_batch_is_stored_like_its_messages_one_by_one(tmp_path: Path) -> None:
    clock = VirtualClock(1_757_400_000_000)
    one, other = opened(tmp_path / "one", clock=clock), opened(tmp_path / "other", clock=clock)
    items = [(number, b"%d" % number, encode_properties({"KEYS": f"k{number}", "TAGS": "t"})) for number in range(20)]
    put = one.put_client_batch(message(b""), encode_batch(items))
    assert (PutStatus.PUT_OK, 20, 0) == (put.status, put.count, put.queue_offset)
    for flag, body, properties in items:
        record = message(body)
        record.flag, record.properties_raw = flag, properties
        other.put(record)
    for name in ("commitlog", "consumequeue", "index"):
        files = [path for path in sorted((tmp_path / "one" / name).rglob("*")) if path.is_file()]
        assert files
        for path in files:
            assert (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes() == path.read_bytes()
    refused = one.put_client_batch(message(b""), encode_batch(items)[:-1])
    assert PutStatus.MESSAGE_ILLEGAL is refused.status
    assert 20 == one.max_offset("orders", 0)
    one.close()
    other.close()


def test_prepared_and_rolled_back_records_take_no_queue_offset(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for flag, keys in ((0x4, "prepared"), (0xC, "rolled-back"), (0x8, "committed")):
        assert store.put(message(keys=keys, sys_flag=flag)).is_ok
    assert 1 == store.max_offset("orders", 0)
    for key, found in (("prepared", 1), ("rolled-back", 0), ("committed", 1)):
        assert found == len(store.query("orders", key, 9, 0, 1 << 62))
    store.close()


def test_a_delayed_message_carries_its_due_time_instead_of_its_tag(tmp_path: Path) -> None:
    store = opened(tmp_path, clock=VirtualClock(1_000_000))
    for level in ("3", "99"):
        store.put(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, tag="t", DELAY=level))
    store.put(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, tag="t"))
    codes = [entry.tags_code for entry in store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 9)]
    assert [1_010_000, 1_000_000 + 7_200_000, java_hash("t")] == codes
    store.close()


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (message(b"x" * 8193), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="t" * 128), PutStatus.MESSAGE_ILLEGAL),
        (message(topic=""), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="../up"), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (message(big="x" * 32_768), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
    ids=["body", "topic", "no topic", "path", "queue", "properties"],
)
def test_what_cannot_be_stored_is_refused_with_a_reason_and_nothing_is_written(
    tmp_path: Path, record: object, status: PutStatus
) -> None:
    store = opened(tmp_path)
    put = store.put(record)  # type: ignore[arg-type]
    assert status is put.status
    assert put.reason
    assert (0, {}) == (store.appended, store.queues())
    store.close()


def test_a_long_retry_topic_is_written_as_version_2(tmp_path: Path) -> None:
    store = opened(tmp_path)
    topic = "%RETRY%" + "g" * 200
    assert store.put(message(topic=topic)).is_ok
    record = store.record_at(0)
    assert record is not None
    assert (topic, -626843477) == (record.topic, record.magic)
    store.close()


def test_messages_are_found_by_time_with_both_boundaries(tmp_path: Path) -> None:
    clock = VirtualClock(1_000_000)
    store = opened(tmp_path, clock=clock)
    for passed_s in (0, 0.01, 0, 0, 0.01):
        clock.skip(passed_s)
        store.put(message())
    for time, lower, upper in (
        (1, 0, 0),
        (1_000_000, 0, 0),
        (1_000_005, 1, 0),
        (1_000_010, 1, 3),
        (1_000_015, 4, 3),
        (1_000_020, 4, 4),
        (2_000_000, 5, 4),
    ):
        assert lower == store.offset_by_time("orders", 0, time, Boundary.LOWER)
        assert upper == store.offset_by_time("orders", 0, time, "upper")
    assert (1_000_010, -1) == (store.store_time("orders", 0, 2), store.store_time("orders", 0, 5))
    assert 1_000_000 == store.earliest_time() == store.earliest_time("orders", 0)
    store.close()


def test_keys_are_found_over_many_index_files_newest_first_and_within_the_limit(tmp_path: Path) -> None:
    store = opened(tmp_path, clock=VirtualClock(1_000_000_000))
    for number in range(120):
        store.put(numbered(number))
    assert len(store.index.files) > 2
    for number in range(120):
        (found,) = store.query("orders", f"k{number}", 32, 0, 1 << 62)
        assert number == int(decode_records(found)[0].body.split(b":")[0])
    newest = store.query("orders", "common", 10, 0, 1 << 62)
    numbers = [int(decode_records(record)[0].body.split(b":")[0]) for record in newest]
    assert list(range(110, 120)) == numbers
    assert [] == store.query("orders", "k5", 32, 0, 5)
    assert 30 == len(store.query("orders", "t1", 64, 0, 1 << 62, is_tag=True))
    store.close()


def test_a_key_brings_the_page_of_its_slot_into_memory_and_not_its_neighbours(tmp_path: Path) -> None:
    """Of the full size: 20 MB of slots, which a kernel that reads ahead would fetch at the first key."""
    store = MessageStore(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20), VirtualClock(1_000_000_000))
    store.open()
    for number in range(20):
        store.put(numbered(number))
    (file,) = store.index.files
    slots = file.segment.view[: file.entries_at]
    pages = [is_resident(slots, start, 1) for start in range(0, len(slots) - 1, 4096)]
    assert 1 < sum(pages) <= 1 + 3 * 20, "the header, and the slots of 20 messages with three keys each"
    del slots
    store.close()


def test_listeners_hear_of_watched_queues_in_the_turn_of_the_append(tmp_path: Path) -> None:
    store = opened(tmp_path)
    watched: list[tuple[object, ...]] = []
    every: list[tuple[object, ...]] = []
    store.add_listener(lambda *facts: watched.append(facts[:4]))
    store.put(message(b"before"))
    store.queue("orders", 0).watched = True
    store.put(message(b"seen", tag="TagA"))
    store.add_listener(lambda *facts: every.append(facts[:3]), every=True)
    store.put(message(b"other", queue_id=1))
    store.put_batch([message(tag="a"), message(tag="b")])
    assert [("orders", 0, 2, 2598919), ("orders", 0, 3, java_hash("a")), ("orders", 0, 4, java_hash("b"))] == watched
    assert [("orders", 1, 1), ("orders", 0, 3), ("orders", 0, 4)] == every
    store.close()


def test_a_deleted_topic_is_gone_and_stays_gone_after_a_clean_stop(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"kept":{}}}')
    for number in range(10):
        store.put(message(topic="kept", queue_id=number % 2))
        store.put(message(topic="gone"))
    assert 1 == store.delete_topic("gone")
    assert not (tmp_path / "consumequeue" / "gone").exists()
    store.close()
    store = opened(tmp_path)
    assert {"kept": [0, 1]} == store.queues()
    store.close()


def test_settings_come_from_apaches_keys(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": "65536", "flushDiskType": "SYNC_FLUSH", "enabledAppendPropCRC": "true"}
    config = StoreConfig.from_broker_config({**settings, "listenPort": "10911"})
    assert 65_536 == config.mapped_file_size_commit_log
    assert config.is_sync_flush
    assert config.enabled_append_prop_crc
    for key, wrong in (("flushDiskType", "SOMETIMES"), ("fileReservedTime", "x"), ("messageDelayLevel", "1q")):
        with pytest.raises(StoreError, match=key):
            StoreConfig.from_broker_config({key: wrong})


class ZeroCountingDisk(Disk):
    """Counts the zeros written ahead, or refuses them."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.filled: list[tuple[int, int]] = []
        self.refuses = refuses

    def fill(self, path: Path, offset: int, length: int) -> None:
        if path.parent.name == "commitlog":
            if self.refuses:
                raise OSError(errno.EIO, "no")
            self.filled.append((offset, length))
        super().fill(path, offset, length)


@pytest.mark.parametrize("refuses", [False, True])
def test_the_log_writes_into_memory_that_was_brought_ahead(tmp_path: Path, refuses: bool) -> None:
    """In large pieces that neither overlap nor touch what is written; without them, or after a reopening, as well."""
    disk = ZeroCountingDisk(refuses=refuses)
    bodies = [bytes([number % 251]) * (300_000 if number % 50 == 7 else 3000) for number in range(120)]
    store = opened(tmp_path, StoreConfig(mapped_file_size_commit_log=4 << 20), disk=disk)
    for body in bodies[:60]:
        assert store.put(message(body)).is_ok
    store.close()
    store = opened(tmp_path, StoreConfig(mapped_file_size_commit_log=4 << 20), disk=disk)
    for body in bodies[60:]:
        assert store.put(message(body)).is_ok
    found = [record.body for at in range(120) for record in decode_records(store.get("orders", 0, at, 1).body())]
    assert bodies == found
    if native.is_native(native.load("arrowmq.store.append._tail")) and not refuses:
        ends = [offset + length for offset, length in disk.filled]
        assert all(offset % 4096 == 0 for offset, _ in disk.filled)
        assert len(disk.filled) < 20
        assert max(ends) <= 4 << 20
    store.close()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), StoreUnwritable("read only"), OutOfSpace("full")])
def test_room_that_the_disk_refuses_to_a_batch_is_not_there(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised: the general path tries again, and tells the sender what is wrong."""
    store = opened(tmp_path, StoreConfig(mapped_file_size_commit_log=65_536))
    assert store.put(message()).is_ok
    assert store.extend("orders", 0, 300, 0)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(store.disk, "fill", refuse)
    assert not store.extend("orders", 0, 3000, 0)
    store.close()

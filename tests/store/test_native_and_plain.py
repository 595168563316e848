"""Goal: the native tails and their pure-Python references write the same bytes and lack room at the same moments."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writing import HOST

from arrowmq.store.append import _append_plain, _tail_plain
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.records import Record, RecordError


def native_of(plain: ModuleType) -> Any:
    """Without a compiler the reference is compared with itself. The name is derived: a moved module stays compared."""
    try:
        return importlib.import_module(plain.__name__.replace("_plain", "_native"))
    except ModuleNotFoundError:
        return plain


TAIL = native_of(_tail_plain)
APPEND = native_of(_append_plain)

words = st.text(st.sampled_from("ab Zé北🚀"), max_size=6)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "city", "TAG", "__CRC32#"])


@st.composite
def properties(draw: st.DrawFn) -> bytes:
    """Mostly well-formed texts; now and then one without its last end, with empty parts, or of any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=60))
    items = draw(st.lists(st.tuples(names, words), max_size=5))
    text = "".join(f"{name}\x01{value}\x02" for name, value in items).encode()
    return text[: draw(st.sampled_from([len(text), max(0, len(text) - 1)]))]


@st.composite
def messages(draw: st.DrawFn, topic: str) -> Record:
    return Record(
        topic=topic,
        queue_id=draw(st.sampled_from([3, 3, 3, 3, 4])),
        body=draw(st.binary(max_size=90)),
        properties_raw=draw(properties()),
        flag=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        sys_flag=draw(st.sampled_from([0, 1, 4, 8, 12, 0x30, 0x80])),
        born_timestamp=draw(st.integers(0, 1 << 60)),
        born_host=draw(st.sampled_from([HOST, (bytes(range(16)), 65_535)])),
        store_host=HOST,
        reconsume_times=draw(st.integers(0, 100)),
    )


class Side:
    """Tails of one kind over buffers of their own."""

    def __init__(self, tail: Any, append: Any, topic: str, room: tuple[int, int, int], indexed: bool) -> None:
        self.append = append
        self.buffers = (bytearray(room[0]), bytearray(room[1]), bytearray(40 + 4 * 7 + 20 * room[2]))
        self.log = tail.LogTail()
        self.log.attach(memoryview(self.buffers[0]), 1 << 20, 0)
        self.queue = tail.QueueTail(topic, 3, 5)
        self.queue.attach(memoryview(self.buffers[1]), 60, room[1])
        if topic.startswith("SCHEDULE"):
            self.queue.delays_ms = (1000, 5000)
        self.index = tail.IndexTail()
        self.index.enabled = indexed
        self.index.attach(memoryview(self.buffers[2]), 7, room[2], room[2])

    def state(self) -> tuple[Any, ...]:
        queue, index = self.queue, self.index
        return (
            self.log.position, self.log.last_store_timestamp, queue.next_offset, queue.max_physical, queue.last_code,
            queue.dirty, index.count, index.used_slots, index.begin_timestamp, index.end_physical,
            *map(bytes, self.buffers),
        )  # fmt: skip

    def run(self, step: tuple[str, Any], now: int, with_crc: bool) -> Any:
        kind, content = step
        call = getattr(self.append, kind)
        try:
            if kind == "append_client_batch":
                return call(self.log, self.queue, self.index, content[0], content[1], now, with_crc, 80)
            if kind == "append_batch":
                return call(self.log, self.queue, self.index, content, now, with_crc, 80)
            return call(self.log, self.queue, self.index, content, now, with_crc)
        except RecordError:
            return "refused"


@settings(deadline=None, max_examples=150)
@given(data=st.data(), with_crc=st.booleans(), indexed=st.booleans())
def test_twins_append_the_same_bytes_and_lack_the_same_room(data: st.DataObject, with_crc: bool, indexed: bool) -> None:
    topic = data.draw(st.sampled_from(["orders", "北京", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 150]))
    room = (data.draw(st.integers(0, 6000)), data.draw(st.integers(0, 20)) * 20, data.draw(st.integers(2, 40)))
    one = Side(_tail_plain, _append_plain, topic, room, indexed)
    other = Side(TAIL, APPEND, topic, room, indexed)
    steps: list[tuple[str, Any]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["append", "append_batch", "append_client_batch"]))
        if kind == "append":
            steps.append((kind, data.draw(messages(topic))))
        elif kind == "append_batch":
            steps.append((kind, data.draw(st.lists(messages(topic), min_size=1, max_size=4))))
        else:
            items = data.draw(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=90), properties()), max_size=4))
            body = bytearray(encode_batch(items))
            if body and data.draw(st.integers(0, 4)) == 0:
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
            template = data.draw(messages(topic))
            template.sys_flag, template.queue_id = 0, 3
            steps.append((kind, (template, bytes(body))))
    for number, step in enumerate(steps):
        now = 1_757_400_000_000 + number * 1500
        assert one.run(step, now, with_crc) == other.run(step, now, with_crc)
        assert one.state() == other.state()


@given(text=st.binary(max_size=40) | words.map(str.encode))
def test_twins_agree_on_hashes_and_on_what_dispatch_looks_at(text: bytes) -> None:
    assert _tail_plain.text_hash(text) == TAIL.text_hash(text)
    assert _tail_plain.key_hash(text) == TAIL.key_hash(text)
    assert _tail_plain.dispatch_facts(text) == TAIL.dispatch_facts(text)


def test_the_one_hash_without_an_amount_counts_as_nothing() -> None:
    assert 0 == TAIL.key_hash(b"polygenelubricants") == _tail_plain.key_hash(b"polygenelubricants")


def test_tails_refuse_places_outside_of_their_files() -> None:
    for tail in (_tail_plain, TAIL):
        queue = tail.QueueTail("orders", 0)
        with pytest.raises(ValueError, match="no room"):
            tail.put_entry(tail.LogTail(), queue, 0, 100, 0)
        with pytest.raises(ValueError, match="no room"):
            tail.put_key(tail.IndexTail(), 1, 0, 0)

"""Walking a commit log: golden bytes, damage anywhere, splits anywhere."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.spark.schema import message_schema
from arrowmq.spark.store.log_walk import Damage, find_record, walk
from arrowmq.spark.store.scan import MOST_SAID, ScanOptions, StoreReader
from arrowmq.wire.records import Record, encode_record, record_bounds

PATH = "commitlog/0"


def begins(mapped: Any, *arguments: Any, **options: Any) -> list[int]:
    """Where the records of a walk begin."""
    found = []
    for start, end, count in walk(mapped, PATH, *arguments, **options):
        bounds = record_bounds(memoryview(mapped)[start:end])
        assert count == len(bounds)
        found += [start + position for position, _ in bounds]
    return found


def segment(count: int, seed: int = 1, base: int = 0) -> tuple[bytes, list[int]]:
    """Records one after another, and where each begins; then an unused rest."""
    chance = random.Random(seed)
    data = bytearray()
    positions = []
    for number in range(count):
        positions.append(len(data))
        record = Record(
            topic="orders",
            body=chance.randbytes(chance.randrange(300)),
            properties_raw=b"TAGS\x01a\x02",
            queue_offset=number,
            physical_offset=base + len(data),
        )
        data += encode_record(record)
    return bytes(data) + bytes(4096), positions


@pytest.mark.parametrize("variant", ["store-clean", "plain", "torn", "torn-properties", "bad-crc"])
def test_a_walk_finds_what_the_apache_broker_finds(golden: Golden, variant: str) -> None:
    from arrowmq.spark.store.files import StoreDirectory, map_segment

    store = StoreDirectory(golden.store(variant)[0])
    expected = [message["commitLogOffset"] for message in golden.store(variant)[1]["messages"]]
    damages: list[Damage] = []
    found = []
    for item in store.segments:
        tail = store.dispatched_end if item is store.segments[-1] else None
        found += [item.start + at for at in begins(map_segment(item), item.start, 0, item.size, damages, tail=tail)]
    assert expected == found
    assert (variant in ("torn", "bad-crc")) == bool(damages)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9000), max_size=6))
def test_splits_at_any_byte_see_each_record_once(seed: int, cuts: list[int]) -> None:
    data, positions = segment(30, seed)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = []
    for start, stop in itertools.pairwise(edges):
        damages: list[Damage] = []
        found += begins(data, 0, start, stop, damages, is_start_known=start == 0, tail=0)
        assert [] == damages
    assert positions == found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5000), st.binary(min_size=1, max_size=40))
def test_damage_anywhere_costs_only_what_it_touches(seed: int, at: int, noise: bytes) -> None:
    data, positions = segment(30, seed)
    end = positions[-1]
    at %= end
    spoilt = bytearray(data)
    spoilt[at : at + len(noise)] = noise
    ends = [*positions[1:], len(data) - 4096]
    touched = {
        begin
        for begin, stop in zip(positions, ends, strict=True)
        if data[begin:stop] != bytes(spoilt[begin:stop])
    }  # fmt: skip
    damages: list[Damage] = []
    found = set(begins(bytes(spoilt), 0, 0, len(spoilt), damages, tail=len(data) - 4096))
    assert set(positions) - touched <= found
    # Not every byte is under a checksum: a changed flag or property is still a whole record.
    assert all(damage.commit_log_offset in touched for damage in damages)


def test_a_record_inside_a_body_is_not_taken_for_a_record() -> None:
    inner = encode_record(Record(topic="x", body=b"inside", physical_offset=12345))
    outer = encode_record(Record(topic="y", body=inner, physical_offset=0))
    assert len(outer) == find_record(outer, 1, 0, len(outer))


def test_a_record_that_is_being_written_is_the_end_and_no_damage() -> None:
    data, positions = segment(3)
    half = data[: positions[2] + 40] + bytes(8192)
    damages: list[Damage] = []
    found = begins(half, 0, 0, len(half), damages, tail=positions[2])
    assert positions[:2] == found
    assert [] == damages


def test_names_of_damage_say_where_and_why(tmp_path: Path, golden: Golden) -> None:
    from arrowmq.spark.store.scan import StoreSource

    source = StoreSource({"path": str(golden.store("bad-crc")[0]), "table": "damage"})
    rows: list[dict[str, Any]] = []
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        for batch in reader.read(partition):
            rows += batch.to_pylist()
    assert 1 == len(rows)
    assert 974595 == rows[0]["commitLogOffset"]
    assert "checksum" in rows[0]["reason"]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 9000), st.binary(max_size=30), st.integers(0, 9000), st.integers(0, 3))
def test_both_twins_trust_the_same_records(seed: int, at: int, noise: bytes, stop: int, base: int) -> None:
    from arrowmq import native
    from arrowmq.spark.store import _soundness_plain as plain

    data, _ = segment(20, seed)
    spoilt = bytearray(data)
    spoilt[at : at + len(noise)] = noise
    compiled = native.load("arrowmq.spark.store._soundness")
    for start in (0, at % len(data)):
        assert plain.sound_run(bytes(spoilt), start, stop, base) == compiled.sound_run(bytes(spoilt), start, stop, base)


def test_a_task_that_meets_much_damage_logs_a_few_places_and_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, positions = segment(61)
    turned = bytearray(data)
    for position in positions[1::2]:
        turned[position + 1] ^= 1  # its length
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(turned)
    reader = StoreReader(ScanOptions.parse({"path": str(tmp_path)}), message_schema(["topic", "queueOffset"]))
    rows = sum(batch.num_rows for item in reader.partitions() for batch in reader.read(item))
    said = [record.getMessage() for record in caplog.records]
    assert 31 == rows
    assert MOST_SAID + 1 == len(said)
    assert said[-1].endswith("20 more; table=damage lists them")

"""Filters read the properties out of stored records of every form, and of damaged ones nothing."""

from __future__ import annotations

import pytest

from arrowmq.filter import SqlFilter
from arrowmq.filter.stored import stored_properties
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import MAGIC_V1, MAGIC_V2, Record, encode_record

V4, V6 = (b"\x7f\x00\x00\x01", 10911), (b"\x00" * 15 + b"\x01", 10911)


def stored(topic: str = "orders", born: tuple[bytes, int] = V4, store: tuple[bytes, int] = V4) -> bytes:
    raw = encode_properties({"price": "12", "city": "Zürich"})
    return encode_record(Record(topic, b"body", raw, born_host=born, store_host=store))


@pytest.mark.parametrize("topic", ["orders", "%RETRY%" + "g" * 200])
@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_properties_are_found_in_every_form_of_record(
    topic: str, born: tuple[bytes, int], store: tuple[bytes, int]
) -> None:
    record = stored(topic, born, store)
    assert int.from_bytes(record[4:8], "big", signed=True) in (MAGIC_V1, MAGIC_V2)
    assert stored_properties(memoryview(record)) == {"price": "12", "city": "Zürich"}


def test_a_record_cut_anywhere_before_its_properties_has_none() -> None:
    record = stored()
    for length in range(len(record) - len(encode_properties({"price": "12", "city": "Zürich"}))):
        assert stored_properties(record[:length]) == {}


def test_an_expression_is_asked_with_the_record_and_not_with_the_entry() -> None:
    costly = SqlFilter("price > 10 AND city = 'Zürich'")
    assert costly.needs_record
    assert costly.matches_entry(0)
    assert costly.matches_record(memoryview(stored()))
    assert not SqlFilter("price > 20").matches_record(memoryview(stored()))

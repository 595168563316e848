"""What native code reads requests with: tables of exact names, and templates of answers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.wire import properties
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, encode_frame
from arrowmq.wire.in_place.fields import ALL, END, PULL, SEND, SENT
from arrowmq.wire.in_place.templates import answer_template

try:
    NameTable: Any = importlib.import_module("arrowmq.wire.in_place._names_native").NameTable
except ModuleNotFoundError:  # without a compiler a dict does the same: its properties still hold

    class NameTable:  # type: ignore[no-redef]
        def __init__(self, numbers: dict[str, int]) -> None:
            if not all(name and number > 0 for name, number in numbers.items()):
                raise ValueError("a name has letters, and a number above 0")
            self.numbers = {name.encode(): number for name, number in numbers.items()}

        def __getitem__(self, name: bytes) -> int:
            return self.numbers.get(name, 0)


RESERVED = sorted(properties.RESERVED)
names = st.one_of(st.sampled_from(RESERVED), st.text(min_size=1, max_size=12))
# close to a reserved name: another letter, a letter more or less
near = st.sampled_from(RESERVED).flatmap(
    lambda name: st.integers(0, len(name) - 1).map(lambda at: name[:at] + "X" + name[at + 1 :])
)


@given(st.dictionaries(names, st.integers(1, 1000), max_size=200), st.lists(st.one_of(names, near), max_size=50))
def test_a_table_of_names_says_what_a_dict_says(numbers: dict[str, int], asked: list[str]) -> None:
    table = NameTable(numbers)
    for name in (*numbers, *asked, "", "a", "\xff"):
        assert numbers.get(name, 0) == table[name.encode()]


@pytest.mark.parametrize("numbers", [{"": 1}, {"name": 0}, {"name": -1}])
def test_an_empty_name_and_a_number_that_means_none_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a name has letters"):
        NameTable(numbers)


def test_the_fields_of_a_send_have_the_letters_of_the_v2_codes_and_are_left_out_by_either_name() -> None:
    assert 2 == SEND.numbers()["b"]
    assert "b" not in SEND.numbers({"topic"})
    assert "b" not in SEND.numbers({"b"})
    assert "topic" not in PULL.numbers({"topic"})
    assert set(END.numbers()) == set(END.wire_names)
    assert all(len(set(each.wire_names)) == len(each.names) for each in ALL)


@pytest.mark.parametrize("remark", [None, "FOUND"])
def test_a_template_with_its_values_filled_in_is_the_answer_of_the_encoder(remark: str | None) -> None:
    """In both header forms; the fields that are always the same come first."""
    values = {"msgId": "7F000001", "queueId": "3", "queueOffset": "12345"}
    fixed = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    parts, places, start, binary_remark, entries, binary_names, binary_places = answer_template(
        RequestCode.SEND_MESSAGE_V2, SENT, tuple(values), fixed, remark
    )
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque=77)
    filled = b"".join(
        part + (b"77" if place < 0 else values[SENT.wire_names[place]].encode())
        for part, place in zip(parts, places, strict=False)
    )
    assert encode_frame(request.answer(0, {**fixed, **values}, remark=remark))[8:] == filled + parts[-1]
    request.serialize_type = 1
    ext = entries + b"".join(
        name + len(values[SENT.wire_names[place]]).to_bytes(4, "big") + values[SENT.wire_names[place]].encode()
        for name, place in zip(binary_names, binary_places, strict=True)
    )
    expected = start + (77).to_bytes(4, "big") + (1).to_bytes(4, "big") + binary_remark + len(ext).to_bytes(4, "big")
    assert encode_frame(request.answer(0, {**fixed, **values}, remark=remark))[8:] == expected + ext

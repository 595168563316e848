"""SQL92 expressions match exactly what Apache's filter matches, and refuse what it refuses with a position."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arrowmq.filter
from arrowmq.filter import FilterError, SqlFilter
from arrowmq.filter.java_numbers import Unconvertible, compare_doubles, parse_double, parse_integer, parse_long

GOLDEN = Path(__file__).parents[1] / "golden" / "filter" / "sql92.json.gz"
LETTERS = {True: "T", False: "F", None: "N"}


def letter(expression: SqlFilter, properties: dict[str, str]) -> str:
    try:
        return LETTERS[expression.evaluate(properties)]
    except Unconvertible:
        return "X"


def answer(text: str, property_sets: list[dict[str, str]]) -> str:
    try:
        expression = SqlFilter(text)
    except FilterError:
        return "refused"
    return "".join(letter(expression, properties) for properties in property_sets)


def test_every_recorded_expression_gets_the_answer_of_apaches_filter() -> None:
    golden = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    assert len(golden["answers"]) == 7500
    different = {
        text: (expected, actual)
        for text, expected in golden["answers"].items()
        if (actual := answer(text, golden["properties"])) != expected
    }
    assert different == {}


@pytest.mark.parametrize(
    ("expression", "properties", "matches"),
    [
        ("n > 5", {"n": "7"}, True),
        ("n > 5", {"n": "7.5"}, False),
        ("n > 5.0", {"n": "7.5"}, True),
        ("NOT (n = 1)", {}, False),
        ("a LIKE 'x'", {"a": "x"}, False),
        ("a IS NULL OR b IN ('x', 'y')", {"a": "1", "b": "y"}, True),
        ("a BETWEEN 1 AND 3 AND b NOT CONTAINS 'z'", {"a": "2", "b": "xy"}, True),
        ("a <> 'x'", {}, False),
        ("'x' <> a", {}, True),
    ],
)
def test_only_true_matches(expression: str, properties: dict[str, str], matches: bool) -> None:
    assert matches is SqlFilter(expression).matches_properties(properties)


@pytest.mark.parametrize(
    ("expression", "position", "part_of_reason"),
    [
        ("a > 'x'", 4, "only numbers"),
        ("a = 5 AND", 9, "not complete"),
        ("a = 5 #", 6, "no part of the language"),
        ("(a = 5 foo)", 7, "cannot stand here"),
        ("a = NULL", 4, "IS NULL"),
        ("a BETWEEN 7 AND 1", 2, "7 is above 1"),
        ("a = 9223372036854775808", 4, "above 9223372036854775807"),
        ("a > 0.0", 4, "write zero as 0"),
        ("a OR 'text'", 5, "condition"),
        ("", 0, "not complete"),
    ],
)
def test_a_refused_expression_is_told_where_and_why(expression: str, position: int, part_of_reason: str) -> None:
    with pytest.raises(FilterError) as refused:
        SqlFilter(expression)
    assert position == refused.value.position
    assert part_of_reason in refused.value.reason
    assert f"character {position + 1} " in str(refused.value)


def test_a_chain_of_thousands_of_conditions_is_evaluated_without_exhausting_the_stack() -> None:
    chain = SqlFilter(" OR ".join(f"a = {number}" for number in range(5000)))
    assert chain.matches_properties({"a": "4999"})
    assert not chain.matches_properties({"a": "5000"})


def test_nesting_that_would_exhaust_the_stack_is_refused() -> None:
    with pytest.raises(FilterError, match="nested deeper"):
        SqlFilter("NOT " * 100_000 + "a")
    assert SqlFilter("(" * 10_000 + "a = 1" + ")" * 10_000).matches_properties({"a": "1"})


@given(st.text(max_size=60))
def test_any_text_is_either_compiled_or_refused(text: str) -> None:
    assert answer(text, [{}]) in ("refused", "T", "F", "N", "X")


WORDS = ["a", "b", "5", "7.5", "'x'", "(", ")", "=", "<>", ">", "NOT", "IN", "IS", "NULL", "BETWEEN", "AND", "OR"]


@given(st.lists(st.sampled_from([*WORDS, "CONTAINS", ",", "-", "TRUE"])))
def test_any_order_of_words_is_either_compiled_or_refused(words: list[str]) -> None:
    assert answer(" ".join(words), [{"a": "5"}]) in ("refused", "T", "F", "N", "X")


def test_an_expression_is_compiled_once() -> None:
    assert arrowmq.filter.compile("SQL92", "once = 1") is arrowmq.filter.compile("SQL92", "once = 1")
    for _ in range(2):
        with pytest.raises(FilterError):
            arrowmq.filter.compile("SQL92", "once =")


def test_an_unknown_expression_type_is_refused_by_name() -> None:
    with pytest.raises(FilterError, match="SQL99"):
        arrowmq.filter.compile("SQL99", "a = 1")


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1_0", "1.0", "0x1", "1L", "2147483648", "𝟓", "9" * 5000])
def test_what_is_no_java_integer_is_not_converted(text: str) -> None:
    with pytest.raises(Unconvertible):
        parse_integer(text)


def test_java_integers_at_their_edges() -> None:
    assert [parse_integer(text) for text in ("-2147483648", "+007", "٥", "0" * 5000 + "7")] == [-(2**31), 7, 5, 7]
    assert parse_long("-9223372036854775808") == -(2**63)
    with pytest.raises(Unconvertible):
        parse_long("9223372036854775808")


def test_java_doubles_know_suffixes_and_hexadecimal() -> None:
    assert [parse_double(text) for text in ("5d", "0x1p3", " .5F\n", "1.5e0")] == [5.0, 8.0, 0.5, 1.5]
    for text in ("1_0", "e5", "nan", "inf", "0x1", "5 d", ""):
        with pytest.raises(Unconvertible):
            parse_double(text)


def test_doubles_are_in_javas_order() -> None:
    ordered = [float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")]
    for index, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            sign = compare_doubles(left, right)
            assert (index > other) - (index < other) == (sign > 0) - (sign < 0)

"""Tag subscriptions decide by the hash in the queue entry alone."""

from __future__ import annotations

import pytest

import arrowmq.filter
from arrowmq.filter import TagFilter, split_tags


@pytest.mark.parametrize("expression", ["*", "", " * ", None])
@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_a_star_or_nothing_takes_every_message(expression_type: str | None, expression: str | None) -> None:
    everything = arrowmq.filter.compile(expression_type, expression)
    assert everything.matches_entry(0)
    assert everything.matches_entry(-1)
    assert not everything.needs_record


def test_tags_are_split_trimmed_and_hashed_as_java_does() -> None:
    assert split_tags(" created||  paid || ") == ["created", "paid"]
    tags = TagFilter("TagA || TagB")
    assert frozenset({2598919, 2598920}) == tags.codes
    assert [tags.matches_entry(code) for code in (2598919, 2598920, 2598921)] == [True, True, False]


def test_a_negative_hash_is_found_in_the_low_half_of_the_entry() -> None:
    tags = TagFilter("a long enough tag")
    (code,) = tags.codes
    assert code < 0
    assert tags.matches_entry(code)
    assert tags.matches_entry(code & 0xFFFFFFFF)
    assert not tags.matches_entry(code + 1)


def test_tags_with_one_hash_are_not_told_apart_here() -> None:
    assert TagFilter("Aa").matches_entry(next(iter(TagFilter("BB").codes)))


def test_hashes_given_by_a_client_are_taken_as_they_are() -> None:
    assert TagFilter.of_codes(frozenset({7})).matches_entry(7)
    assert not TagFilter.of_codes(frozenset({7})).matches_entry(8)
    assert TagFilter.of_codes(frozenset()).matches_entry(8)

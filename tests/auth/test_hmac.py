"""HMAC-SHA1 in C says what the standard library says."""

from __future__ import annotations

import hashlib
import hmac
import random
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

NATIVE = "arrowmq.auth._hmac_native"
native: Any = import_module(NATIVE) if find_spec(NATIVE) else None
HEAD_BYTES = 1024  # of what comes before a body, in a lane


def every_form(secret: bytes, parts: list[bytes]) -> set[bytes]:
    """By RFC 2104; natively with the processor's instructions for it, where it has them, and without."""
    key = (hashlib.sha1(secret).digest() if len(secret) > 64 else secret).ljust(64, b"\0")
    inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key) + b"".join(parts)).digest()
    found = {hashlib.sha1(bytes(byte ^ 0x5C for byte in key) + inner).digest()}
    if native is not None:
        key = native.HmacKey(secret)
        found |= {key.digest(*parts), key.digest_written_out(*parts)}
    return found


def expected(secret: bytes, parts: list[bytes]) -> set[bytes]:
    return {hmac.digest(secret, b"".join(parts), hashlib.sha1)}


# RFC 2202
KNOWN = [
    (b"\x0b" * 20, b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
    (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
    (
        b"\xaa" * 80,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "aa4ae5e15272d00e95705637ce8a3b55ed402112",
    ),
]


@pytest.mark.parametrize(("secret", "content", "digest"), KNOWN)
def test_the_published_cases(secret: bytes, content: bytes, digest: str) -> None:
    assert {bytes.fromhex(digest)} == every_form(secret, [content])


def test_every_length_around_the_ends_of_blocks() -> None:
    content = bytes(range(256)) * 2
    for size in range(len(content)):
        assert expected(b"k", [content[:size]]) == every_form(b"k", [content[:size]]), size
        assert expected(content[:size], [b"x"]) == every_form(content[:size], [b"x"]), size


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), max_size=20))
def test_parts_are_hashed_one_behind_the_other(secret: bytes, parts: list[bytes]) -> None:
    assert expected(secret, parts) == every_form(secret, parts)


def test_a_long_content() -> None:
    content = b"0123456789" * 1_000_003
    assert expected(b"secret", [content]) == every_form(b"secret", [content[:7], content[7:]])


# Several at once

EDGES = st.sampled_from(
    [edge + more for edge in (0, 64, 128, 960, 1024, 4992) for more in range(-9, 9) if edge + more >= 0]
)


@st.composite
def cut_contents(draw: st.DrawFn) -> tuple[bytes, tuple[bytes, ...]]:
    """A secret, and a content in parts that end anywhere."""
    secret = draw(st.binary(max_size=100))
    size = draw(EDGES | st.integers(0, 5000))
    content = random.Random(draw(st.integers(0, 1000))).randbytes(size)
    ends = sorted(draw(st.lists(st.integers(0, min(size, 1200)), max_size=6)))
    return secret, tuple(content[start:end] for start, end in zip([0, *ends], [*ends, size], strict=True))


FORMS = (
    [None] if native is None else [True, False]
)  # with lanes and without; None: the standard library is all there is


def several_of(given: list[tuple[bytes, tuple[bytes, ...]]], wants_lanes: bool | None) -> list[bytes | None]:
    if wants_lanes is None:
        return [
            every_form(secret, list(parts)).pop() if len(b"".join(parts[:-1])) <= HEAD_BYTES else None
            for secret, parts in given
        ]
    found: list[bytes | None] = native.digests(
        [native.HmacKey(secret) for secret, _ in given], [parts for _, parts in given], wants_lanes
    )
    return found


@pytest.mark.parametrize("wants_lanes", FORMS)
@given(given=st.lists(cut_contents(), max_size=40))
def test_digests_made_at_once_are_those_made_one_by_one(
    given: list[tuple[bytes, tuple[bytes, ...]]], wants_lanes: bool | None
) -> None:
    """Of other lengths and keys beside each other, with the registers for it, where they are there, and without."""
    expected = [
        hmac.digest(secret, b"".join(parts), hashlib.sha1) if len(b"".join(parts[:-1])) <= HEAD_BYTES else None
        for secret, parts in given
    ]
    assert expected == several_of(given, wants_lanes)


@pytest.mark.parametrize("wants_lanes", FORMS)
def test_every_length_stands_in_every_lane(wants_lanes: bool | None) -> None:
    """Also where heads, bodies and paddings end at other blocks in neighbouring lanes."""
    content = random.Random(7).randbytes(400)
    for head in range(0, 130, 3):
        given = [(bytes([size % 251]), (content[:head], content[head : head + size])) for size in range(270)]
        expected = [hmac.digest(secret, b"".join(parts), hashlib.sha1) for secret, parts in given]
        assert expected == several_of(given, wants_lanes), head

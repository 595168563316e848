"""Inputs made from others by chance: where no coverage-guided fuzzer is, and for the short run with every test."""

from __future__ import annotations

import random

INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"-1",
    b"\x01",
    b"\x02",
    b'"',
    b"{",
    b"]",
)
LARGEST = 1 << 16


def mutated(chance: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        kind = chance.randrange(7)
        at = chance.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 2:
            data[at:at] = chance.choice(INTERESTING)
        elif kind == 3:
            piece = chance.choice(INTERESTING)
            data[at : at + len(piece)] = piece
        elif kind == 4:
            del data[at : at + chance.choice((1, 2, 4, 8, 64))]
        elif kind == 5:
            other = chance.choice(corpus)
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + chance.randrange(64)]
        else:
            del data[at:]
    return bytes(data[:LARGEST])

"""Numbers as the Java broker reads them out of property texts, and as it compares them.

A consumer must see the same messages from either broker, so the edges count: Java's integers take no blanks, no
underscores and no dot, its doubles take `1d`, `0x1p3` and `NaN`, and NaN is above everything in its order.
"""

from __future__ import annotations

import math
import re

INTEGER_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEX_DOUBLE = re.compile(r"([+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED_DOUBLE = re.compile(r"[+-]?(NaN|Infinity)")
# What Java's trim removes: every character up to the blank.
_TRIMMED = "".join(map(chr, range(33)))


class Unconvertible(Exception):
    """A text is not of the type it is compared with: the whole expression then matches nothing."""


def _integer(text: str, limit: int) -> int:
    # Java looks at UTF-16 units, so digits beyond the first plane are none to it.
    if _INTEGER.fullmatch(text) is None or (not text.isascii() and any(ord(letter) > 0xFFFF for letter in text)):
        raise Unconvertible
    # Python refuses to convert texts of thousands of digits, and none of them fits.
    if len(text.lstrip("+-0")) > 20:
        raise Unconvertible
    value = int(text[:1] + text[1:].lstrip("0") if len(text) > 20 else text)
    if not -limit - 1 <= value <= limit:
        raise Unconvertible
    return value


def parse_integer(text: str) -> int:
    return _integer(text, INTEGER_MAX)


def parse_long(text: str) -> int:
    return _integer(text, LONG_MAX)


def parse_double(text: str) -> float:
    text = text.strip(_TRIMMED)
    if _DECIMAL_DOUBLE.fullmatch(text) is not None:
        return float(text.rstrip("fFdD"))
    if _NAMED_DOUBLE.fullmatch(text) is not None:
        return float(text)
    hexadecimal = _HEX_DOUBLE.fullmatch(text)
    if hexadecimal is None:
        raise Unconvertible
    try:
        return float.fromhex(hexadecimal.group(1))
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def parse_boolean(text: str) -> bool:
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Java's total order: -0.0 below 0.0, NaN equal to itself and above infinity."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    if math.isnan(value):
        return 2
    return 0 if math.copysign(1.0, value) < 0 else 1

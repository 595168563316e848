"""The Bloom filter positions that RocketMQ writes down with a registered SQL92 filter.

Apache's broker can note with each queue entry which registered filters match it, a few bits for each group. The bits of
a group follow from its name: MurmurHash3 (x64, 128 bits, seed 0) of `group#topic`, of which the first 64 bits are used.
"""

from __future__ import annotations

import math
import struct

# 32 consumers, of whom a fifth may be taken for another: Apache's defaults
EXPECTED_CONSUMERS = 32
ERROR_RATE_PERCENT = 20
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def bloom_size(expected: int = EXPECTED_CONSUMERS, error_percent: int = ERROR_RATE_PERCENT) -> tuple[int, int]:
    """How many bits there are, and how many of them one group has."""
    rate = error_percent / 100
    hashes = math.ceil(math.log(rate, 0.5))
    bits = math.ceil(expected * math.log2(1 / rate) * math.log2(math.e))
    return -(-bits // 8) * 8, hashes


def bloom_positions(group: str, topic: str) -> list[int]:
    bits, hashes = bloom_size()
    first = murmur3(f"{group}#{topic}".encode())
    low, high = _signed(first & 0xFFFFFFFF), _signed(first >> 32)
    positions = []
    for number in range(1, hashes + 1):
        combined = _signed((low + number * high) & 0xFFFFFFFF)
        positions.append((~combined if combined < 0 else combined) % bits)
    return positions


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK


def _mix(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3_x64_128 with seed 0."""
    one = two = 0
    whole = len(data) - len(data) % 16
    for left, right in struct.iter_unpack("<QQ", data[:whole]):
        one ^= _rotate(left * _C1 & _MASK, 31) * _C2 & _MASK
        one = (_rotate(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _rotate(right * _C2 & _MASK, 33) * _C1 & _MASK
        two = (_rotate(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    left, right = struct.unpack("<QQ", data[whole:].ljust(16, b"\x00"))
    two ^= _rotate(right * _C2 & _MASK, 33) * _C1 & _MASK
    one ^= _rotate(left * _C1 & _MASK, 31) * _C2 & _MASK
    one ^= len(data)
    two ^= len(data)
    one = (one + two) & _MASK
    two = (two + one) & _MASK
    one, two = _mix(one), _mix(two)
    return (one + two) & _MASK

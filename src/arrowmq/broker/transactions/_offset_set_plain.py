"""A set of offsets from a moving base upwards, one bit each: the pure-Python reference of `_offset_set_native.pyx`."""

from __future__ import annotations

_WINDOW_BYTES = 4096


class OffsetSet:
    def __init__(self, base: int = 0) -> None:
        self.floor = base  # what lies below is done with, and no longer in the set
        self._base = base & ~7  # of the first byte
        self._bits = bytearray()

    def add(self, offset: int) -> None:
        """Takes an offset in; one that was forgotten stays forgotten."""
        place = offset - self._base
        if place < 0:
            return
        missing = (place >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, offset: int) -> bool:
        place = offset - self._base
        return 0 <= place < len(self._bits) << 3 and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def is_missing(self, offset: int) -> bool:
        """Whether an offset is neither in the set nor done with."""
        return offset >= self.floor and offset not in self

    def next_missing(self, offset: int) -> int:
        """The first offset from here on that is not in the set."""
        bits = self._bits
        place = max(0, offset - self._base)
        while place < len(bits) << 3:
            if place & 7 == 0:
                window = bytes(bits[place >> 3 : (place >> 3) + _WINDOW_BYTES])
                full = len(window) - len(window.lstrip(b"\xff"))
                if full:
                    place += full << 3
                    continue
            if not bits[place >> 3] >> (place & 7) & 1:
                break
            place += 1
        return max(offset, self._base + place)

    def forget_below(self, offset: int) -> None:
        """Lets go of the memory for offsets that nobody will ask for again."""
        self.floor = max(self.floor, offset)
        whole = min((offset - self._base) >> 3, len(self._bits))
        if whole > 0:
            del self._bits[:whole]
            self._base += whole << 3
        if not self._bits:
            self._base = max(self._base, offset & ~7)

    @property
    def memory_bytes(self) -> int:
        return len(self._bits)

"""Buffers for frames that arrive in several parts, kept for the next ones.

A fresh buffer costs more than what is read into it: the kernel has to find each of its pages, and takes them back when
it is dropped. So a few are kept while large frames come, and all are dropped at the endpoint's next sweep.
"""

from __future__ import annotations

SMALL_FRAME_BYTES = 16 * 1024  # the unfinished end of a larger frame gets a buffer of its own, read into directly
START_BYTES = 64 * 1024  # a buffer grows as bytes arrive: an announced length alone costs nothing
KEPT_BYTES = 4 * 1024 * 1024


def is_free(buffer: bytearray) -> bool:
    """Nobody looks into it any more: while there are views of it, its length cannot be changed."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class LargeBuffers:
    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self.spare_bytes = 0

    def take(self, wanted: int, received: int) -> bytearray:
        """A buffer for a frame of `wanted` bytes, of which so many are there: a spare one, which may be longer than the
        frame, or a new one, which may be shorter."""
        for place, buffer in enumerate(self._spare):
            if len(buffer) >= wanted and is_free(buffer):
                self.spare_bytes -= len(buffer)
                return self._spare.pop(place)
        rounded = -(-wanted // START_BYTES) * START_BYTES
        return bytearray(min(rounded, max(START_BYTES, 2 * received)))

    def give_back(self, buffer: bytearray) -> None:
        """The frame in it was processed. Somebody may still look into it, the transport or who works with the body."""
        if self.spare_bytes + len(buffer) <= KEPT_BYTES:
            self._spare.append(buffer)
            self.spare_bytes += len(buffer)

    def forget(self) -> None:
        self._spare.clear()
        self.spare_bytes = 0

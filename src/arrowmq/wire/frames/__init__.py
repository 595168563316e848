"""Frames: bytes of a stream <-> commands, in both header serializations.

The work is done by `_frames_plain` or the native module, which also hold the layout; here is the face of it, and the
splitter, which keeps what has arrived of a frame until the rest comes.

In: bytes as they arrive, commands to send. Out: commands, and bytes as Apache writes them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    Command,
    next_opaque,
)
from arrowmq.wire.errors import FrameError

if TYPE_CHECKING:
    from arrowmq.wire.frames import _frames_plain as _frames
else:
    _frames = native.load("arrowmq.wire.frames._frames")

__all__ = [
    "MAX_FRAME_BYTES",
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "SERIALIZE_JSON",
    "SERIALIZE_ROCKETMQ",
    "Command",
    "FrameError",
    "FrameSplitter",
    "decode_frame",
    "encode_frame",
    "encode_head",
    "next_opaque",
    "split",
]

MAX_FRAME_BYTES = 16777216  # with the length word; the Java side has the same limit

_LENGTH = struct.Struct(">I")

decode_frame = _frames.decode_frame
encode_frame = _frames.encode_frame
encode_head = _frames.encode_head
split = _frames.split


class FrameSplitter:
    """Takes a stream in any chunks and gives out whole commands.

    After a broken frame the stream is lost: where the next frame begins cannot be known any more. `feed` raises it at
    once if no whole frame came before it; else those are given out, `error` holds it, and the next `feed` raises it.
    """

    __slots__ = ("_held", "_max_bytes", "_needed", "error")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._needed = 4
        self.error: FrameError | None = None

    @property
    def pending_bytes(self) -> int:
        """How much has arrived of a frame that is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """The commands that `data` completes."""
        if self.error is not None:
            raise self.error
        if not self._held:
            commands, taken = split(data, self._max_bytes)
            if taken < len(data):
                self._held += memoryview(data)[taken:]
                self._expect()
            return commands
        self._held += data
        if len(self._held) < self._needed:
            # A large frame arrives in many chunks: looking at it again before it is whole would cost its square.
            return []
        commands, taken = split(bytes(self._held), self._max_bytes)
        del self._held[:taken]
        self._expect()
        return commands

    def _expect(self) -> None:
        """Notes how many bytes the frame at hand needs, and whether it is broken already."""
        self._needed = 4
        if len(self._held) < 4:
            return
        length = _LENGTH.unpack_from(self._held)[0]
        self._needed = 4 + length
        if length < 4 or length > self._max_bytes - 4 or len(self._held) >= self._needed:
            try:
                split(bytes(self._held), self._max_bytes)
            except FrameError as broken:
                self.error = broken

"""What can be wrong with bytes from outside. Every error says where (a byte position or a field) and why."""

from __future__ import annotations


class WireError(ValueError):
    """Bytes or values that do not obey the protocol; `position` is the byte at which that showed, or -1."""

    def __init__(self, reason: str, position: int = -1) -> None:
        super().__init__(reason if position < 0 else f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class FrameError(WireError):
    """A frame that cannot be read or written. The stream after it cannot be trusted: the connection must end."""


class HeaderError(WireError):
    """A field of a request's or response's header is missing or is not of its type."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.field = field


class BodyError(WireError):
    """A JSON body that is not fastjson's dialect, or does not have the members it must have."""


class RecordError(WireError):
    """A stored record, or an item of a batch, that is cut off, damaged or too large."""

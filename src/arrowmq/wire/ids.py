"""Message ids: the broker's (where a record lies), the client's (unique), and the recall handle of a timer message.

offset message id   store IP (4 or 16) + port (4) + physical offset (8), upper-case hex: 32 or 56 characters
unique id           client IP (4 or 16) + process id (2) + instance hash (4) + ms of the month (4) + counter (2)
recall handle       URL-safe base64 of `v1 topic brokerName deliverMs uniqueId`
"""

from __future__ import annotations

import base64
import binascii
import itertools
import os
import random
import struct
from collections.abc import Callable
from datetime import datetime
from time import time
from typing import NamedTuple

from arrowmq.wire.errors import WireError

_ADDRESS_V4 = struct.Struct(">4siq")
_ADDRESS_V6 = struct.Struct(">16siq")


class IdError(WireError):
    """A message id or recall handle that nobody can have issued."""


class OffsetMessageId(NamedTuple):
    ip: bytes
    port: int
    physical_offset: int


def offset_message_id(host_ip: bytes, port: int, physical_offset: int) -> str:
    """The broker's id of the record at `physical_offset`."""
    layout = _ADDRESS_V4 if len(host_ip) == 4 else _ADDRESS_V6
    return layout.pack(host_ip, port, physical_offset).hex().upper()


def parse_offset_message_id(text: str) -> OffsetMessageId:
    if len(text) not in (32, 56):
        raise IdError(f"{text[:64]!r} is no offset message id: it must have 32 or 56 hexadecimal digits")
    try:
        raw = binascii.unhexlify(text)
    except (binascii.Error, ValueError) as wrong:
        raise IdError(f"{text!r} is no offset message id: {wrong}") from wrong
    return OffsetMessageId(*(_ADDRESS_V4 if len(raw) == 16 else _ADDRESS_V6).unpack(raw))


class UniqueIds:
    """Gives out the unique ids of one client. Ids of one object never repeat within a month."""

    def __init__(self, ip: bytes = b"\x7f\x00\x00\x01", clock_ms: Callable[[], int] | None = None) -> None:
        self._prefix = struct.pack(f">{len(ip)}sHI", ip, os.getpid() & 0xFFFF, random.getrandbits(32)).hex().upper()
        self._clock_ms = clock_ms or (lambda: int(time() * 1000))
        # Taking the next number is atomic, so threads may share this object without a lock.
        self._numbers = itertools.count(1)
        self._month_begin_ms = 0
        self._month_end_ms = 0

    def next(self) -> str:
        return self.at(self._clock_ms())

    def at(self, now_ms: int) -> str:
        """The next id, for who has just asked for the time."""
        if not self._month_begin_ms <= now_ms < self._month_end_ms:
            self._enter_month(now_ms)
        moment = (now_ms - self._month_begin_ms) & 0xFFFFFFFF
        return f"{self._prefix}{moment:08X}{next(self._numbers) & 0xFFFF:04X}"

    def _enter_month(self, now_ms: int) -> None:
        begin = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        self._month_begin_ms = int(begin.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)


class RecallHandle(NamedTuple):
    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    try:
        version, topic, broker_name, deliver_ms, unique_id = base64.urlsafe_b64decode(text).decode().split(" ")
        if version != "v1":
            raise ValueError(f"its version is {version!r}")
        return RecallHandle(topic, broker_name, int(deliver_ms), unique_id)
    except ValueError as wrong:
        raise IdError(f"{text[:200]!r} is no recall handle: {wrong}") from wrong

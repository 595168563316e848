"""Send requests written straight to bytes, with the binary header, which brokers read faster than JSON.

What is the same for all messages of one queue is written once. The general form (`Sender.request`, a `Command`) says
the same and is used where hooks or signatures must see the fields; a test compares the two.

    4  length of what follows        4  1 (binary) in the first byte, then the header's length
    2  code   1  language   2  version   4  opaque   4  flag   4  remark's length (0)   4  length of the fields
    fields, each: 2 + name, 4 + value        body
"""

from __future__ import annotations

import struct

from arrowmq.client import names
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode
from arrowmq.wire.message import MessageQueue

DEFAULT_TOPIC_QUEUES = 4
_HEAD = struct.Struct(">IIhbhiiii")
_FIXED_BYTES = 21
_BINARY = 1 << 24
_VALUE = struct.Struct(">I")
_PLAIN_FLAGS = b"\x00\x01f\x00\x00\x00\x010\x00\x01h\x00\x00\x00\x010"
_BORN = b"\x00\x01g"
_PROPERTIES = b"\x00\x01i"


def field(name: str, value: bytes) -> bytes:
    key = name.encode()
    return struct.pack(">H", len(key)) + key + _VALUE.pack(len(value)) + value


class SendFrames:
    """Writes the frames of one producer group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._starts: dict[tuple[MessageQueue, bool], bytes] = {}

    def start_of(self, topic: str, queue: MessageQueue, is_batch: bool) -> bytes:
        """The fields that are the same for all messages to this queue."""
        start = self._starts.get((queue, is_batch))
        if start is None:
            fields = {
                "a": self._group,
                "b": topic,
                "c": names.AUTO_CREATE_TOPIC,
                "d": str(DEFAULT_TOPIC_QUEUES),
                "e": str(queue.queue_id),
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": queue.broker_name,
            }
            start = b"".join(field(name, value.encode()) for name, value in fields.items())
            self._starts[queue, is_batch] = start
        return start

    @staticmethod
    def frame(
        code: int, opaque: int, start: bytes, sys_flag: int, flag: int, born_ms: int, properties: bytes, body: bytes
    ) -> bytes:
        born = b"%d" % born_ms
        flags = _PLAIN_FLAGS
        if sys_flag or flag:
            flags = field("f", b"%d" % sys_flag) + field("h", b"%d" % flag)
        length = len(start) + len(flags) + len(born) + len(properties) + 14
        header = _FIXED_BYTES + length
        return b"".join(
            (
                _HEAD.pack(
                    4 + header + len(body), _BINARY | header, code, LanguageCode.PYTHON, CURRENT_VERSION, opaque,
                    0, 0, length,
                ),
                start, flags,
                _BORN, _VALUE.pack(len(born)), born,
                _PROPERTIES, _VALUE.pack(len(properties)), properties,
                body,
            )
        )  # fmt: skip

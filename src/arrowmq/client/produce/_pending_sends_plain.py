"""Pending sends in plain Python: the reference that the native module must agree with.

A frame of a send request, with the binary header, which brokers read faster than JSON:

    4  length of what follows        4  1 (binary) in the first byte, then the header's length
    2  code   1  language   2  version   4  opaque   4  flag   4  remark's length (0)   4  length of the fields
    fields, each: 2 + name, 4 + value        body
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from arrowmq.client.produce.faults import FaultTable
from arrowmq.client.produce.outcome import resolve
from arrowmq.client.produce.outgoing import details_bytes
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.client.routes import Route
from arrowmq.remoting.connection import Connection
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode, RequestCode
from arrowmq.wire.frames import ONEWAY_FLAG, decode_frame
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.client.produce.pending_sends import PendingSends

_HEAD = struct.Struct(">IIhbhiiii")
_FIXED_BYTES = 21
_BINARY = 1 << 24
_VALUE = struct.Struct(">I")
#  of an answer: length, header word, code, language, version, opaque, flag
_ANSWER = struct.Struct(">IIhbhii")
_PLAIN_FLAGS = b"\x00\x01f\x00\x00\x00\x010\x00\x01h\x00\x00\x00\x010"
_BORN = b"\x00\x01g"
_PROPERTIES = b"\x00\x01i"
_WAITS = b"WAIT\x01true\x02UNIQ_KEY\x01"
_DOES_NOT_WAIT = b"WAIT\x01false\x02UNIQ_KEY\x01"


def field(name: str, value: bytes) -> bytes:
    key = name.encode()
    return struct.pack(">H", len(key)) + key + _VALUE.pack(len(value)) + value


def frame(
    code: int,
    opaque: int,
    frame_flag: int,
    start: bytes,
    sys_flag: int,
    flag: int,
    born_ms: int,
    properties: bytes,
    body: bytes,
) -> bytes:
    """The whole frame of a send; `start` holds the fields that are the same for all messages to that queue."""
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
                frame_flag, 0, length,
            ),
            start, flags,
            _BORN, _VALUE.pack(len(born)), born,
            _PROPERTIES, _VALUE.pack(len(properties)), properties,
            body,
        )
    )  # fmt: skip


class PendingSend:
    """One send that waits for its answer; `future` gets the receipt, or the error of this attempt."""

    __slots__ = (
        "address",
        "connection",
        "deadline",
        "faults",
        "future",
        "msg_id",
        "opaque",
        "queue",
        "sent_at",
        "timeout_s",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        opaque: int,
        topic: str,
        queue: MessageQueue,
        address: str,
        connection: Connection,
        msg_id: str,
        timeout_s: float,
        future: asyncio.Future[SendReceipt],
        faults: FaultTable | None,
    ) -> None:
        self.opaque = opaque
        self.topic = topic
        self.queue = queue
        self.address = address
        self.connection = connection
        self.msg_id = msg_id
        self.timeout_s = timeout_s
        self.future = future
        self.faults = faults
        self.sent_at = 0.0
        self.deadline = 0.0


def settle(by_opaque: dict[int, PendingSend], view: memoryview, monotonic: Callable[[], float]) -> int:
    """Give the answers at the beginning of `view` to their pending_sends; how many bytes that took.

    It ends at the first frame that is not whole, not with the binary header, or nobody's here.
    """
    position, end = 0, len(view)
    while end - position >= _ANSWER.size:
        length, word, _code, _language, _version, opaque, flag = _ANSWER.unpack_from(view, position)
        header = word & 0xFFFFFF
        if word >> 24 != 1 or not flag & 1 or header < _FIXED_BYTES or header + 4 > length:
            break
        if length > end - position - 4 or opaque not in by_opaque:
            break
        # A frame that cannot be read leaves the pending send where it is, to end with its connection.
        command = decode_frame(view[position + 4 : position + 4 + length])
        resolve(by_opaque.pop(opaque), command, monotonic)
        position += 4 + length
    return position


class Target:
    """One queue of a topic: where it is, and what every frame to it begins with."""

    __slots__ = ("address", "connection", "queue", "start")

    def __init__(self, queue: MessageQueue, address: str, start: bytes) -> None:
        self.queue = queue
        self.address = address
        self.start = start
        self.connection: Connection | None = None


class Lane:
    """The fast path of plain messages to one topic, for as long as its route stays the same and its brokers are well.

    What it does not know (None) takes the general path, which says and does the same.
    """

    def __init__(
        self,
        pending_sends: PendingSends,
        route: Route,
        routes: Mapping[str, Route],
        targets: Sequence[Target],
        faults: FaultTable | None,
        largest_bytes: int,
    ) -> None:
        self.route = route
        self.turn = 0
        self._pending_sends = pending_sends
        self._topic = route.topic
        self._routes = routes
        self._targets = list(targets)
        self._faults = faults
        self._suspicions: Mapping[str, object] = {} if faults is None else faults.suspicions
        self._largest_bytes = largest_bytes

    def begin(
        self,
        body: bytes,
        tag: str | None,
        keys: Sequence[str] | str,
        properties: Mapping[str, str] | None,
        flag: int,
        wait_store: bool,
        timeout_s: float,
    ) -> PendingSend | None:
        """Send a message; the pending send waits for the answer."""
        target = self._target(body, flag)
        if target is None:
            return None
        pending_sends = self._pending_sends
        born_ms = pending_sends.now_ms()
        msg_id = pending_sends.msg_id_at(born_ms)
        opaque = pending_sends.next_opaque()
        raw = properties_bytes(tag, keys, properties, wait_store, msg_id)
        written = frame(RequestCode.SEND_MESSAGE_V2, opaque, 0, target.start, 0, flag, born_ms, raw, body)
        assert target.connection is not None
        pending = PendingSend(
            opaque, self._topic, target.queue, target.address, target.connection, msg_id, timeout_s,
            pending_sends.new_future(), self._faults,
        )  # fmt: skip
        pending_sends.begin(pending, written)
        return pending

    def begin_oneway(
        self,
        body: bytes,
        tag: str | None,
        keys: Sequence[str] | str,
        properties: Mapping[str, str] | None,
        flag: int,
        wait_store: bool,
    ) -> Connection | None:
        """Send a message that gets no answer; on which connection."""
        target = self._target(body, flag)
        if target is None:
            return None
        pending_sends = self._pending_sends
        born_ms = pending_sends.now_ms()
        raw = properties_bytes(tag, keys, properties, wait_store, pending_sends.msg_id_at(born_ms))
        code, opaque = RequestCode.SEND_MESSAGE_V2, pending_sends.next_opaque()
        connection = target.connection
        assert connection is not None
        connection.write(frame(code, opaque, ONEWAY_FLAG, target.start, 0, flag, born_ms, raw, body))
        return connection

    def _target(self, body: bytes, flag: int) -> Target | None:
        """The queue whose turn it is, if the fast path may be taken."""
        if self._routes.get(self._topic) is not self.route or self._suspicions:
            return None
        if type(body) is not bytes or not 0 < len(body) <= self._largest_bytes:
            return None
        if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
            return None
        target = self._targets[self.turn % len(self._targets)]
        connection = target.connection
        if connection is None or connection.closed:
            target.connection = self._pending_sends.connection_to(target.address)
            if target.connection is None:
                return None
        self.turn += 1
        return target


def properties_bytes(
    tag: str | None,
    keys: Sequence[str] | str,
    properties: Mapping[str, str] | None,
    wait_store: bool,
    msg_id: str,
) -> bytes:
    """What `message_properties` gives for such a message, encoded."""
    raw = (_WAITS if wait_store else _DOES_NOT_WAIT) + msg_id.encode() + b"\x02"
    return details_bytes(tag, keys, properties) + raw if tag is not None or keys or properties else raw

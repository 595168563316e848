"""Ordinary sends of gRPC clients on the broker's fast path: protobuf bytes in, protobuf bytes out.

A request becomes the frame that a client of the older protocol would have sent (`_send_frames_native`), and the
broker's own fast path serves it, under its permit: what closes that, closes this. Whatever is not ordinary takes
the general path.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.proxy.faults import OK
from arrowmq.proxy.grpc.call import Call
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service.routing import type_name
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command, decode_frame
from arrowmq.wire.properties import RESERVED
from arrowmq.wire.sysflag import PERM_WRITE

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.proxy.config import ProxyConfig

_PEER = "peer bytes"
_OK_STATUS = OK.SerializeToString()


class _Asker:
    """What the fast path sees as a connection, for one request."""

    __slots__ = ("attributes", "call", "in_flight", "message_id", "peer", "peer_bytes", "sends")

    def __init__(self, sends: FastSends, call: Call, message_id: bytes) -> None:
        self.sends, self.call, self.message_id = sends, call, message_id
        self.peer = call.connection.peer
        self.peer_bytes: bytes | None = call.connection.attributes.get(_PEER)
        self.in_flight = 0
        self.attributes = call.connection.attributes

    # An answer that had to wait for the disk or a replica

    def send(self, answer: Command) -> None:
        self.sends.later(self, answer)

    def write_frame(self, pieces: list[bytes]) -> None:
        self.sends.later(self, decode_frame(memoryview(b"".join(pieces))[4:]))

    def in_flight_ended(self) -> None:
        self.in_flight = 0


class FastSends:
    def __init__(self, broker: Broker, config: ProxyConfig) -> None:
        self._broker = broker
        reserved = {name.encode() for name in RESERVED}
        make = import_module("arrowmq.proxy.backs._send_frames_native").SendFrames
        self._frames: Any = make(reserved, config.max_message_size or 1 << 30, config.max_user_property_size)
        self._checks_types = config.enable_topic_message_type_check
        broker.topics.on_change.append(lambda changed: self._frames.forget())
        broker.on_config_change.append(self._frames.forget)

    def serve(self, call: Call, request: bytes) -> bytes | None:
        """The answer's bytes; None if the general path must serve it. Empty: it is answered later."""
        router = self._broker.fast_path
        if router is None or not call.metadata.get(b"x-mq-client-id", b"").strip():
            return None
        made = self._frames.frame(request, call.connection.peer_text.encode())
        if made is None:
            return None
        frame, message_id = made
        asker = _Asker(self, call, message_id)
        consumed, reply = router(asker, memoryview(frame))
        call.connection.attributes[_PEER] = asker.peer_bytes
        if not consumed:
            return None
        if not reply:
            return b""
        return self._answer(asker, decode_frame(memoryview(reply)[4:]))

    def learn(self, topic: str) -> None:
        """The general path has sent a message there: the next one may be quicker, if all queues are this broker's."""
        known = self._broker.topics.get(topic)
        if known is None or not known.perm & PERM_WRITE or known.write_queue_nums <= 0:
            return
        if self._checks_types and type_name(known) not in ("NORMAL", "MIXED"):
            return
        self._frames.show(topic.encode(), known.write_queue_nums)

    def later(self, asker: _Asker, answer: Command) -> None:
        asker.call.answer_bytes(self._answer(asker, answer))

    def _answer(self, asker: _Asker, answer: Command) -> bytes:
        if answer.code == ResponseCode.SUCCESS:
            return _sent(asker.message_id, int(answer.ext["queueOffset"]))
        from arrowmq.proxy.service.sending import status_of_stored

        response = calls.SendMessageResponse()
        status = status_of_stored(answer.code, answer.remark)
        response.status.CopyFrom(status)
        response.entries.add().status.CopyFrom(status)
        return response.SerializeToString()


def _sent(message_id: bytes, offset: int) -> bytes:
    """SendMessageResponse{status, entries: [{status, message_id, transaction_id, offset}]}."""
    status = b"\x0a" + bytes([len(_OK_STATUS)]) + _OK_STATUS
    named = _varint(len(message_id)) + message_id
    entry = status + b"\x12" + named + b"\x1a" + named
    if offset:
        entry += b"\x20" + _varint(offset)
    return status + b"\x12" + _varint(len(entry)) + entry


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    made = bytearray()
    while value >= 128:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)

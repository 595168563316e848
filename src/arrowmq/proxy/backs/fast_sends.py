"""Ordinary sends of gRPC clients on the broker's fast path: protobuf bytes in, protobuf bytes out.

A request becomes the frame that a client of the older protocol would have sent (`_send_frames_native`), and the
broker's own fast path serves it, under its permit: what closes that, closes this. Whatever is not ordinary takes
the general path.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.proxy.faults import OK
from arrowmq.proxy.grpc.call import answer_late
from arrowmq.proxy.grpc.framing import framed
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service.routing import type_name
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command, decode_frame
from arrowmq.wire.properties import RESERVED
from arrowmq.wire.sysflag import PERM_WRITE

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.proxy.config import ProxyConfig
    from arrowmq.proxy.http2.connection import Http2Connection

_PEER = "peer bytes"
_OK_STATUS = OK.SerializeToString()


class _Asker:
    """What the fast path sees as a connection, for one request."""

    __slots__ = ("attributes", "connection", "in_flight", "message_id", "peer", "peer_bytes", "sends", "stream")

    def __init__(self, sends: FastSends, connection: Http2Connection, stream: int, message_id: bytes) -> None:
        self.sends, self.connection, self.stream, self.message_id = sends, connection, stream, message_id
        self.peer = connection.peer
        self.attributes = connection.attributes
        self.peer_bytes: bytes | None = self.attributes.get(_PEER)
        self.in_flight = 0

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

    def serve(
        self, connection: Http2Connection, stream: int, metadata: dict[bytes, bytes], request: bytes
    ) -> bytes | None:
        """The answer's bytes with gRPC's prefix, none if it comes later; None if the general path must serve it."""
        router = self._broker.fast_path
        if router is None or not metadata.get(b"x-mq-client-id", b"").strip():
            return None
        made = self._frames.frame(request, connection.peer_text.encode())
        if made is None:
            return None
        frame, message_id = made
        asker = _Asker(self, connection, stream, message_id)
        consumed, reply = router(asker, memoryview(frame))
        connection.attributes[_PEER] = asker.peer_bytes
        if not consumed:
            return None
        if not reply:
            return b""
        answer: bytes | None = self._frames.answer(reply, message_id, _OK_STATUS)
        return answer if answer is not None else self._answer(asker, decode_frame(memoryview(reply)[4:]))

    def learn(self, topic: str) -> None:
        """The general path has sent a message there: the next one may be quicker, if all queues are this broker's."""
        known = self._broker.topics.get(topic)
        if known is None or not known.perm & PERM_WRITE or known.write_queue_nums <= 0:
            return
        if self._checks_types and type_name(known) not in ("NORMAL", "MIXED"):
            return
        self._frames.show(topic.encode(), known.write_queue_nums)

    def later(self, asker: _Asker, answer: Command) -> None:
        answer_late(asker.connection, asker.stream, self._answer(asker, answer))

    def _answer(self, asker: _Asker, answer: Command) -> bytes:
        response = calls.SendMessageResponse()
        if answer.code == ResponseCode.SUCCESS:
            entry = response.entries.add(status=OK, offset=int(answer.ext["queueOffset"]))
            entry.message_id = entry.transaction_id = asker.message_id.decode()
            response.status.CopyFrom(OK)
        else:
            from arrowmq.proxy.service.sending import status_of_stored

            status = status_of_stored(answer.code, answer.remark)
            response.status.CopyFrom(status)
            response.entries.add(status=status)
        return framed(response.SerializeToString())

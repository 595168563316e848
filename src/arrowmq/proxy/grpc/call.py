"""One call: who asks for what, until when, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from arrowmq.proxy.grpc.framing import MAX_MESSAGE_BYTES, MessageReader, framed, whole_message
from arrowmq.proxy.grpc.methods import Inbound, Method
from arrowmq.proxy.grpc.status import GrpcCode, encoded_message
from arrowmq.proxy.http2.events import Headers

if TYPE_CHECKING:
    from arrowmq.proxy.http2.connection import Http2Connection

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

RESPONSE_HEADERS: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS: Headers = [(b"grpc-status", b"0")]


def trailers_of(code: GrpcCode, message: str) -> Headers:
    trailers = [(b"grpc-status", str(int(code)).encode())]
    if message:
        trailers.append((b"grpc-message", encoded_message(message)))
    return trailers


def answer_late(connection: Http2Connection, stream: int, data: bytes) -> None:
    """The answer to a request that was served by its bytes and had to wait, if anybody still waits for it."""
    if not connection.closed:
        connection.core.respond(stream, RESPONSE_HEADERS, data, OK_TRAILERS)
        connection.changed()


class Call:
    """Everything sent after the client has cancelled goes nowhere; `is_cancelled` tells."""

    __slots__ = (
        "_cancel_callbacks",
        "attributes",
        "began",
        "connection",
        "has_begun",
        "inbound",
        "is_cancelled",
        "is_ended",
        "is_whole",
        "max_bytes",
        "metadata",
        "method",
        "raw",
        "reader",
        "request",
        "stream",
        "timeout_s",
    )

    def __init__(
        self,
        connection: Http2Connection,
        stream: int,
        method: Method,
        metadata: dict[bytes, bytes],
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.method = method
        self.metadata = metadata
        self.max_bytes = max_bytes
        self.reader: MessageReader | None = None  # made when a request does not come in one piece
        self.request: Any = None
        self.raw: bytes | None = None  # the request's bytes, where who was shown them has left it
        self.inbound: Inbound | None = None
        self.has_begun = False  # the headers of the answer are sent
        self.is_ended = False  # and its trailers
        self.is_cancelled = False
        self.is_whole = False  # the request has come
        self.attributes: Any = None
        self.began = 0.0
        self._cancel_callbacks: list[Callable[[], object]] | None = None
        self.timeout_s = parse_timeout(metadata.get(b"grpc-timeout"))

    @property
    def unsent(self) -> int:
        return self.connection.core.unsent(self.stream)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call back if the client gives up before the call has ended."""
        if self.is_cancelled:
            callback()
        elif self._cancel_callbacks is None:
            self._cancel_callbacks = [callback]
        else:
            self._cancel_callbacks.append(callback)

    def cancelled(self) -> None:
        if self.is_ended:
            return
        self.is_cancelled = self.is_ended = True
        if self.inbound is not None:
            self.inbound.cancelled()
        callbacks, self._cancel_callbacks = self._cancel_callbacks, None
        for callback in callbacks or ():
            callback()

    @property
    def held(self) -> int:
        """Bytes of a request that is not whole."""
        return 0 if self.reader is None else self.reader.held

    def messages(self, data: bytes) -> list[bytes]:
        """The messages that this data completes. Raises `GrpcError`."""
        if self.reader is None:
            if (message := whole_message(data, self.max_bytes)) is not None:
                return [message]
            self.reader = MessageReader(self.metadata.get(b"grpc-encoding", b""), self.max_bytes)
        return self.reader.feed(data)

    def answer(self, message: Message) -> None:
        """The one answer of a unary call."""
        self.answer_bytes(framed(message.SerializeToString()))

    def answer_bytes(self, data: bytes) -> None:
        """The answer, or all answers of a stream, by whoever has them in bytes with gRPC's prefix before each."""
        if self.is_ended:
            return
        self.is_ended = True
        self.connection.core.respond(self.stream, RESPONSE_HEADERS, data, OK_TRAILERS)
        self.connection.changed()

    def send(self, message: Message) -> None:
        """One of several answers."""
        if self.is_ended:
            return
        self.send_bytes(message.SerializeToString())

    def send_bytes(self, message: bytes) -> None:
        if self.is_ended:
            return
        self.begin()
        self.connection.core.send_data(self.stream, framed(message))
        self.connection.changed()

    def begin(self) -> None:
        """Send the headers of the answer, if they have not been sent."""
        if not self.has_begun and not self.is_ended:
            self.has_begun = True
            self.connection.core.send_headers(self.stream, RESPONSE_HEADERS)
            self.connection.changed()

    def end(self, code: GrpcCode = GrpcCode.OK, message: str = "") -> None:
        if self.is_ended:
            return
        self.is_ended = True
        core = self.connection.core
        trailers = OK_TRAILERS if code == GrpcCode.OK else trailers_of(code, message)
        if self.has_begun:
            core.send_trailers(self.stream, trailers)
        else:
            core.send_headers(self.stream, RESPONSE_HEADERS + trailers, end=True)
        self.connection.changed()


def parse_timeout(text: bytes | None) -> float | None:
    """`grpc-timeout`; one that cannot be read counts as none."""
    if text is None:
        return None
    found = _TIMEOUT.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]

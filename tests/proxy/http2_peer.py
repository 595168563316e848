"""The client's side of HTTP/2, for tests of a core: `h2` as a client, and frames by hand where it would refuse them."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events

from arrowmq.proxy.http2.core import Core

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Peer:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.seen: list[Any] = []
        self.exchange()

    def exchange(self) -> list[Any]:
        """Carry bytes both ways until nothing moves; what the core reported."""
        fresh: list[Any] = []
        while True:
            outgoing = self.h2.data_to_send()
            if outgoing:
                fresh += self.core.receive(outgoing)
            incoming = self.core.take()
            if incoming:
                self.events += self.h2.receive_data(incoming)
            if not outgoing and not incoming:
                self.seen += fresh
                return fresh

    def raw(self, data: bytes) -> list[Any]:
        """Send bytes that `h2` would not."""
        fresh = self.core.receive(data)
        self.seen += fresh
        return fresh

    def request(self, headers: list[tuple[str, str]] | None = None, data: bytes = b"", *, end: bool = True) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers or REQUEST, end_stream=end and not data)
        if data:
            self.h2.send_data(stream, data, end_stream=end)
        return int(stream)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def goaway(self) -> int | None:
        """The code that the connection was ended with."""
        ended = self.of(h2.events.ConnectionTerminated)
        return None if not ended else int(ended[-1].error_code)

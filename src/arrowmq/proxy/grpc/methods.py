"""What can be called: a table from the path to a method.

A unary method takes the call and its request and gives the answer, or an awaitable of it. One with a stream of answers
writes them to the call and returns when it is done. One with streams both ways is given the call when it begins, and
says who takes what the client sends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import Message

if TYPE_CHECKING:
    from arrowmq.proxy.grpc.call import Call
    from arrowmq.proxy.http2.connection import Http2Connection

Unary = Callable[["Call", Any], Message | Awaitable[Message]]
Streaming = Callable[["Call", Any], Awaitable[None]]
Duplex = Callable[["Call"], "Inbound"]
#: Shown a single request first, in bytes, with its connection, stream and metadata. It gives the answer, in bytes with
#: gRPC's prefix or to be waited for; b"" if it answers by itself, now or later; None to leave the request.
Raw = Callable[["Http2Connection", int, dict[bytes, bytes], bytes], bytes | Awaitable[Message] | None]


class Inbound(Protocol):
    """Takes what the client sends on a stream that goes both ways."""

    def received(self, message: Any) -> None: ...

    def ended(self) -> None:
        """The client sends nothing more; the stream is still open for us."""

    def cancelled(self) -> None:
        """The stream is gone."""


@dataclass(frozen=True, slots=True)
class Method:
    path: str
    request: type[Message]
    unary: Unary | None = None
    streaming: Streaming | None = None
    duplex: Duplex | None = None
    raw: Raw | None = None


class MethodTable:
    def __init__(self) -> None:
        self._methods: dict[bytes, Method] = {}
        self.services: list[str] = []
        #: Paths of methods that a service declares and nobody serves here
        self.unserved: set[bytes] = set()

    def add(self, *methods: Method) -> None:
        for method in methods:
            self._methods[method.path.encode()] = method
            service = method.path.split("/")[1]
            if service not in self.services:
                self.services.append(service)

    def get(self, path: bytes) -> Method | None:
        return self._methods.get(path)

    def __iter__(self) -> Any:
        return iter(self._methods.values())

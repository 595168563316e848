"""The calls of one connection: from events of streams to methods."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import DecodeError, Message

from arrowmq.proxy.grpc.call import OK_TRAILERS, RESPONSE_HEADERS, Call, trailers_of
from arrowmq.proxy.grpc.framing import ACCEPTED, MAX_MESSAGE_BYTES, whole_message
from arrowmq.proxy.grpc.methods import Method, MethodTable
from arrowmq.proxy.grpc.status import GrpcCode, GrpcError
from arrowmq.proxy.http2.events import DATA, END, HEADERS, REQUEST, RESET, Event, Headers
from arrowmq.remoting.failures import FailureLog

if TYPE_CHECKING:
    from arrowmq.proxy.http2.connection import Http2Connection

log = logging.getLogger(__name__)
_failures = FailureLog()

#: Of all requests of a connection that are not whole yet
MAX_HELD_BYTES = 64 * 1024 * 1024
#: For a unary request to come whole
REQUEST_S = 60.0
NOT_GRPC = b"This port serves gRPC: RocketMQ clients of the 5.x line, grpc.health.v1 and server reflection.\n"
_EAGER = sys.version_info >= (3, 12)


class GrpcStreams:
    def __init__(
        self,
        connection: Http2Connection,
        methods: MethodTable,
        tasks: set[asyncio.Task[Any]],
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._connection = connection
        self._methods = methods
        self._calls: dict[int, Call] = {}
        self._not_grpc: dict[int, bytes] = {}  # what other requests are answered with, at their end
        self._tasks = tasks
        self._held = 0
        self._max_message_bytes = max_message_bytes
        connection.core.merges_requests = True

    @property
    def calls(self) -> int:
        return len(self._calls)

    def happened(self, event: Event) -> None:
        kind, stream, value = event
        if kind == REQUEST:
            self._request(stream, *cast(tuple[Headers, bytes], value))
        elif kind == DATA:
            call = self._calls.get(stream)
            if call is not None:
                self._data(call, cast(bytes, value))
        elif kind == HEADERS:
            self._begin(stream, cast(Headers, value))
        elif kind == END:
            call = self._calls.get(stream)
            if call is not None:
                self._end(call)
            elif stream in self._not_grpc:
                self._answer_not_grpc(stream, self._not_grpc.pop(stream))
        elif kind == RESET:
            self._not_grpc.pop(stream, None)
            call = self._forget(stream)
            if call is not None:
                call.cancelled()

    def lost(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancelled()

    def sweep(self, now: float) -> None:
        for stream in [stream for stream, call in self._calls.items() if call.is_ended]:
            self._forget(stream)
        for call in list(self._calls.values()):
            if call.inbound is None and not call.is_whole and now - call.began > REQUEST_S:
                self._refuse(call, GrpcCode.DEADLINE_EXCEEDED, f"the request did not come within {REQUEST_S:g} s")

    def _forget(self, stream: int) -> Call | None:
        """Every way in which a call ends goes through here: what it held of a message is not held any more."""
        call = self._calls.pop(stream, None)
        if call is not None:
            self._held -= call.held
        return call

    # --- a call that came in one piece -------------------------------------------------------------------------------

    def _request(self, stream: int, headers: Headers, data: bytes) -> None:
        metadata = dict(headers)
        method = self._methods.get(metadata.get(b":path", b""))
        if method is not None and method.raw is not None and metadata.get(b":method") == b"POST":
            message = whole_message(data, self._max_message_bytes)
            is_grpc = metadata.get(b"content-type", b"").startswith(b"application/grpc")
            if is_grpc and message is not None and self._has_answered(method, stream, metadata, message):
                return
        self._begin(stream, headers)
        call = self._calls.get(stream)
        if call is not None:
            self._data(call, data)
        self.happened((END, stream, None))

    def _has_answered(self, method: Method, stream: int, metadata: dict[bytes, bytes], message: bytes) -> bool:
        """Whether somebody serves the request by its bytes."""
        assert method.raw is not None
        try:
            answer = method.raw(self._connection, stream, metadata, message)
        except Exception as error:
            self._failed(self._new_call(stream, method, metadata), error)
            return True
        if answer is None:
            return False
        if not isinstance(answer, bytes):
            call = self._new_call(stream, method, metadata)
            call.is_whole = True
            self._spawn(self._unary(call, cast(Coroutine[Any, Any, Message], answer)))
        elif answer:
            self._connection.core.respond(stream, RESPONSE_HEADERS, answer, OK_TRAILERS)
        return True

    def _new_call(self, stream: int, method: Method, metadata: dict[bytes, bytes]) -> Call:
        call = self._calls[stream] = Call(self._connection, stream, method, metadata, self._max_message_bytes)
        call.began = self._connection.heard_at
        return call

    # --- steps of a call ---------------------------------------------------------------------------------------------

    def _begin(self, stream: int, headers: Headers) -> None:
        metadata = dict(headers)
        core = self._connection.core
        if metadata.get(b":method") != b"POST":
            self._not_grpc[stream] = b"405"
            return
        if not metadata.get(b"content-type", b"").startswith(b"application/grpc"):
            self._not_grpc[stream] = b"415"
            return
        path = metadata.get(b":path", b"")
        method = self._methods.get(path)
        if method is None:
            # The words of gRPC's Java server, which people search for.
            name = path.decode("utf-8", "replace").removeprefix("/")
            is_declared = path in self._methods.unserved
            said = f"Method {name} is unimplemented" if is_declared else f"Method not found: {name}"
            answer = [(b":status", b"200"), (b"content-type", b"application/grpc")]
            core.send_headers(stream, answer + trailers_of(GrpcCode.UNIMPLEMENTED, said), end=True)
            return
        call = self._new_call(stream, method, metadata)
        if method.duplex is not None:
            try:
                call.inbound = method.duplex(call)
            except Exception as error:
                self._failed(call, error)

    def _answer_not_grpc(self, stream: int, status: bytes) -> None:
        """For people and probes that come with a browser's request; when it is whole, for it may be malformed to the
        end, and a stream that was answered is no longer there to say so."""
        headers = [(b":status", status), (b"allow", b"POST"), (b"content-type", b"text/plain; charset=utf-8")]
        self._connection.core.respond(stream, headers, NOT_GRPC, [(b"x-served-by", b"arrowmq")])

    def _data(self, call: Call, data: bytes) -> None:
        before = call.held
        try:
            messages = call.messages(data)
            self._held += call.held - before
            if self._held > MAX_HELD_BYTES:
                raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "too much is on its way on this connection")
            for message in messages:
                if call.is_ended:
                    return
                if call.method.raw is not None and call.request is None:
                    call.request = message
                    continue
                request = call.method.request.FromString(message)
                if call.inbound is not None:
                    call.inbound.received(request)
                elif call.request is not None:
                    raise GrpcError(GrpcCode.INTERNAL, "Too many requests")
                else:
                    call.request = request
        except DecodeError:
            self._no_message(call)
        except GrpcError as error:
            self._refuse(call, error.code, error.message)
        except Exception as error:
            self._failed(call, error)

    def _end(self, call: Call) -> None:
        if call.is_ended:
            self._forget(call.stream)
            return
        if call.inbound is not None:
            try:
                call.inbound.ended()
            except Exception as error:
                self._failed(call, error)
            return
        if call.held or call.request is None:
            self._refuse(call, GrpcCode.INTERNAL, "Half-closed without a request")
            return
        call.is_whole = True
        method = call.method
        try:
            if method.raw is not None:
                if self._has_answered(method, call.stream, call.metadata, call.request):
                    if self._calls.get(call.stream) is call:
                        del self._calls[call.stream]
                        call.is_ended = True
                    return
                call.raw = call.request
                call.request = method.request.FromString(call.request)
            if method.unary is not None:
                outcome = method.unary(call, call.request)
                if isinstance(outcome, Message):
                    self._forget(call.stream)
                    call.answer(outcome)
                    return
                self._spawn(self._unary(call, cast(Coroutine[Any, Any, Message], outcome)))
            else:
                assert method.streaming is not None
                self._spawn(self._streaming(call, method))
        except DecodeError:
            self._no_message(call)
        except Exception as error:
            self._failed(call, error)

    def _no_message(self, call: Call) -> None:
        name = call.method.request.DESCRIPTOR.full_name
        self._refuse(call, GrpcCode.INTERNAL, f"Invalid protobuf byte sequence: this is no {name}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        if _EAGER:
            task = asyncio.Task(work, loop=loop, eager_start=True)  # type: ignore[call-arg,unused-ignore]
            if task.done():
                return
        else:
            task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unary(self, call: Call, outcome: Coroutine[Any, Any, Message]) -> None:
        try:
            answer = await outcome
        except asyncio.CancelledError:
            call.end(GrpcCode.UNAVAILABLE, "the server stops")
            raise
        except Exception as error:
            self._failed(call, error)
            return
        self._forget(call.stream)
        call.answer(answer)

    async def _streaming(self, call: Call, method: Method) -> None:
        assert method.streaming is not None
        try:
            outcome = method.streaming(call, call.request)
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError:
            call.end(GrpcCode.UNAVAILABLE, "the server stops")
            raise
        except Exception as error:
            self._failed(call, error)
            return
        self._forget(call.stream)
        call.end()

    def _failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, GrpcError):
            self._refuse(call, error.code, error.message)
            return
        _failures.report(call.method.path, self._connection.peer_text, error)
        self._refuse(call, GrpcCode.INTERNAL, f"{type(error).__name__}: {error}")

    def _refuse(self, call: Call, code: GrpcCode, message: str) -> None:
        self._forget(call.stream)
        if call.inbound is not None and not call.is_ended:
            call.inbound.cancelled()
        if code == GrpcCode.UNIMPLEMENTED and not call.has_begun and not call.is_ended:
            call.is_ended = True
            answer = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", ACCEPTED)]
            self._connection.core.send_headers(call.stream, answer + trailers_of(code, message), end=True)
            self._connection.changed()
            return
        call.end(code, message)

"""One connection: bytes to the core, events to whoever serves the streams, output written once an iteration.

What comes first decides what the connection is: a PROXY header tells who is really there, a TLS hello is answered with
TLS (`remoting.tls`), anything else must be the preface of HTTP/2, which the core checks.

A peer that does not read is not read either: as long as the kernel or the peer's windows hold back more than
`Bounds.unsent_bytes`, nothing more is taken from it, and after `Bounds.unread_s` without progress it is cut.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio import BaseTransport, Transport
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from arrowmq.proxy.http2.core import Core, new_core
from arrowmq.proxy.http2.events import ErrorCode, Event
from arrowmq.remoting.address import format_address
from arrowmq.remoting.greeting import is_tls, may_be_proxy, read_proxy
from arrowmq.remoting.tls.start import accept_tls
from arrowmq.wire.errors import FrameError

if TYPE_CHECKING:
    from arrowmq.proxy.http2.server import Http2Server

log = logging.getLogger(__name__)

_PING = b"arrowmq\x00"
_GREETING_BYTES = 4096


class Streams(Protocol):
    """Serves the streams of one connection."""

    def happened(self, event: Event) -> None: ...

    def lost(self) -> None:
        """The connection is gone, and every stream with it."""

    def sweep(self, now: float) -> None:
        """Called now and then."""


class Http2Connection(asyncio.Protocol):
    def __init__(self, server: Http2Server) -> None:
        self._server = server
        self._transport: Transport | None = None
        self._greeting: bytearray | None = bytearray()
        self._handshake: asyncio.Future[Transport] | None = None
        self._is_dirty = False
        self._is_reading = True
        self._is_blocked = False
        self._is_pinged = False
        self._close_callbacks: list[Callable[[Http2Connection], object]] = []
        self.core: Core = new_core(server.limits)
        self.streams: Streams = server.serve(self)
        self._peer_text = ""
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.has_proxy_header = False
        self._told: tuple[str, int] | None = None
        self.attributes: dict[str, Any] = {}  # what others remember of this connection
        self.closed = False
        self.is_encrypted = False
        self.is_draining = False
        now = server.clock.monotonic()
        self.heard_at = self.busy_at = self.progress_at = now

    @property
    def peer_text(self) -> str:
        """Where the client is, as far as a PROXY header is believed; `peer` is who connected."""
        if not self._peer_text:
            self._peer_text = format_address(*(self._told or self.peer))
        return self._peer_text

    # --- the transport's calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        self.peer = _host_and_port(transport.get_extra_info("peername"))
        self._peer_text = ""
        self.local = _host_and_port(transport.get_extra_info("sockname"))
        if not self._server.opened(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._server.clock.monotonic()
        if self._greeting is not None:
            self._greet(data)
            return
        self._received(data)

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self.progress_at = self._server.clock.monotonic()
        self._regulate()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._server.lost(self)
        self.streams.lost()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    # --- in ----------------------------------------------------------------------------------------------------------

    def _greet(self, data: bytes) -> None:
        assert self._greeting is not None
        self._greeting += data
        if self._handshake is not None:
            return  # decrypted already, and before the handshake was reported: it is the beginning of HTTP/2
        view = memoryview(bytes(self._greeting))
        try:
            if not self.has_proxy_header and may_be_proxy(view):
                if len(view) < 6:  # "PRI", which HTTP/2 begins with, may still become "PROXY"
                    return
                header = read_proxy(view)
                if header is None:
                    if len(view) > _GREETING_BYTES:
                        raise FrameError("a PROXY header without an end")
                    return
                self.has_proxy_header = True
                self.attributes.update(header.attributes)
                self._told = header.source
                self._peer_text = ""
                view = view[header.length :]
                self._greeting = bytearray(view)
                if not view:
                    return
        except FrameError as wrong:
            log.info("connection refused peer=%s: %s", self.peer_text, wrong)
            self.abort()
            return
        if is_tls(view):
            self._begin_tls(bytes(view))
            return
        if self._server.tls.is_enforced:
            log.info("plain connection refused peer=%s: tls.server.mode=enforcing", self.peer_text)
            self.abort()
            return
        self._greeting = None
        self._received(view)

    def _begin_tls(self, hello: bytes) -> None:
        context = self._server.tls_context()
        if context is None or self._transport is None:
            log.warning("TLS hello refused peer=%s: %s", self.peer_text, self._server.why_no_tls)
            self.abort()
            return
        self._transport.pause_reading()  # what comes next is TLS's own
        self._greeting = bytearray()
        self._handshake = asyncio.ensure_future(accept_tls(self, self._transport, context, hello))
        self._handshake.add_done_callback(self._encrypted)

    def _encrypted(self, handshake: asyncio.Future[Transport]) -> None:
        self._handshake = None
        try:
            transport = handshake.result()
        except (ssl.SSLError, OSError, asyncio.CancelledError) as failure:
            log.info("TLS handshake failed peer=%s: %s", self.peer_text, failure)
            self.abort()
            return
        self._transport = transport
        early, self._greeting = bytes(self._greeting or b""), None
        self.is_encrypted = True
        self._received(early)

    def _received(self, data: bytes | memoryview) -> None:
        core = self.core
        happened = self.streams.happened
        self._is_dirty = True  # whatever these give to the core is written below
        for event in core.receive(data):
            happened(event)
        self._is_pinged = False
        self._flush()

    # --- out ---------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something was given to the core: it is written before the loop waits again."""
        if not self._is_dirty:
            self._is_dirty = True
            self._server.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_dirty = False
        if self.closed or self._transport is None or self._greeting is not None:
            return
        output = self.core.take()
        if output:
            self._transport.write(output)
        if self.core.is_ended:
            self._transport.close()
            return
        self._regulate()
        if self.is_draining and not self.core.open_streams:
            self._transport.close()

    def _regulate(self) -> None:
        """Read only as long as the peer takes what it is sent."""
        may_read = not self._is_blocked and self.core.unsent_total <= self._server.bounds.unsent_bytes
        if self._transport is None or self._transport.is_closing() or self._handshake is not None:
            return
        if may_read and not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()
        elif not may_read and self._is_blocked and self._is_reading:
            # Where only the peer's windows hold data back, reading must go on: the frame that opens them comes by it.
            self._is_reading = False
            self._transport.pause_reading()

    # --- ends --------------------------------------------------------------------------------------------------------

    def on_close(self, callback: Callable[[Http2Connection], object]) -> None:
        if self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def drain(self) -> None:
        """Take no further requests; hang up when those that are there have been answered."""
        if self._greeting is not None:
            self.abort()
            return
        self.is_draining = True
        self.core.goaway()
        self.changed()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, now: float) -> None:
        """Called now and then: peers that are idle, gone or do not read."""
        bounds = self._server.bounds
        if self._greeting is not None:
            if now - self.heard_at > bounds.greeting_s:
                self.abort()
            return
        self.core.relax()
        self.streams.sweep(now)
        if self.core.open_streams:
            self.busy_at = now
        if not self._is_blocked and not self.core.unsent_total:
            self.progress_at = now
        if now - self.progress_at > bounds.unread_s:
            log.info("connection cut peer=%s: it takes nothing of what it asked for", self.peer_text)
            self.abort()
        elif self.core.unsent_total > bounds.unsent_cut_bytes:
            log.info("connection cut peer=%s: %d bytes wait for its windows", self.peer_text, self.core.unsent_total)
            self.abort()
        elif now - self.busy_at > bounds.idle_s:
            self.drain()
        elif self._is_pinged and now - self.heard_at > bounds.ping_after_s + bounds.ping_answer_s:
            log.info("connection cut peer=%s: it does not answer", self.peer_text)
            self.abort()
        elif not self._is_pinged and now - self.heard_at > bounds.ping_after_s:
            self._is_pinged = True
            self.core.ping(_PING)
            self._flush()

    def calm_down(self) -> None:
        """End it for asking too much."""
        self.core.goaway(ErrorCode.ENHANCE_YOUR_CALM)
        self.core.is_ended = True
        self.changed()


def _host_and_port(name: object) -> tuple[str, int]:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "", 0

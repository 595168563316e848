"""One connection: frames in, commands to their handlers, answers and own requests out. The same on both ends.

Everything that one read brought is processed in one pass, in order, and its answers leave in one write. A connection
that must not take more (its peer does not read, or too many of its requests wait for an answer) stops reading; the rest
of what it has received stays where it is until it may go on.

A broken frame ends the connection, as Apache does it: after it nobody can know where the next frame begins.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio import BaseTransport, Transport
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from arrowmq import native
from arrowmq.remoting.address import format_address
from arrowmq.remoting.endpoint import Endpoint
from arrowmq.remoting.errors import ConnectionLost
from arrowmq.remoting.frame_call import FrameCall
from arrowmq.remoting.greeting import is_tls, may_be_proxy, read_proxy
from arrowmq.remoting.large_buffers import SMALL_FRAME_BYTES
from arrowmq.remoting.outbox import Outbox
from arrowmq.remoting.pending import PendingRequests
from arrowmq.remoting.tls._outgoing_plain import Buffer
from arrowmq.remoting.tls.transport import TlsTransport
from arrowmq.wire.frames import ONEWAY_FLAG, Command, FrameError, decode_frame, encode_frame

if TYPE_CHECKING:
    from arrowmq.remoting._intake_plain import Intake
else:
    Intake = native.load("arrowmq.remoting._intake").Intake

log = logging.getLogger(__name__)


class Connection(Intake, asyncio.BufferedProtocol):
    __slots__ = (
        "_close_callbacks",
        "_is_dirty",
        "_last_taken",
        "_peer_text",
        "_pending",
        "_senders",
        "_transport",
        "_why_closed",
        "active_at",
        "attributes",
        "closed",
        "in_flight",
        "local",
        "name",
        "peer",
        "taken_at",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._transport: Transport | None = None
        self._pending = PendingRequests(endpoint.deadlines)
        self._senders: list[asyncio.Future[None]] = []
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._is_dirty = False
        self._why_closed = ""
        self._last_taken = 0
        self.name = ""  # how the address was written by whoever asked for this connection
        self.peer: tuple[str, int] = ("", 0)
        self._peer_text = ""
        self.local: tuple[str, int] = ("", 0)
        self.attributes: dict[str, Any] = {}
        self.closed = False
        self.in_flight = 0
        self.active_at = self.taken_at = endpoint.clock.monotonic()

    def __repr__(self) -> str:
        return f"<Connection {self.peer_text}{' closed' if self.closed else ''}>"

    @property
    def is_ending(self) -> bool:
        """No further request can be sent."""
        return self.closed or self._is_ending

    @property
    def why_closed(self) -> str:
        return self._why_closed or "the peer closed it"

    @property
    def peer_text(self) -> str:
        if not self._peer_text:
            self._peer_text = format_address(*self.peer)
        return self.name or self._peer_text

    @property
    def is_paused(self) -> bool:
        """Nothing more is read of this peer until it takes what waits for it, or its requests are answered."""
        return bool(self._is_paused)

    @property
    def held_bytes(self) -> int:
        """Kept of frames that are not whole yet."""
        return len(self._held) + (0 if self._large is None else len(self._large))

    @property
    def unsent_bytes(self) -> int:
        """Written here, and not yet taken over by the kernel."""
        handed_over = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return handed_over + (0 if self._outbox is None else self._outbox.waiting_bytes)

    @property
    def pending(self) -> int:
        """Own requests that wait for their answers."""
        return len(self._pending)

    # --- the transport's calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        if self._endpoint.is_closed:
            cast(Transport, transport).abort()
        self._use(cast(Transport, transport))
        self.peer = _host_and_port(transport.get_extra_info("peername"))
        self._peer_text = ""
        self.local = _host_and_port(transport.get_extra_info("sockname"))
        self._endpoint.opened(self)

    def _use(self, transport: Transport) -> None:
        self._transport = transport
        if transport.get_extra_info("ssl_object") is not None:
            self._outbox = Outbox(transport, -1)
        else:
            socket = transport.get_extra_info("socket")
            self._outbox = Outbox(transport, -1 if socket is None else socket.fileno())

    def eof_received(self) -> None:
        # The peer has finished sending; like Apache we do not serve half-closed connections.
        self._why_closed = self._why_closed or "the peer closed it"

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.is_blocked = True

    def resume_writing(self) -> None:
        if self._outbox is not None and not self.closed:
            self._outbox.is_blocked = False
            self.turn_ended()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._endpoint.closed(self)
        if self._outbox is not None:
            self._outbox.clear()
        self._held = b""
        self._large = None
        self._why_closed = self._why_closed or (str(error) if error is not None else "")
        self._pending.address = self.peer_text
        self._pending.lost(self.why_closed)
        self._wake_senders()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                log.exception("a callback on the end of a connection failed peer=%s", self.peer_text)

    # --- what came in ------------------------------------------------------------------------------------------------

    def _process(self, view: memoryview, has_declined: bool = False) -> None:
        """Process the whole frames in `view`; keep what is left of it."""
        endpoint = self._endpoint
        fast_path = endpoint.fast_path
        serve = endpoint.handlers.serve
        position, end = 0, len(view)
        self._is_processing = True
        try:
            if self._is_fresh:
                greeted = self._greet(view)
                if greeted is None:
                    return
                position = greeted
            while not (self._is_paused or self._is_ending):
                if fast_path is not None and not has_declined and end - position >= 8:
                    consumed, reply = fast_path(self, view[position:] if position else view)
                    if reply:
                        self.write(reply)
                    if consumed:
                        position += consumed
                        has_declined = getattr(fast_path, "has_declined", False)
                        continue
                has_declined = False
                if end - position < 4:
                    break
                length = int.from_bytes(view[position : position + 4], "big")
                if not 4 <= length <= endpoint.limits.frame_bytes - 4:
                    raise FrameError(f"a frame of {length} bytes; allowed are 4 to {endpoint.limits.frame_bytes - 4}")
                frame_end = position + 4 + length
                if frame_end > end:
                    break
                command = decode_frame(view[position + 4 : frame_end])
                position = frame_end
                if command.flag & 1:
                    if not self._pending.answered(command) and not endpoint.stray_answer(command):
                        log.debug("late answer dropped peer=%s opaque=%d", self.peer_text, command.opaque)
                else:
                    serve(FrameCall(command, self))
                if self.in_flight >= endpoint.limits.in_flight:
                    self._pause()
        except FrameError as error:
            log.warning("connection closed peer=%s reason=%s", self.peer_text, error)
            self._why_closed = f"broken frame: {error}"
            self._flush()
            self.abort()
            return
        finally:
            self._is_processing = False
        if position < end and not self.closed:
            self._keep(view[position:])
        self._flush()

    def _greet(self, view: memoryview) -> int | None:
        """Look at the first bytes. The position where frames begin, or None: more must come, or TLS takes over."""
        position = 0
        if may_be_proxy(view):
            header = read_proxy(view)
            if header is None:
                self._held = bytes(view)
                return None
            self.attributes.update(header.attributes)
            if header.source is not None:
                self.name = format_address(*header.source)
            position = header.length
        if position == len(view):
            return None
        self._is_fresh = False
        tls = self._endpoint.tls
        if is_tls(view[position:]):
            if tls.context is None:
                raise FrameError("a TLS hello, and TLS is not set up here: set tls.server.certPath and keyPath")
            self._encrypt(tls.context, bytes(view[position:]))
            return None
        if tls.is_enforced:
            raise FrameError("a plain connection, and tls.server.mode is enforcing")
        return position

    def _encrypt(self, context: ssl.SSLContext, hello: bytes) -> None:
        assert self._transport is not None
        assert self._outbox is not None
        endpoint = self._endpoint
        self._outbox.is_blocked = True  # until the hand-shake is done
        tls = TlsTransport(
            self, self._transport, context, endpoint.tls_buffers, endpoint.clock, endpoint.loop.call_soon
        )
        self._transport = tls
        endpoint.handshake_began(self)
        tls.start(hello)

    def handshake_done(self) -> None:
        self._endpoint.handshake_ended(self)
        if self._outbox is not None:
            self._outbox.encrypt_by(cast(TlsTransport, self._transport))

    def handshake_failed(self, reason: str) -> None:
        self._endpoint.handshake_ended(self)
        if not self._is_ending:  # else it was ended on this side
            log.warning("connection closed peer=%s reason=TLS handshake failed: %s", self.peer_text, reason)
        self._why_closed = self._why_closed or f"TLS handshake failed: {reason}"

    def _keep(self, rest: memoryview) -> None:
        if not self._is_paused and len(rest) >= 4:
            wanted = 4 + int.from_bytes(rest[:4], "big")
            if wanted > SMALL_FRAME_BYTES:
                self._large = self._endpoint.large_buffers.take(wanted, len(rest))
                self._large[: len(rest)] = rest
                self._large_filled = len(rest)
                self._large_wanted = wanted
                return
        self._held = bytes(rest)

    # --- what goes out -----------------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Send a command as it is. On a closed connection nothing happens."""
        if not self.closed:
            self.write(encode_frame(command))

    def write(self, frame: bytes) -> None:
        """Send ready bytes: one or more whole frames."""
        if self._outbox is not None and not self.closed:
            self._outbox.add(frame)
            self._touch()

    def write_request(self, frame: bytes, is_lone: bool) -> None:
        """Send a ready frame; a lone one, which no other will join in this loop iteration, at once."""
        outbox = self._outbox
        if not is_lone or outbox is None or self._is_dirty or self._is_processing or self.closed:
            self.write(frame)
            return
        try:
            outbox.write_alone(frame)
        except OSError as error:
            self._why_closed = str(error)
            self.abort()

    def write_frame(self, buffers: Sequence[Buffer], on_sent: Callable[[], object] | None = None) -> None:
        """Send ready bytes: whole frames, in any number of parts."""
        if self.closed or self._outbox is None:
            if on_sent is not None:
                on_sent()
            return
        self._outbox.add_parts(buffers, on_sent)
        self._touch()

    def _touch(self) -> None:
        outbox = self._outbox
        assert outbox is not None
        if not self._is_processing and not self._is_dirty:
            self._is_dirty = True
            self._endpoint.at_turn_end(self)
        if outbox.waiting_bytes > self._endpoint.limits.unsent_bytes:
            if self._is_processing:
                self._flush()  # the limit is for peers that do not read: ask the kernel before judging
            if outbox.waiting_bytes > self._endpoint.limits.unsent_bytes:
                self._pause()
                if outbox.waiting_bytes > self._endpoint.limits.unsent_cut_bytes:
                    self._cut(f"{outbox.waiting_bytes} bytes wait that it does not read")

    def turn_ended(self) -> None:
        self._is_dirty = False
        if self.closed:
            return
        self._flush()
        self._resume()

    def _flush(self) -> None:
        outbox = self._outbox
        if outbox is None or self.closed:
            return
        try:
            outbox.flush()
        except OSError as error:
            self._why_closed = str(error)
            self.abort()
            return
        if self._senders and outbox.waiting_bytes <= self._endpoint.limits.unsent_bytes // 2:
            self._wake_senders()
        if self._is_ending and not outbox.waiting_bytes and self._transport is not None:
            self._transport.close()

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent: for senders that get no answer to wait for."""
        outbox = self._outbox
        while outbox is not None and not self.closed and outbox.waiting_bytes > self._endpoint.limits.unsent_bytes:
            woken: asyncio.Future[None] = self._endpoint.loop.create_future()
            self._senders.append(woken)
            await woken

    def _wake_senders(self) -> None:
        senders, self._senders = self._senders, []
        for woken in senders:
            if not woken.done():
                woken.set_result(None)

    # --- pausing -----------------------------------------------------------------------------------------------------

    def in_flight_ended(self) -> None:
        self.in_flight -= 1
        if self._is_paused and not self._is_dirty:
            self._is_dirty = True
            self._endpoint.at_turn_end(self)

    def _pause(self) -> None:
        # Only the listening side may stop to read: if both did, each would wait for the other to take its bytes.
        if not self._is_paused and self._endpoint.is_listening and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on reading if the reasons to pause are gone; half the limit, so that it does not flicker."""
        if not self._is_paused or self._is_processing or self.closed or self._is_ending:
            return
        limits = self._endpoint.limits
        if self.in_flight > limits.in_flight // 2:
            return
        if self._outbox is not None and self._outbox.waiting_bytes > limits.unsent_bytes // 2:
            return
        self._is_paused = False
        held, self._held = self._held, b""
        if held:
            self._process(memoryview(held))
        if not self._is_paused and not self.closed and self._transport is not None:
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """For who hands on what this peer sends to somebody who takes no more: its answers wait in the sockets."""
        if self._transport is not None and not self.closed and not self._is_ending:
            self._transport.pause_reading()

    def read_on(self) -> None:
        if self._transport is not None and not self.closed and not self._is_ending and not self._is_paused:
            self._transport.resume_reading()

    def sweep(self, now: float) -> None:
        """Called now and then: ends the connection if its peer has gone quiet or does not take its answers."""
        limits = self._endpoint.limits
        outbox = self._outbox
        assert outbox is not None
        assert self._transport is not None
        taken = outbox.taken_bytes - self._transport.get_write_buffer_size()
        if taken != self._last_taken:
            self._last_taken = taken
            self.is_active = True
            self.taken_at = now
        elif not outbox.is_blocked:
            self.taken_at = now
        elif now - self.taken_at >= limits.unread_timeout_s:
            self._cut(f"it took none of its answers for {limits.unread_timeout_s:g} s")
            return
        if self.is_active:
            self.is_active = False
            self.active_at = now
        elif now - self.active_at >= limits.idle_timeout_s:
            self._why_closed = f"idle for {limits.idle_timeout_s:g} s"
            log.info("connection closed peer=%s reason=%s", self.peer_text, self._why_closed)
            self.close()

    def _cut(self, reason: str) -> None:
        log.warning("connection cut peer=%s reason=%s", self.peer_text, reason)
        self._why_closed = reason
        self.abort()

    # --- own requests ------------------------------------------------------------------------------------------------

    def start_request(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request and return the future of its answer; the opaque is ours to choose."""
        future: asyncio.Future[Command] = self._endpoint.loop.create_future()
        if self.closed or self._is_ending:
            future.set_exception(ConnectionLost(self.peer_text, f"the connection to {self.peer_text} is closed"))
            return future
        self._pending.address = self.peer_text
        self._pending.add(self._pending.number(command), future, timeout_s)
        self.send(command)
        return future

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Ask the peer and wait for its answer. Raises RequestTimeout or ConnectionLost."""
        future = self.start_request(command, timeout_s)
        try:
            return await future
        finally:
            if future.cancelled():
                self._pending.forget(command.opaque)

    def send_oneway(self, command: Command) -> None:
        """Send a request that gets no answer."""
        command.flag |= ONEWAY_FLAG
        self._pending.number(command)
        self.send(command)

    # --- the end -----------------------------------------------------------------------------------------------------

    def on_close(self, callback: Callable[[Connection], object]) -> None:
        """Call back when the connection has ended; at once if it already has."""
        if self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """End the connection once everything that waits has been sent."""
        if self.closed or self._is_ending or self._transport is None:
            return
        self._is_ending = True
        self._why_closed = self._why_closed or "closed on this side"
        self._transport.pause_reading()
        if not self._is_processing:
            self._flush()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._is_ending = True
            self._why_closed = self._why_closed or "aborted on this side"
            self._transport.abort()


def _host_and_port(name: Any) -> tuple[str, int]:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "", 0

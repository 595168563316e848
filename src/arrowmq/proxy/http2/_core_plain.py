"""The core in pure Python: frames, HPACK and states by the `h2` library; waiting data and limits here.

`h2` refuses to send beyond the peer's windows, so what is too much waits in `_waiting`: for each stream the pieces
still to send and, when it was given, the trailers that end it. It also answers SETTINGS and PING by itself, and ends a
connection whose peer breaks the protocol.
"""

from __future__ import annotations

from collections import deque

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from arrowmq.proxy.http2.events import (
    DATA,
    DRAINED,
    END,
    GOAWAY,
    HEADERS,
    PONG,
    RESET,
    ErrorCode,
    Event,
    Headers,
    Limits,
)

_NOT_FINAL = (1 << 31) - 1


class _Waiting:
    """What a stream still has to send."""

    __slots__ = ("bytes", "pieces", "trailers")

    def __init__(self) -> None:
        self.pieces: deque[memoryview] = deque()
        self.bytes = 0
        self.trailers: Headers | None = None


class Http2Core:
    def __init__(self, limits: Limits) -> None:
        self.merges_requests = False
        self.is_ended = False
        self._limits = limits
        self._waiting: dict[int, _Waiting] = {}
        #: Streams that have begun and not ended: whether the peer may still send
        self._open: dict[int, bool] = {}
        self._unsent_total = 0
        self._idle_frames = 0
        self._cancelled = 0
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False)
        )
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: limits.concurrent_streams,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: limits.frame_bytes,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(limits.connection_window_bytes - 65535)

    @property
    def open_streams(self) -> int:
        return len(self._open)

    def is_open(self, stream: int) -> bool:
        return stream in self._open and not self.is_ended

    @property
    def unsent_total(self) -> int:
        return self._unsent_total

    def unsent(self, stream: int) -> int:
        waiting = self._waiting.get(stream)
        return 0 if waiting is None else waiting.bytes

    # --- in ----------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        events: list[Event] = []
        if self.is_ended:
            return events
        try:
            received = self._h2.receive_data(bytes(data))
        except h2.exceptions.ProtocolError:
            self.is_ended = True  # h2 has put the GOAWAY into its output
            return events
        for event in received:
            if not self.is_ended:
                self._report(event, events)
        # h2 looks at a frame's length when it is whole; one that is too long must not gather here until then.
        rest = self._h2.incoming_buffer._data
        if len(rest) >= 9 and int.from_bytes(rest[:3], "big") > self._limits.frame_bytes:
            self.goaway(ErrorCode.FRAME_SIZE_ERROR)
            self.is_ended = True
        self._flush(events)
        return events

    def _report(self, event: h2.events.Event, events: list[Event]) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._open[event.stream_id] = True
            self._idle_frames = 0
            events.append((HEADERS, event.stream_id, [(bytes(name), bytes(value)) for name, value in event.headers]))
        elif isinstance(event, h2.events.DataReceived):
            if event.flow_controlled_length:
                self._take_back(event.stream_id, event.flow_controlled_length)
            if event.data:
                if event.stream_id in self._open:
                    events.append((DATA, event.stream_id, event.data))
            elif event.stream_ended is None:
                self._idle_frame()
        elif isinstance(event, h2.events.StreamEnded):
            if event.stream_id in self._open:
                self._open[event.stream_id] = False
                events.append((END, event.stream_id, None))
        elif isinstance(event, h2.events.StreamReset):
            self._reset_by_peer(event.stream_id, int(event.error_code), events)
        elif isinstance(event, h2.events.PingAckReceived):
            events.append((PONG, 0, bytes(event.ping_data)))
        elif isinstance(event, h2.events.ConnectionTerminated):
            events.append((GOAWAY, 0, int(event.error_code or 0)))
        elif isinstance(
            event,
            h2.events.RemoteSettingsChanged | h2.events.PingReceived | h2.events.PriorityUpdated,
        ) or (isinstance(event, h2.events.WindowUpdated) and event.delta < 256):
            self._idle_frame()

    def _reset_by_peer(self, stream: int, code: int, events: list[Event]) -> None:
        if stream not in self._open:
            return
        self._forget(stream)
        events.append((RESET, stream, code))
        self._cancelled += 1
        if self._cancelled > self._limits.cancelled_streams:
            self._calm_down()

    def _take_back(self, stream: int, length: int) -> None:
        """What was read may be sent again: the limits of a message are the reader's."""
        try:
            self._h2.acknowledge_received_data(length, stream)
        except h2.exceptions.StreamClosedError:
            self._h2.increment_flow_control_window(length)

    def _idle_frame(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > self._limits.idle_frames:
            self._calm_down()

    def _calm_down(self) -> None:
        self.goaway(ErrorCode.ENHANCE_YOUR_CALM)
        self.is_ended = True

    # --- out ---------------------------------------------------------------------------------------------------------

    def take(self) -> bytes:
        return bytes(self._h2.data_to_send())

    def send_headers(self, stream: int, headers: Headers, *, end: bool = False) -> None:
        if stream not in self._open or self.is_ended:
            return
        self._h2.send_headers(stream, headers, end_stream=end)
        if end:
            self._ended_by_us(stream)

    def send_data(self, stream: int, data: bytes) -> None:
        if stream not in self._open or not data or self.is_ended:
            return
        waiting = self._waiting.get(stream)
        if waiting is None:
            waiting = self._waiting[stream] = _Waiting()
        waiting.pieces.append(memoryview(data))
        waiting.bytes += len(data)
        self._unsent_total += len(data)
        self._send_waiting(stream, waiting)

    def send_trailers(self, stream: int, trailers: Headers) -> None:
        if stream not in self._open or self.is_ended:
            return
        waiting = self._waiting.get(stream)
        if waiting is not None:
            waiting.trailers = trailers
        else:
            self._h2.send_headers(stream, trailers, end_stream=True)
            self._ended_by_us(stream)

    def respond(self, stream: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        self.send_headers(stream, headers)
        self.send_data(stream, data)
        self.send_trailers(stream, trailers)

    def reset(self, stream: int, code: int) -> None:
        if stream not in self._open or self.is_ended:
            return
        self._forget(stream)
        self._h2.reset_stream(stream, code)

    def relax(self) -> None:
        self._idle_frames = 0
        self._cancelled //= 2

    def ping(self, data: bytes) -> None:
        if not self.is_ended:
            self._h2.ping(data)

    def goaway(self, code: int = 0, *, is_final: bool = True) -> None:
        if self.is_ended:
            return
        last = self._h2.highest_inbound_stream_id if is_final else _NOT_FINAL
        # Not h2's own close_connection, after which it would let nothing pass: open streams go on.
        frame = (8).to_bytes(3, "big") + b"\x07\x00" + bytes(4) + last.to_bytes(4, "big") + int(code).to_bytes(4, "big")
        self._h2._data_to_send += frame

    def _flush(self, events: list[Event]) -> None:
        for stream, waiting in list(self._waiting.items()):
            if self._send_waiting(stream, waiting) and stream in self._open:
                events.append((DRAINED, stream, None))

    def _send_waiting(self, stream: int, waiting: _Waiting) -> bool:
        """Send what the windows allow; True if nothing is left."""
        frame_bytes = self._h2.max_outbound_frame_size
        while waiting.pieces:
            window = min(self._h2.local_flow_control_window(stream), frame_bytes)
            if window <= 0:
                return False
            piece = waiting.pieces[0]
            if len(piece) > window:
                part, waiting.pieces[0] = piece[:window], piece[window:]
            else:
                part = waiting.pieces.popleft()
            self._h2.send_data(stream, bytes(part))
            waiting.bytes -= len(part)
            self._unsent_total -= len(part)
        del self._waiting[stream]
        if waiting.trailers is not None:
            self._h2.send_headers(stream, waiting.trailers, end_stream=True)
            self._ended_by_us(stream)
        return True

    def _ended_by_us(self, stream: int) -> None:
        peer_may_send = self._open.pop(stream)
        if self._cancelled:
            self._cancelled -= 1
        if peer_may_send:  # it need not go on with what nobody reads
            self._h2.reset_stream(stream, ErrorCode.NO_ERROR)

    def _forget(self, stream: int) -> None:
        self._open.pop(stream, None)
        waiting = self._waiting.pop(stream, None)
        if waiting is not None:
            self._unsent_total -= waiting.bytes

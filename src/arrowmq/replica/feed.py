"""One slave at its master: its socket, its pace.

Bytes of the log go from the file to the socket by `sendfile`, so no byte of them passes through this process (by TLS
they do, see `encrypted`), and what a slow slave has not taken yet waits in files and nowhere else. What is no longer in
memory is read by a thread first, so that nobody else waits for the disk. A feed sends so much in one event loop
iteration and then lets others have theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.remoting.address import format_address
from arrowmq.replica.encrypted import Line, send_file
from arrowmq.replica.hello import Greeting
from arrowmq.replica.protocol import LARGEST_PACKET, LogBounds, MasterSession, Packet, ProtocolError

if TYPE_CHECKING:
    from arrowmq.clock import Clock
    from arrowmq.store import MessageStore

log = logging.getLogger(__name__)

BYTES_AN_ITERATION = 1 << 20
READ_AHEAD_BYTES = 8 << 20
_REPORTS_BYTES = 4096


class Rate:
    """Bytes a second, over the last whole one."""

    def __init__(self) -> None:
        self.per_second = 0
        self._counted = 0

    def second(self, total: int) -> None:
        self.per_second, self._counted = total - self._counted, total


class Feed:
    """`why_refused(feed)` is asked after its greeting; `on_moved(feed)` when it acknowledges more;
    `on_closed(feed, why)` once at its end."""

    def __init__(
        self,
        connection: Line,
        store: MessageStore,
        clock: Clock,
        *,
        batch_bytes: int,
        on_moved: Callable[[Feed], object],
        on_closed: Callable[[Feed, str], object],
        session: MasterSession | None = None,
        greeting: Greeting,
        why_refused: Callable[[Feed], str | None],
    ) -> None:
        self._socket = connection
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._batch_bytes = min(batch_bytes, LARGEST_PACKET)
        self._on_moved = on_moved
        self._on_closed = on_closed
        self.session = session or MasterSession()
        self.greeting = greeting
        self._why_refused = why_refused
        host, port = connection.getpeername()[:2]
        self.host: str = host
        self.peer = format_address(host, port)
        self.is_member = False  # whether what it acknowledges counts
        self.is_closed = False
        self.connected_ms = clock.now_ms()
        self.received_s = self.sent_s = clock.monotonic()
        self.sent_bytes = 0
        self.rate = Rate()
        self.allowance: int | None = None  # bytes that flow control still lets through in this second; None: any
        # The last moment of which it has everything: under load it is always a little behind, and never level. One
        # moment at a time is remembered with the end that the log had then, until that is acknowledged.
        self.caught_up_ms = clock.now_ms()
        self.caught_up_s = 0.0  # the same of the monotonic clock; 0 before it had anything
        self._noted_end, self._noted_ms, self._noted_s = int(store.appended), self.caught_up_ms, clock.monotonic()
        self._header = b""
        self._left: Packet | None = None  # of the packet under way
        self._file: tuple[int, int] | None = None  # the start of a segment, and its descriptor
        self._is_writer_set = self._is_scheduled = False
        self._reading: asyncio.Future[None] | None = None
        self._warm_to = 0
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(connection.fileno(), self._readable)

    # What the slave says

    @property
    def acknowledged(self) -> int:
        return self.session.acknowledged

    @property
    def lag(self) -> int:
        return max(0, int(self._store.appended) - max(0, self.acknowledged))

    def bounds(self) -> LogBounds:
        return LogBounds(self._store.min_physical_offset, int(self._store.appended), self._store.commit_log.file_bytes)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_REPORTS_BYTES)
        except BlockingIOError:
            return
        except OSError as problem:
            self.close(f"the connection broke: {problem.strerror}")
            return
        if not data:
            self.close("it hung up")
            return
        self.received_s = self._clock.monotonic()
        if not self.greeting.is_over:
            rest = self.greeting.take(data)
            if rest is None:
                return
            data = rest
            refusal = self._why_refused(self)
            if refusal is not None:
                self.close(refusal)
                return
            if not data:
                return
        was_begun = self.session.is_begun
        try:
            has_moved = self.session.take(data, self.bounds())
        except ProtocolError as fault:
            self.close(str(fault))
            return
        self._header += self.session.replies()
        if self.session.is_begun and not was_begun:
            log.info("slave begins peer=%s offset=%d asked=%d", self.peer, self.session.next_offset, self.acknowledged)
        self._note_progress()
        if has_moved or not was_begun:
            self._on_moved(self)
        if self._header or not was_begun:
            # An acknowledgement alone is no reason to send: what nobody waits for gathers until the next look, or each
            # would bring a packet of a few records, and that the next acknowledgement.
            self.pump()
        if self.session.is_begun and not was_begun and self.lag == 0:
            self.heartbeat()  # a slave that lacks nothing would not hear of a new epoch for seconds

    def _note_progress(self) -> None:
        if self.acknowledged >= self._noted_end:
            self.caught_up_ms, self.caught_up_s = self._noted_ms, self._noted_s
            self._noted_end = int(self._store.appended)
            self._noted_ms, self._noted_s = self._clock.now_ms(), self.received_s
            if self.lag == 0:
                self.caught_up_ms, self.caught_up_s = self._noted_ms, self._noted_s

    # What it is sent

    def pump(self) -> None:
        """Send what there is, as far as the socket takes it and the others have their turn too."""
        is_silent = not self.session.is_begun and not self._header
        if self.is_closed or self._is_writer_set or self._reading is not None or is_silent:
            return
        try:
            if not self._send(BYTES_AN_ITERATION):
                self._is_writer_set = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
        except OSError as problem:
            self.close(f"the connection broke: {problem.strerror}")

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._is_writer_set = False
        self.pump()

    def _again(self) -> None:
        self._is_scheduled = False
        self.pump()

    def _send(self, budget: int) -> bool:
        """False if the socket is full."""
        while True:
            if not self._push_header():
                return False
            if self._left is not None:
                sent = self._push_body(self._left)
                if sent is None:
                    return False
                budget -= sent
                if self.is_closed:
                    return True
                continue
            if budget <= 0:
                if not self._is_scheduled:
                    self._is_scheduled = True
                    self._loop.call_soon(self._again)
                return True
            if not self._next_packet():
                return True

    def _push_header(self) -> bool:
        while self._header:
            flags = socket.MSG_MORE if self._left is not None else 0
            try:
                sent = self._socket.send(self._header, flags)
            except BlockingIOError:
                return False
            self._header = self._header[sent:]
            self.sent_s = self._clock.monotonic()
        return True

    def _push_body(self, left: Packet) -> int | None:
        descriptor, start = self._descriptor(left.offset)
        if descriptor < 0:
            self.close(f"what it needs next, at {left.offset}, was deleted: it was too far behind")
            return 0
        try:
            sent = send_file(self._socket, descriptor, left.offset - start, left.size)
        except BlockingIOError:
            return None
        if sent == 0:
            self.close(f"the log ends at {left.offset}, before what was announced")
            return 0
        self.sent_bytes += sent
        self.sent_s = self._clock.monotonic()
        if self.allowance is not None:
            self.allowance -= sent
        self._left = Packet(left.offset + sent, left.size - sent) if sent < left.size else None
        return sent

    def _next_packet(self) -> bool:
        """Prepare a packet; False if there is none now."""
        if not self.session.is_begun:
            return False
        bounds = self.bounds()
        most = self._batch_bytes if self.allowance is None else min(self._batch_bytes, self.allowance)
        if self.session.next_offset < bounds.begin:
            self.close(f"what it needs next, at {self.session.next_offset}, was deleted: it was too far behind")
            return False
        packet = self.session.packet(bounds, most)
        if packet is None:
            return False
        if packet.offset + packet.size > self._warm_to and self._store.is_cold(packet.offset, packet.size):
            self._warm(packet.offset)
            return False
        self._header = self.session.header(packet)
        self._left = packet
        return True

    def _warm(self, offset: int) -> None:
        """Have a thread read what comes next, then go on."""
        descriptor, start = self._descriptor(offset)
        if descriptor < 0:
            return
        duplicate = os.dup(descriptor)

        def read() -> None:
            try:
                at, stop = offset - start, offset - start + READ_AHEAD_BYTES
                while at < stop and (data := os.pread(duplicate, min(1 << 20, stop - at), at)):
                    at += len(data)
            finally:
                os.close(duplicate)

        def done(reading: asyncio.Future[None]) -> None:
            self._reading = None
            if reading.cancelled() or reading.exception() is None:
                self._warm_to = offset + READ_AHEAD_BYTES
            self.pump()

        self._reading = self._loop.run_in_executor(None, read)
        self._reading.add_done_callback(done)

    def _descriptor(self, offset: int) -> tuple[int, int]:
        """The file with this offset, kept open while it is sent; -1 if it is gone."""
        file_bytes = self._store.commit_log.file_bytes
        if self._file is not None and self._file[0] <= offset < self._file[0] + file_bytes:
            return self._file[1], self._file[0]
        self._close_file()
        segment = self._store.commit_log.segment_at(offset)
        if segment is None:
            return -1, 0
        try:
            self._file = segment.start, os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1, 0
        return self._file[1], segment.start

    def heartbeat(self) -> None:
        """Say that this master is there, unless something is under way."""
        if self.session.is_begun and not self._header and self._left is None and not self.is_closed:
            self._header = self.session.heartbeat()
            self.pump()

    # The end

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None

    def close(self, why: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        if self._is_writer_set:
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._close_file()
        self._on_closed(self, why)

"""A blocking connection to a NameServer or broker, for Spark's worker processes.

Executors have no event loop and need none: a task does one thing at a time. Requests may be sent ahead (`call_many`,
`send` and `receive`), which is where the speed comes from; answers are matched by opaque, and requests of the broker
to us (a check of a transaction) go to `on_request`. `exchange` does the same for long runs of frames that are written
and read natively.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import client_context
from arrowmq.spark.sink.exchange import Run
from arrowmq.wire.frames import MAX_FRAME_BYTES, Command, decode_frame, encode_frame

_LENGTH = struct.Struct(">I")
BUFFER_BYTES = 256 * 1024  # many small answers come with one read; large ones are read into place
REFILL = 64  # requests that leave in one write
# Requests of a run that are under way: their answers fit into the receive buffer, however late they are read.
RUN_WINDOW = 1024


class LinkLost(ConnectionError):
    """The other side cannot be reached, or went away, or did not answer in time."""


@dataclass(frozen=True)
class Credentials:
    """What signs requests where the cluster asks for it."""

    access_key: str
    secret_key: str

    def sign(self, command: Command) -> None:
        command.ext["AccessKey"] = self.access_key
        values = "".join(command.ext[name] for name in sorted(command.ext) if name != "Signature")
        mac = hmac.new(self.secret_key.encode(), values.encode() + command.body, hashlib.sha1)
        command.ext["Signature"] = base64.b64encode(mac.digest()).decode()


@dataclass(frozen=True)
class LinkTls:
    """Connections are encrypted; the files are those of the machine that connects. Without `ca` whoever answers is
    believed."""

    ca: str = ""
    certificate: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises `ConfigError`."""
        settings = {"tls.client.certPath": self.certificate, "tls.client.keyPath": self.key}
        if self.ca:
            settings |= {"tls.client.authServer": "true", "tls.client.trustCertPath": self.ca}
        return client_context(settings)


class Link:
    """One connection. Not for use by several threads."""

    def __init__(
        self, address: str, timeout_s: float, credentials: Credentials | None = None, tls: LinkTls | None = None
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.on_request: Callable[[Command], None] | None = None
        self._credentials = credentials
        # Whether the other side takes requests in the order they come, as far as is known: ArrowMQ's broker does,
        # Apache's hands them to several threads.
        self.keeps_order = False
        self._early: dict[int, Command] = {}
        host, _, port = address.rpartition(":")
        try:
            context = None if tls is None else tls.context()
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host.strip("[]"))
        except (OSError, ValueError, ConfigError) as wrong:
            raise LinkLost(f"{address} cannot be reached: {wrong}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        # What was read and not yet used: bytes `_first` to `_last` of the buffer.
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._first = self._last = 0

    def close(self) -> None:
        self._socket.close()

    def call(self, command: Command) -> Command:
        self.send([command])
        return self.receive(command.opaque)

    def call_many(self, commands: Iterable[Command], *, window: int = 256) -> Iterator[Command]:
        """The answers of many requests in their order, of which up to `window` are under way at a time.

        Requests leave many at a time: one write and, on the other side, one wake-up for all of them."""
        waiting: deque[int] = deque()
        source = iter(commands)
        while True:
            if len(waiting) <= window - REFILL:
                fresh = list(itertools.islice(source, REFILL))
                if fresh:
                    self.send(fresh)
                    waiting.extend(command.opaque for command in fresh)
                    continue
            if not waiting:
                return
            yield self.receive(waiting.popleft())

    def send(self, commands: Iterable[Command]) -> None:
        if self._credentials is not None:
            commands = list(commands)
            for command in commands:
                self._credentials.sign(command)
        data = b"".join(map(encode_frame, commands))
        try:
            self._socket.sendall(data)
        except OSError as wrong:
            raise LinkLost(f"the connection to {self.address} broke while sending: {wrong}") from None

    def exchange(self, pieces: Iterable[tuple[bytes, int]], run: Run) -> None:
        """Sends the frames of a run, piece by piece with the number of requests in it, and takes in their answers.

        When this returns, each request has its answer in `run`; when it raises `LinkLost`, some may not."""
        sent = 0
        for data, count in pieces:
            while sent > run.answered and sent + count - run.answered > RUN_WINDOW:
                self.take(run)
            self._push(data, run)
            sent += count
        while run.answered < sent:
            self.take(run)

    def _push(self, data: bytes, run: Run) -> None:
        """Writes all of it, and reads meanwhile: whoever does not read may find the other side not reading either."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN | select.POLLOUT)
        left = memoryview(data)
        while left:
            ready = waiting.poll(self.timeout_s * 1000)
            if not ready:
                raise LinkLost(f"{self.address} takes no more requests for {self.timeout_s:g} s")
            if ready[0][1] & select.POLLOUT:
                try:
                    left = left[self._socket.send(left) :]
                except OSError as wrong:
                    raise LinkLost(f"the connection to {self.address} broke while sending: {wrong}") from None
            else:
                self.take(run)

    def take(self, run: Run) -> None:
        """Takes in answers to a run, at least one frame; waits for it if need be."""
        if self._first == self._last:
            self._fill(1)
        taken = run.read(self._view[self._first : self._last])
        self._first += taken
        if taken:
            return
        # The rest of a frame is still to come, or it is none of the plain ones.
        command = self._read()
        if not command.is_response:
            self._handle(command)
        elif not run.give(command):
            self._early[command.opaque] = command

    def receive(self, opaque: int) -> Command:
        """The answer to the request with that opaque; others that come first are kept for their turn."""
        early = self._early.pop(opaque, None)
        if early is not None:
            return early
        while True:
            command = self._read()
            if not command.is_response:
                self._handle(command)
            elif command.opaque == opaque:
                return command
            else:
                self._early[command.opaque] = command

    def drain(self) -> None:
        """Handles requests of the other side that have arrived, without waiting for more."""
        while self._last > self._first or self._has_arrived():
            command = self._read()
            if command.is_response:
                self._early[command.opaque] = command
            else:
                self._handle(command)

    def _has_arrived(self) -> bool:
        self._socket.settimeout(0)
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):
                raise LinkLost(f"{self.address} closed the connection")
        except BlockingIOError:
            return False
        except OSError as wrong:
            if isinstance(wrong, LinkLost):
                raise
            raise LinkLost(f"the connection to {self.address} broke: {wrong}") from None
        finally:
            self._socket.settimeout(self.timeout_s)
        return True

    def _handle(self, command: Command) -> None:
        if self.on_request is not None:
            self.on_request(command)

    def _read(self) -> Command:
        self._fill(4)
        (length,) = _LENGTH.unpack_from(self._buffer, self._first)
        if length > MAX_FRAME_BYTES * 16:
            raise LinkLost(f"{self.address} announced a frame of {length} bytes: is it a RocketMQ server?")
        self._first += 4
        if length <= BUFFER_BYTES:
            self._fill(length)
            frame = bytes(self._view[self._first : self._first + length])
            self._first += length
            return decode_frame(frame)
        large = bytearray(length)
        view = memoryview(large)
        done = self._last - self._first
        view[:done] = self._view[self._first : self._last]
        self._first = self._last = 0
        while done < length:
            done += self._receive_into(view[done:])
        return decode_frame(large)

    def _fill(self, count: int) -> None:
        """Reads until the buffer holds that many bytes more than were used."""
        if self._first + count > BUFFER_BYTES or self._first == self._last:
            left = self._last - self._first
            self._view[:left] = bytes(self._view[self._first : self._last])
            self._first, self._last = 0, left
        while self._last - self._first < count:
            self._last += self._receive_into(self._view[self._last :])

    def _receive_into(self, room: memoryview) -> int:
        try:
            got = self._socket.recv_into(room)
        except TimeoutError:
            raise LinkLost(f"{self.address} did not answer within {self.timeout_s:g} s") from None
        except OSError as wrong:
            raise LinkLost(f"the connection to {self.address} broke: {wrong}") from None
        if not got:
            raise LinkLost(f"{self.address} closed the connection")
        return got

"""A blocking connection to a NameServer or broker, for Spark's worker processes.

Executors have no event loop and need none: a task does one thing at a time. Requests may be sent ahead (`call_many`,
`send` and `receive`), which is where the speed comes from; answers are matched by opaque, and requests of the broker
to us (a check of a transaction) go to `on_request`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from arrowmq.wire.frame import MAX_FRAME_BYTES, Command, decode_frame, encode_frame

_LENGTH = struct.Struct(">I")


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


class Link:
    """One connection. Not for use by several threads."""

    def __init__(self, address: str, timeout_s: float, credentials: Credentials | None = None) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.on_request: Callable[[Command], None] | None = None
        self._credentials = credentials
        self._early: dict[int, Command] = {}
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        except (OSError, ValueError) as wrong:
            raise LinkLost(f"{address} cannot be reached: {wrong}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def close(self) -> None:
        self._socket.close()

    def call(self, command: Command) -> Command:
        self.send([command])
        return self.receive(command.opaque)

    def call_many(self, commands: Iterable[Command], *, window: int = 256) -> list[Command]:
        """The answers of many requests, of which `window` are under way at a time."""
        commands = list(commands)
        answers = []
        for first in range(0, min(window, len(commands)), 64):
            self.send(commands[first : min(first + 64, window)])
        for number, command in enumerate(commands):
            answers.append(self.receive(command.opaque))
            if number + window < len(commands):
                self.send([commands[number + window]])
        return answers

    def send(self, commands: Iterable[Command]) -> None:
        if self._credentials is not None:
            commands = list(commands)
            for command in commands:
                self._credentials.sign(command)
        data = b"".join(map(encode_frame, commands))
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as wrong:
            raise LinkLost(f"the connection to {self.address} broke while sending: {wrong}") from None

    def receive(self, opaque: int) -> Command:
        """The answer to the request with that opaque; others that come first are kept for their turn."""
        early = self._early.pop(opaque, None)
        if early is not None:
            return early
        deadline = time.monotonic() + self.timeout_s
        while True:
            command = self._read(deadline)
            if not command.is_response:
                self._handle(command)
            elif command.opaque == opaque:
                return command
            else:
                self._early[command.opaque] = command

    def drain(self) -> None:
        """Handles requests of the other side that have arrived, without waiting for more."""
        while True:
            self._socket.settimeout(0)
            try:
                if not self._socket.recv(1, socket.MSG_PEEK):
                    raise LinkLost(f"{self.address} closed the connection")
            except BlockingIOError:
                return
            except OSError as wrong:
                raise LinkLost(f"the connection to {self.address} broke: {wrong}") from None
            command = self._read(time.monotonic() + self.timeout_s)
            if command.is_response:
                self._early[command.opaque] = command
            else:
                self._handle(command)

    def _handle(self, command: Command) -> None:
        if self.on_request is not None:
            self.on_request(command)

    def _read(self, deadline: float) -> Command:
        (length,) = _LENGTH.unpack(self._read_exactly(4, deadline))
        if length > MAX_FRAME_BYTES * 16:
            raise LinkLost(f"{self.address} announced a frame of {length} bytes: is it a RocketMQ server?")
        return decode_frame(self._read_exactly(length, deadline))

    def _read_exactly(self, count: int, deadline: float) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        done = 0
        try:
            while done < count:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                got = self._socket.recv_into(view[done:])
                if not got:
                    raise LinkLost(f"{self.address} closed the connection")
                done += got
        except TimeoutError:
            raise LinkLost(f"{self.address} did not answer within {self.timeout_s:g} s") from None
        except OSError as wrong:
            if isinstance(wrong, LinkLost):
                raise
            raise LinkLost(f"the connection to {self.address} broke: {wrong}") from None
        return data

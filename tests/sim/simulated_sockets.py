"""Sockets of the simulated network, for code that takes bytes from sockets itself (replication).

Stands where the module `socket` does. A descriptor is a number that only the simulated loop knows: `add_reader` and
`sendfile` find the socket by it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket as real
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from simulated_loop import Process, SimulatedLoop, current_process

FIRST_DESCRIPTOR = 1 << 20


class SimulatedSocket(asyncio.Protocol):
    def __init__(self, sockets: Sockets, process: Process) -> None:
        self._sockets = sockets
        self.process = process
        self._descriptor = sockets.register(self)
        self.pipe: Any = None
        self._listener: Any = None
        self._accepted: list[SimulatedSocket] = []
        self._inbox = bytearray()
        self._error: OSError | None = None
        self._is_over = False
        self.reader: Callable[[], object] | None = None

    # As the network's protocol

    def connection_made(self, transport: Any) -> None:
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        self.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._error = error if isinstance(error, OSError) else None
        self._is_over = True
        self.wake()

    @property
    def is_readable(self) -> bool:
        return bool(self._inbox or self._accepted or self._is_over)

    def wake(self) -> None:
        if self.reader is not None and self.is_readable:
            self._sockets.loop.call_soon(self._run_reader)

    def _run_reader(self) -> None:
        if self.reader is not None and self.is_readable:
            self.reader()
            self.wake()

    # As a socket

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        if self._listener is not None:
            return tuple(self._listener.name)  # type: ignore[return-value]
        return self.pipe.get_extra_info("sockname")  # type: ignore[no-any-return]

    def getpeername(self) -> tuple[str, int]:
        return self.pipe.get_extra_info("peername")  # type: ignore[no-any-return]

    def listen_on(self, port: int) -> None:
        network = self._sockets.loop.network
        self._listener = network.listen(self.process, self._accept_one, port)
        network.listeners[self._listener.name] = self._listener

    def _accept_one(self) -> SimulatedSocket:
        one = SimulatedSocket(self._sockets, self.process)
        self._accepted.append(one)
        self._sockets.loop.call_soon(self.wake)
        return one

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self._accepted:
            raise BlockingIOError
        one = self._accepted.pop(0)
        return one, one.getpeername()

    def recv(self, most: int) -> bytes:
        if self._inbox:
            data = bytes(self._inbox[:most])
            del self._inbox[:most]
            return data
        if self._error is not None:
            raise self._error
        if self._is_over:
            return b""
        raise BlockingIOError

    def recv_into(self, buffer: Any) -> int:
        return self.recvmsg_into([buffer])[0]

    def recvmsg_into(self, buffers: Sequence[Any]) -> tuple[int, list[Any], int, None]:
        data = self.recv(sum(len(buffer) for buffer in buffers))
        taken = 0
        for buffer in buffers:
            part = data[taken : taken + len(buffer)]
            buffer[: len(part)] = part
            taken += len(part)
        return taken, [], 0, None

    def send(self, data: bytes, flags: int = 0) -> int:
        if self._error is not None:
            raise self._error
        if self._is_over:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self.pipe.write(bytes(data))
        return len(data)

    def close(self) -> None:
        self.reader = None
        self._sockets.forget(self)
        if self._listener is not None:
            self._listener.close()
        if self.pipe is not None and not self._is_over:
            self.pipe.abort()


class Sockets:
    """What replication finds as its module `socket`."""

    SOCK_STREAM, IPPROTO_TCP, TCP_NODELAY, MSG_MORE = (
        real.SOCK_STREAM,
        real.IPPROTO_TCP,
        real.TCP_NODELAY,
        real.MSG_MORE,
    )

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self._numbers = count(FIRST_DESCRIPTOR)
        self._by_number: dict[int, SimulatedSocket] = {}

    def register(self, one: SimulatedSocket) -> int:
        number = next(self._numbers)
        self._by_number[number] = one
        return number

    def forget(self, one: SimulatedSocket) -> None:
        self._by_number.pop(one.fileno(), None)

    def find(self, descriptor: int) -> SimulatedSocket:
        return self._by_number[descriptor]

    def socket(self, *_: Any) -> SimulatedSocket:
        return SimulatedSocket(self, current_process())

    def create_server(self, address: tuple[str, int], **_: Any) -> SimulatedSocket:
        one = SimulatedSocket(self, current_process())
        one.listen_on(address[1])
        return one

    def sendfile(self, out: int, file: int, offset: int, size: int) -> int:
        if out < FIRST_DESCRIPTOR:
            return os_sendfile(out, file, offset, size)
        return self.find(out).send(os.pread(file, size, offset))


os_sendfile = os.sendfile

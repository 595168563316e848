"""A network between the hosts of a simulation: connections with delay, cut in pieces, held up, lost.

Bytes of one direction of a connection arrive in order; connections overtake each other. While two hosts are parted,
what is sent waits, as TCP would send it again, and connecting goes nowhere. A process that is killed resets its
connections; a host that loses power says nothing, and its peers hear of it when they send to the host that came back.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import hashlib
import os
from collections.abc import Callable
from typing import Any

from simulated_loop import PROCESS, Process, SimulatedLoop

DELAY_S = (0.0001, 0.004)
FIRST_PORT = 40_000
LISTEN_DELAY_S = (0.0, 0.02)
APART_S = 1e-6  # timers of one moment fire in any order
PIECE_SHARE = 0.1  # of writes that arrive in two pieces


class _Socket:
    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name


class Listener:
    """What `create_server` returns."""

    def __init__(self, network: Network, process: Process, factory: Callable[[], Any], port: int) -> None:
        self.network, self.process, self.factory = network, process, factory
        self.name = (process.host, port)
        self.context = contextvars.copy_context()
        self.sockets = [_Socket(self.name)]

    async def start_serving(self) -> None:
        """Clients may be there sooner than the process goes on."""
        self.network.listeners[self.name] = self
        await asyncio.sleep(self.network.loop.chance.uniform(*LISTEN_DELAY_S))

    def close(self) -> None:
        if self.network.listeners.get(self.name) is self:
            del self.network.listeners[self.name]

    async def wait_closed(self) -> None:
        pass


class Pipe(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, process: Process, name: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"sockname": name, "peername": peer})
        self.network, self.process, self.name = network, process, name
        self.context = contextvars.copy_context()
        self.protocol: Any = None
        self.other: Pipe | None = None
        self._arrived: list[bytes] = []
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self.sent_until = 0.0  # when the last that was sent here arrives there

    # What a protocol calls

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self.network.send(self, bytes(data))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._arrived and not self._is_lost:
            self.network.loop.call_soon(self._deliver, context=self.context)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.network.send(self, None)
            self.network.loop.call_soon(self.lost, None, context=self.context)

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.network.send(self, None)
        self.network.loop.call_soon(self.lost, None, context=self.context)

    # What the network calls

    def arrive(self, data: bytes) -> None:
        if not self._is_lost:
            self._arrived.append(data)
            self._deliver()

    def _deliver(self) -> None:
        while self._arrived and self._is_reading and not self._is_lost and not self._is_closing:
            data = self._arrived.pop(0)
            if not isinstance(self.protocol, asyncio.BufferedProtocol):
                self.protocol.data_received(data)
                continue
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self._arrived.insert(0, data[count:])
            self.protocol.buffer_updated(count)

    def lost(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self.network.pipes.pop(self, None)
            self.protocol.connection_lost(error)


class Network:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.pipes: dict[Pipe, None] = {}
        self.parted: set[frozenset[str]] = set()
        self.is_down: set[str] = set()  # hosts without power
        self._held: list[tuple[Pipe, bytes | None]] = []
        self._next_port = FIRST_PORT
        self.digest = hashlib.sha256()  # of all that was sent: two runs of one seed have the same
        self.sent = 0

    def _delay_s(self) -> float:
        return self.loop.chance.uniform(*DELAY_S)

    def _port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listen(self, process: Process, factory: Callable[[], Any], port: int) -> Listener:
        listener = Listener(self, process, factory, port or self._port())
        if listener.name in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return listener

    async def connect(self, process: Process, factory: Callable[[], Any], host: str, port: int) -> Any:
        while True:
            await asyncio.sleep(2 * self._delay_s())
            if host not in self.is_down and not self.is_parted(process.host, host):
                break
            await asyncio.sleep(1.0)  # the hello is sent again
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        name = (process.host, self._port())
        near = Pipe(self, process, name, listener.name)
        near.protocol = factory()
        far = listener.context.copy().run(Pipe, self, listener.process, listener.name, name)
        near.other, far.other = far, near
        self.pipes[near] = self.pipes[far] = None
        self.loop.call_soon(self._accept, listener, far, context=far.context)
        near.protocol.connection_made(near)
        return near, near.protocol

    def _accept(self, listener: Listener, pipe: Pipe) -> None:
        pipe.protocol = listener.factory()
        pipe.protocol.connection_made(pipe)

    def send(self, pipe: Pipe, data: bytes | None) -> None:
        """Bytes, or None for the end of the connection."""
        other = pipe.other
        assert other is not None
        self._note(pipe, other, data)
        if pipe.process.host in self.is_down or other.process.host in self.is_down:
            return
        if self.is_parted(pipe.process.host, other.process.host):
            self._held.append((pipe, data))
            return
        self._launch(pipe, other, data)

    def _launch(self, pipe: Pipe, other: Pipe, data: bytes | None) -> None:
        if data is not None and len(data) > 1 and self.loop.chance.random() < PIECE_SHARE:
            place = self.loop.chance.randrange(1, len(data))
            self._launch_piece(pipe, other, data[:place])
            data = data[place:]
        self._launch_piece(pipe, other, data)

    def _launch_piece(self, pipe: Pipe, other: Pipe, data: bytes | None) -> None:
        if not other.process.is_alive or other not in self.pipes:  # its host answers for it
            self.loop.call_later(
                2 * self._delay_s(), pipe.lost, ConnectionResetError("reset by peer"), context=pipe.context
            )
            return
        pipe.sent_until = max(pipe.sent_until + APART_S, self.loop.time() + self._delay_s())
        if data is None:
            self.loop.call_at(pipe.sent_until, other.lost, None, context=other.context)
        else:
            self.loop.call_at(pipe.sent_until, other.arrive, data, context=other.context)

    def _note(self, pipe: Pipe, other: Pipe, data: bytes | None) -> None:
        self.sent += 1
        self.digest.update(f"{self.loop.time():.9f} {pipe.name} {other.name} ".encode())
        self.digest.update(b"end" if data is None else data)

    # What goes wrong

    def is_parted(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.parted

    def part(self, one: str, other: str) -> None:
        self.parted.add(frozenset((one, other)))

    def heal(self) -> None:
        self.parted.clear()
        held, self._held = self._held, []
        for pipe, data in held:
            assert pipe.other is not None
            if (
                pipe.process.is_alive
            ):  # also what was sent before the end: the system sends it again for a closed socket
                self._launch(pipe, pipe.other, data)

    def ended(self, process: Process, *, silently: bool) -> None:
        """A process was killed, or, silently, its host lost power."""
        for name in [name for name, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[name]
        for pipe in [pipe for pipe in self.pipes if pipe.process is process]:
            del self.pipes[pipe]
            other = pipe.other
            if not silently and other is not None and other in self.pipes:
                reset = ConnectionResetError("reset by peer")
                if self.is_parted(process.host, other.process.host):
                    continue  # it hears of it when it sends again
                self.loop.call_later(self._delay_s(), other.lost, reset, context=other.context)


def run_in(process: Process, work: Callable[..., Any], *args: Any) -> Any:
    """Call something as this process: what it starts belongs to it."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return context.run(work, *args)

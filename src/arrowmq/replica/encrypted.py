"""The HA port by TLS, between brokers of ours: who speaks it, and a socket that does.

    tls.ha.mode    disabled (the default): plain, as Apache's; a TLS hello ends the connection
                   permissive: a master serves both, told apart by the first byte, and a slave uses TLS where its master
                   says that it can
                   enforcing: TLS or nothing, on both sides. An Apache slave cannot copy from such a master, nor such a
                   slave from an Apache master

Certificates are those of the broker's other connections (`tls.server.*` of a master, `tls.client.*` of a slave), so
they are renewed with them; whether the other side's is checked is said there too. Inside, the bytes are the same: first
the hello with its ticket, then Apache's protocol.

No report begins with the byte of a TLS hello: it would be an offset beyond any disk. A plain connection keeps its own
socket, so what is sent by `sendfile` does not pass here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arrowmq.config import ConfigError
from arrowmq.remoting.greeting import TLS_HANDSHAKE
from arrowmq.remoting.tls.settings import (
    HANDSHAKE_TIMEOUT_S,
    MODES,
    ClientTls,
    ServerTls,
    client_context,
    tls_settings,
)

MOST_ARRIVING = 128
_CHUNK_BYTES = 1 << 16  # encrypted at once: four records
_RECORD_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class HaTls:
    """Whether and with what this broker's HA connections are encrypted; the contexts may be others for the next."""

    mode: str
    server: ServerTls
    client: ClientTls

    @property
    def is_enforced(self) -> bool:
        return self.mode == "enforcing"


def ha_tls(properties: Mapping[str, str], server: ServerTls | None, client: ClientTls | None) -> HaTls | None:
    """None where HA connections are plain. Raises `ConfigError`."""
    reader = ha_tls_of_a_reader(properties, client)
    if reader is None:
        return None
    if server is None or server.context is None:
        # Any broker of a set may be its master one day.
        raise ConfigError(
            f"tls.ha.mode={reader.mode} needs tls.server.certPath and tls.server.keyPath, "
            "and a tls.server.mode other than disabled"
        )
    return HaTls(reader.mode, server, reader.client)


def ha_tls_of_a_reader(properties: Mapping[str, str], client: ClientTls | None) -> HaTls | None:
    """The same for one that never is a master, so needs no certificate of a server."""
    settings = tls_settings(properties)
    mode = settings.get("tls.ha.mode", "disabled").lower()
    if mode not in MODES:
        raise ConfigError(f"tls.ha.mode={mode}: expected {', '.join(MODES)}")
    if mode == "disabled":
        return None
    return HaTls(mode, ServerTls(), client or ClientTls(client_context(settings)))


class TlsSocket:
    """Of a socket what replication uses, encrypted. Where it would block, it raises BlockingIOError as a plain one."""

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line = line
        self._unsent: bytes | memoryview | None = None  # OpenSSL wants the same bytes again that it did not get rid of

    def fileno(self) -> int:
        return self._line.fileno()

    def getpeername(self) -> tuple[str, int]:
        host, port = self._line.getpeername()[:2]
        return host, port

    def setblocking(self, flag: bool) -> None:
        self._line.setblocking(flag)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._line.setsockopt(level, name, value)

    def close(self) -> None:
        self._line.close()

    def version(self) -> str | None:
        return self._line.version()

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        if self._unsent is not None:
            data = self._unsent
        try:
            sent = self._line.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._unsent = data
            raise BlockingIOError from None
        self._unsent = None
        return sent

    def send_file(self, descriptor: int, offset: int, size: int) -> int:
        """As `os.sendfile`, though the bytes pass through this process."""
        if self._unsent is not None:
            return self.send(self._unsent)
        data = os.pread(descriptor, min(size, _CHUNK_BYTES), offset)
        return self.send(data) if data else 0

    def recv(self, _size: int) -> bytes:
        """A whole record: of one that was read in part nobody would hear that more of it is there."""
        try:
            return self._line.recv(_RECORD_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: memoryview | bytearray) -> int:
        try:
            return self._line.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recvmsg_into(self, buffers: list[memoryview | bytearray]) -> tuple[int]:
        """Into the first, and into the next what the same record has left when it is full."""
        count = 0
        for buffer in buffers:
            if count and not self._line.pending():
                break
            some = self.recv_into(buffer)
            count += some
            if some < len(buffer):
                break
        return (count,)

    def pending(self) -> int:
        """Bytes that are received already: the loop does not tell of them."""
        return self._line.pending()


Line = socket.socket | TlsSocket
"""A connection between a master and its slave."""


def send_file(line: Line, descriptor: int, offset: int, size: int) -> int:
    if isinstance(line, TlsSocket):
        return line.send_file(descriptor, offset, size)
    return os.sendfile(line.fileno(), descriptor, offset, size)


def has_more(line: Line) -> bool:
    """Whether there are bytes to take although the loop will not say so."""
    return isinstance(line, TlsSocket) and line.pending() > 0


async def send_all(line: Line, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    if not isinstance(line, TlsSocket):
        await loop.sock_sendall(line, data)
        return
    while data:
        try:
            data = data[line.send(data) :]
        except BlockingIOError:
            await _ready(line.fileno(), to_write=True)


async def receive(line: Line, size: int) -> bytes:
    """At most so many bytes; none if the other side hung up."""
    loop = asyncio.get_running_loop()
    if not isinstance(line, TlsSocket):
        return await loop.sock_recv(line, size)
    buffer = bytearray(size)
    while True:
        try:
            return bytes(buffer[: line.recv_into(buffer)])
        except BlockingIOError:
            await _ready(line.fileno())


async def encrypt(
    connection: socket.socket, context: ssl.SSLContext, *, server_side: bool, host: str | None = None
) -> TlsSocket:
    """Shake hands on a connection, within the time for that; it is closed if they fail."""
    line: socket.socket = connection
    try:
        line = secured = context.wrap_socket(
            connection, server_side=server_side, do_handshake_on_connect=False, server_hostname=host
        )
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            while True:
                try:
                    secured.do_handshake()
                    return TlsSocket(secured)
                except ssl.SSLWantReadError:
                    await _ready(secured.fileno())
                except ssl.SSLWantWriteError:
                    await _ready(secured.fileno(), to_write=True)
    except BaseException:
        line.close()
        raise


async def _ready(descriptor: int, *, to_write: bool = False) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    add(descriptor, tell)
    try:
        await ready
    finally:
        remove(descriptor)


class Arrivals:
    """New connections of a master's HA port until it is known how they speak. Of too many the oldest is cut.

    `accept(line)` gets those that may stay, `refuse(peer, why)` is told of the others.
    """

    def __init__(
        self,
        tls: HaTls,
        silence_s: float,
        accept: Callable[[Line], object],
        refuse: Callable[[str, str], object],
    ) -> None:
        self._tls = tls
        self._silence_s = silence_s  # an Apache slave takes its time for the first report
        self._accept = accept
        self._refuse = refuse
        self._arriving: dict[asyncio.Task[None], None] = {}

    def take(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        task = asyncio.ensure_future(self._arrive(connection, peer))
        self._arriving[task] = None
        task.add_done_callback(lambda done: self._arriving.pop(done, None))
        if len(self._arriving) > MOST_ARRIVING:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]  # it ends later than the next one may come
            oldest.cancel()

    def close(self) -> None:
        for task in list(self._arriving):
            task.cancel()

    async def _arrive(self, connection: socket.socket, peer: str) -> None:
        line: Line = connection
        try:
            async with asyncio.timeout(self._silence_s):
                await _ready(connection.fileno())
            first = connection.recv(1, socket.MSG_PEEK)
            if first and first[0] == TLS_HANDSHAKE:
                context = self._tls.server.context
                assert context is not None  # checked at the start, and exchanged for others alone
                line = await encrypt(connection, context, server_side=True)
            elif first and self._tls.is_enforced:
                self._give_up(line, peer, "it does not speak TLS, and tls.ha.mode is enforcing")
                return
            elif not first:
                connection.close()
                return
        except TimeoutError:
            self._give_up(line, peer, "it said nothing, or did not finish its TLS hand-shake in time")
        except OSError as problem:
            reason = problem.reason if isinstance(problem, ssl.SSLError) else problem.strerror
            self._give_up(line, peer, f"TLS failed: {reason or problem}")
        except BaseException:
            line.close()
            raise
        else:
            self._accept(line)

    def _give_up(self, line: Line, peer: str, why: str) -> None:
        line.close()
        self._refuse(peer, why)

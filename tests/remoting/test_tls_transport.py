"""Goal: TLS of accepted connections loses, mixes and delays nothing, however bytes are cut, refused or mistimed."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import socket
import ssl
import subprocess
import termios
import weakref
from asyncio import BaseProtocol, Transport
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.clock import VirtualClock
from arrowmq.remoting.endpoint import Endpoint, Limits
from arrowmq.remoting.handlers import Answer, Call, HandlerTable, handles
from arrowmq.remoting.tls.settings import HANDSHAKE_TIMEOUT_S, ServerTls, server_tls
from arrowmq.remoting.tls.transport import RECORD_BYTES, SEND_BYTES, SharedBuffers, TlsTransport
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from certificates import self_signed
from waiting import until

ECHO = 10
SENT = bytes(range(251)) * 4000  # a megabyte in which a piece at the wrong place is seen


class Below(Transport):
    """The plain transport: a pair of sockets, and what the kernel did not take."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.protocol: Any = None
        self.unsent = b""
        self.ends: list[str] = []
        self.reads = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.near if name == "socket" else default

    def set_protocol(self, protocol: BaseProtocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (0, 0) == (high, low)

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        self.unsent += bytes(data)
        self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")

    def bring(self, data: bytes) -> None:
        """As the event loop does it: into the protocol's buffer, as much as that takes."""
        while data:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)

    def taken(self) -> bytes:
        """What the client has received since, and with it the kernel all that it had refused."""
        received = b""
        while True:
            try:
                received += self.far.recv(1 << 20)
            except BlockingIOError:
                if not self.unsent:
                    return received
                received, self.unsent = received + self.unsent, b""
                self.protocol.resume_writing()


class Peer:
    """Who is served: it notes what it gets."""

    def __init__(self) -> None:
        self.is_active = False
        self.got = b""
        self.heard: list[str] = []
        self.when_updated: Callable[[], object] = lambda: None
        self._view = memoryview(bytearray(100_000))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self._view[:nbytes]
        self.when_updated()

    def eof_received(self) -> None:
        self.heard.append("eof")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append("lost")

    def handshake_done(self) -> None:
        self.heard.append("done")

    def handshake_failed(self, reason: str) -> None:
        self.heard.append(f"failed: {reason}")


class Line:
    """A transport, and the client on the other side of its sockets."""

    def __init__(self, context: ssl.SSLContext, shared: SharedBuffers | None = None, version: str = "TLSv1_3") -> None:
        self.below, self.peer, self.clock, self.soon = Below(), Peer(), VirtualClock(), list[Callable[[], object]]()
        self.shared = shared or SharedBuffers()
        self.tls = TlsTransport(self.peer, self.below, context, self.shared, self.clock, self.soon.append)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.maximum_version = ssl.TLSVersion[version]
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.into, self.out)

    def close(self) -> None:
        self.below.near.close()
        self.below.far.close()

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.client.do_handshake()
        return self.out.read()

    def shake_hands(self) -> Line:
        self.tls.start(self.hello())
        while True:
            self.into.write(self.below.taken())
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.below.bring(self.out.read())
        self.below.bring(self.out.read())
        return self

    def send(self, data: bytes) -> bytes:
        """What the client sends for these bytes."""
        position = 0
        while position < len(data):
            position += self.client.write(data[position:])
        return self.out.read()

    def received(self) -> bytes:
        """What the client has decrypted since."""
        self.into.write(self.below.taken())
        found = b""
        while True:
            try:
                piece = self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return found
            if not piece:
                return found
            found += piece


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ServerTls:
    certificate = self_signed(tmp_path_factory.mktemp("tls"))
    files = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(certificate.with_name("key.pem"))}
    return server_tls(files)


@pytest.fixture(scope="session")
def context(tls: ServerTls) -> ssl.SSLContext:
    assert tls.context is not None
    return tls.context


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def line(context: ssl.SSLContext, request: pytest.FixtureRequest) -> Iterator[Line]:
    made = Line(context, version=request.param)
    yield made
    made.close()


# --- one connection, byte by byte ------------------------------------------------------------------------------------


def test_a_hand_shake_is_reported_once_and_its_time_no_longer_counts(line: Line) -> None:
    line.shake_hands()
    assert ["done", "resume"] == line.peer.heard
    asyncio.run(line.clock.advance(HANDSHAKE_TIMEOUT_S * 2))
    assert [] == line.below.ends


def test_a_hand_shake_that_comes_byte_by_byte_is_done(line: Line) -> None:
    hello = line.hello()
    line.tls.start(hello[:1])
    for byte in hello[1:]:
        line.below.bring(bytes([byte]))
    is_done = False
    while not is_done:
        line.into.write(line.below.taken())
        try:
            line.client.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            pass
        for byte in line.out.read():
            line.below.bring(bytes([byte]))
    line.below.bring(line.send(b"first"))
    assert b"first" == line.peer.got


def test_a_request_that_comes_with_the_end_of_the_hand_shake_is_read_after_it_is_reported(line: Line) -> None:
    order: list[str] = []
    line.peer.when_updated = lambda: order.extend([*line.peer.heard, "updated"])
    line.tls.start(line.hello())
    while True:
        line.into.write(line.below.taken())
        try:
            line.client.do_handshake()
            break
        except ssl.SSLWantReadError:
            line.below.bring(line.out.read())
    line.below.bring(line.out.read() + line.send(b"at once"))
    assert b"at once" == line.peer.got
    assert ["done", "resume", "updated"] == order


def test_who_does_not_finish_in_time_is_cut(line: Line) -> None:
    line.tls.start(line.hello()[:20])
    asyncio.run(line.clock.advance(HANDSHAKE_TIMEOUT_S + 1))
    assert ["failed: not finished within 10 s"] == line.peer.heard
    assert ["aborted"] == line.below.ends


def test_who_goes_before_the_end_of_the_hand_shake_is_reported_as_failed_and_lost(line: Line) -> None:
    line.tls.start(line.hello())
    line.tls.connection_lost(None)
    assert ["failed: the peer went away", "lost"] == line.peer.heard


def test_nonsense_instead_of_a_hand_shake_gets_an_alert_and_the_end(line: Line) -> None:
    line.tls.start(b"\x16\x03\x01\x00\x05nonsense")
    assert ["closed"] == line.below.ends
    assert b"\x15" == line.below.taken()[:1]
    assert line.peer.heard[0].startswith("failed: ")
    assert not line.shared.outgoing.pending


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 70_000), min_size=1, max_size=6),
    st.lists(st.integers(1, 200_000), max_size=8),
    st.sampled_from(["TLSv1_2", "TLSv1_3"]),
)
def test_requests_arrive_whole_and_in_order_wherever_their_bytes_are_cut(
    context: ssl.SSLContext, sizes: list[int], cuts: list[int], version: str
) -> None:
    line = Line(context, version=version).shake_hands()
    sent, data, position = b"", b"", 0
    for size in sizes:
        piece = SENT[position : position + size]
        sent, data, position = sent + piece, data + line.send(piece), position + size
    for cut in cuts:
        line.below.bring(data[:cut])
        data = data[cut:]
    line.below.bring(data)
    assert sent == line.peer.got
    line.close()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=4))
def test_answers_arrive_whole_and_in_order_whatever_the_kernel_takes(context: ssl.SSLContext, sizes: list[int]) -> None:
    """The socket of the pair takes some 200 KB; then the rest waits until the client has read."""
    line = Line(context).shake_hands()
    sent, received, position = b"", b"", 0
    for size in sizes:
        answer = SENT[position : position + size]
        sent, position = sent + answer, position + size
        while answer:
            answer = answer[line.tls.encrypt(answer) :]
            if answer:
                received += line.received()
    assert sent == received + line.received()
    line.close()


def test_a_client_that_does_not_read_costs_one_send_and_no_more(line: Line) -> None:
    line.shake_hands()
    line.received()
    taken = line.tls.encrypt(SENT)
    assert taken < len(SENT)
    assert 0 < line.tls.get_write_buffer_size() <= SEND_BYTES + 1000
    assert "pause" == line.peer.heard[-1]
    assert 0 == line.tls.encrypt(SENT)
    assert SENT[:taken] == line.received()
    assert "resume" == line.peer.heard[-1]


def test_records_are_full(line: Line) -> None:
    """Each has its own overhead, on both sides."""
    line.shake_hands()
    line.received()
    line.tls.encrypt(SENT[:SEND_BYTES])
    data, sizes = line.below.taken(), []
    while data:
        sizes.append(int.from_bytes(data[3:5], "big"))
        data = data[5 + sizes[-1] :]
    assert SEND_BYTES // RECORD_BYTES == len(sizes)


def test_who_wants_no_more_gets_no_more_and_the_rest_once_it_reads_on(line: Line) -> None:
    line.shake_hands()
    line.peer.when_updated = line.tls.pause_reading
    line.below.bring(line.send(SENT[:120_000]))
    got = len(line.peer.got)
    assert got < 120_000
    assert not line.below.reads
    line.tls.resume_reading()
    assert got == len(line.peer.got), "not inside the call: who resumes is not done yet"
    while line.soon:
        line.soon.pop(0)()
        line.tls.resume_reading()
    assert SENT[:120_000] == line.peer.got


def test_nothing_is_read_after_the_end(line: Line) -> None:
    line.shake_hands()
    line.peer.when_updated = line.tls.abort
    line.below.bring(line.send(SENT[:250_000]))
    assert len(line.peer.got) <= 100_000
    assert ["aborted"] == line.below.ends
    line.tls.connection_lost(None)
    line.tls.abort()


def test_a_close_tells_the_client_after_everything_before_it(line: Line) -> None:
    line.shake_hands()
    line.tls.encrypt(b"the last")
    line.tls.close()
    line.tls.close()
    assert ["closed"] == line.below.ends
    line.into.write(line.below.taken())
    assert b"the last" == line.client.read(100)
    assert b"" == line.client.read(100), "a close_notify, not a cut"


def test_a_close_with_requests_unread_still_tells_the_client(line: Line) -> None:
    line.shake_hands()
    line.tls.pause_reading()
    line.below.bring(line.send(b"never read"))
    line.tls.close()
    line.into.write(line.below.taken())
    assert b"" == line.client.read(100)
    assert b"" == line.peer.got
    assert not line.shared.outgoing.pending


def test_a_client_that_says_it_closes_is_served_what_it_sent_before_and_closed(line: Line) -> None:
    line.shake_hands()
    data = line.send(b"before")
    with pytest.raises(ssl.SSLWantReadError):
        line.client.unwrap()
    line.below.bring(data + line.out.read())
    assert b"before" == line.peer.got
    assert "eof" == line.peer.heard[-1]
    assert ["closed"] == line.below.ends


def test_a_changed_byte_ends_the_connection_after_what_came_before_it(line: Line) -> None:
    line.shake_hands()
    data, changed = line.send(b"good"), bytearray(line.send(b"bad!"))
    changed[-1] ^= 1
    line.below.bring(data + bytes(changed))
    assert b"good" == line.peer.got
    assert ["closed"] == line.below.ends
    assert not line.shared.outgoing.pending


def test_connections_that_share_their_buffers_do_not_mix(context: ssl.SSLContext) -> None:
    shared = SharedBuffers()
    lines = [Line(context, shared).shake_hands() for _ in range(5)]
    for turn in range(20):
        for number, line in enumerate(lines):
            data = line.send(bytes([turn, number]) * 1000)
            line.below.bring(data[:700])
            line.tls.encrypt(bytes([number, turn]) * 40_000)
            line.below.bring(data[700:])
            assert not shared.outgoing.pending
        for number, line in enumerate(lines):
            assert bytes([number, turn]) * 40_000 == line.received()
    for number, line in enumerate(lines):
        assert b"".join(bytes([turn, number]) * 1000 for turn in range(20)) == line.peer.got
        line.close()


def test_an_ended_connection_leaves_its_memory_without_the_garbage_collector(context: ssl.SSLContext) -> None:
    line = Line(context).shake_hands()
    ended = weakref.ref(line.tls.get_extra_info("ssl_object"))
    gc.collect()
    gc.disable()
    try:
        line.tls.connection_lost(None)
        line.below.protocol = None  # as the event loop does it
        line.clock, line.soon = VirtualClock(), []
        del line.tls
        assert ended() is None
    finally:
        gc.enable()
        line.close()


# --- with a server ---------------------------------------------------------------------------------------------------


class Service:
    @handles(ECHO)
    def echo(self, call: Call) -> Answer:
        return Answer(body=call.body)


def request(opaque: int, body: bytes = b"") -> bytes:
    return encode_frame(Command.request(ECHO, opaque=opaque, body=body))


async def connect(address: str, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)


def believing() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def answers(reader: asyncio.StreamReader, count: int) -> list[Command]:
    splitter, found = FrameSplitter(), list[Command]()
    while len(found) < count:
        data = await reader.read(1 << 20)
        assert data, "the connection ended"
        found += splitter.feed(data)
    return found


async def test_frames_of_many_records_and_many_frames_of_one_record_are_served(
    start_server: Any, tls: ServerTls
) -> None:
    _, address = await start_server(Service(), tls=tls)
    reader, writer = await connect(address, believing())
    bodies = [
        b"",
        SENT * 3,
        b"small",
        SENT[:RECORD_BYTES],
        SENT[: RECORD_BYTES + 1],
        *[SENT[:100]] * 500,
        SENT[:70_000],
    ]
    writer.write(b"".join(request(number, body) for number, body in enumerate(bodies)))
    found = await answers(reader, len(bodies))
    assert list(range(len(bodies))) == [answer.opaque for answer in found]
    assert bodies == [answer.body for answer in found]
    writer.close()


async def test_a_session_is_taken_up_again(start_server: Any, tls: ServerTls) -> None:
    """Both tickets arrive: a client that comes back needs no certificate."""
    server, address = await start_server(Service(), tls=tls)
    host, _, port = address.rpartition(":")
    context = believing()

    def come(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession, bool]:
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, session=session) as line,
        ):
            line.sendall(request(1, b"x"))
            assert line.recv(1000)
            return cast(ssl.SSLSession, line.session), bool(line.session_reused)

    session, was_reused = await asyncio.to_thread(come, None)
    assert not was_reused
    _, was_reused = await asyncio.to_thread(come, session)
    assert was_reused
    await until(lambda: not server.connections)


async def test_a_server_that_closes_says_so_to_its_clients(start_server: Any, tls: ServerTls) -> None:
    server, address = await start_server(Service(), tls=tls)
    reader, writer = await connect(address, believing())
    writer.write(request(1))
    await answers(reader, 1)
    await server.close()
    assert b"" == await reader.read(), "a cut without a close_notify would be an error"
    writer.close()


async def test_a_server_may_close_while_hand_shakes_are_under_way(start_server: Any, tls: ServerTls) -> None:
    server, address = await start_server(Service(), tls=tls)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01\x02\x00\x01")
    await until(lambda: server._endpoint.handshakes)
    await server.close(5)
    assert b"" == await reader.read()
    assert not server.connections
    assert not server._endpoint.handshakes
    writer.close()


class OpenSslClient:
    """OpenSSL's own client, which takes commands by letters at the beginning of what it reads."""

    def __init__(self, process: asyncio.subprocess.Process, typed: int) -> None:
        self._process = process
        self._typed = typed
        self.said = b""

    async def type(self, data: bytes) -> None:
        """And wait until it has been read, so that what is typed next is another piece."""
        os.write(self._typed, data)
        unread = bytearray(4)

        def is_read() -> bool:
            fcntl.ioctl(self._typed, termios.FIONREAD, unread)
            return not any(unread)

        await until(is_read)

    async def says(self, words: bytes) -> None:
        assert self._process.stdout is not None
        while words not in self.said:
            data = await self._process.stdout.read(65536)
            assert data, f"{words!r} was never said: {self.said!r}"
            self.said += data

    async def end(self) -> None:
        os.close(self._typed)
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


@pytest.fixture
async def speak(start_server: Any, tls: ServerTls) -> AsyncIterator[Callable[..., Any]]:
    running: list[OpenSslClient] = []

    async def start(*options: str) -> OpenSslClient:
        _, address = await start_server(Service(), tls=tls)
        reads, typed = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-msg", "-connect", address, *options),
            stdin=reads,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        os.close(reads)
        running.append(OpenSslClient(process, typed))
        return running[-1]

    yield start
    for client in running:
        await client.end()


async def test_a_client_that_changes_its_keys_and_asks_for_new_ones_is_served_on(speak: Callable[..., Any]) -> None:
    client: OpenSslClient = await speak("-tls1_3")
    await client.type(request(1, b"before"))
    await client.says(b"before")
    for count, letter in enumerate((b"K", b"k", b"K")):
        await client.type(letter + b"\n")  # sent with what comes next
        mark = f"after {count} {letter.decode()}".encode()
        await client.type(request(1, mark))
        await client.says(mark)
    # Twice it asked for new keys of ours. OpenSSL sends its answer with the next thing that it sends.
    assert 3 == client.said.count(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
    assert 2 == client.said.count(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")


async def test_a_client_that_wants_to_begin_the_hand_shake_again_is_refused(speak: Callable[..., Any]) -> None:
    client: OpenSslClient = await speak("-tls1_2")
    await client.type(request(1, b"before"))
    await client.says(b"before")
    await client.type(b"R\n")
    await client.says(b"no renegotiation")


def test_buffers_are_made_for_the_first_encrypted_connection() -> None:
    endpoint = Endpoint(HandlerTable(), VirtualClock(), Limits())
    assert endpoint._tls_buffers is None
    assert endpoint.tls_buffers is endpoint.tls_buffers

"""Goal: whatever one peer sends, withholds or does not read, it costs a bounded amount and only itself."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from arrowmq.clock import VirtualClock
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.endpoint import Limits
from arrowmq.remoting.handlers import LATER, Answer, Call, handles
from arrowmq.remoting.outbox import HAND_OVER_BYTES
from arrowmq.remoting.tls.settings import ServerTls, server_tls
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from certificates import self_signed
from waiting import until

ECHO, HOLD, LARGE = 10, 11, 12
LARGE_BYTES = 300_000


class Service:
    def __init__(self) -> None:
        self.held: list[Call] = []
        self.served = 0
        self.released = 0

    @handles(ECHO)
    def echo(self, call: Call) -> Answer:
        self.served += 1
        return Answer(body=call.body)

    @handles(HOLD)
    def hold(self, call: Call) -> Any:
        self.held.append(call)
        return LATER

    @handles(LARGE)
    def large(self, call: Call) -> Answer:
        """An answer in pieces, marked with the opaque so that order can be seen."""
        self.served += 1
        mark = call.command.opaque.to_bytes(4, "big")
        return Answer(body=[memoryview(mark), memoryview(bytes(LARGE_BYTES))], on_sent=self._release)

    def _release(self) -> None:
        self.released += 1


async def connect(
    address: str, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(
        host, int(port), limit=1 << 16, ssl=context, server_hostname=host if context is not None else None
    )


class Way:
    """How peers come: plain or by TLS. The promises to them, and the bounds on them, are the same."""

    def __init__(self, tls: ServerTls | None, context: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._context = context

    async def connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect(address, self._context)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["plain", "tls"])
def way(request: pytest.FixtureRequest, certificate: Path) -> Way:
    if request.param == "plain":
        return Way(None, None)
    files = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(certificate.with_name("key.pem"))}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Way(server_tls(files), context)


async def is_served(client: RemotingClient, address: str) -> bool:
    return (await client.invoke(address, Command.request(ECHO, body=b"well-behaved"), 5)).body == b"well-behaved"


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


GOOD = encode_frame(Command.request(ECHO, opaque=1, body=b"good"))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\xff", id="negative length"),
        pytest.param(b"\x7f\xff\xff\xff", id="two gigabytes"),
        pytest.param((16_777_213).to_bytes(4, "big"), id="one byte too long"),
        pytest.param(b"\0\0\0\0", id="length zero"),
        pytest.param(b"\0\0\0\3abc", id="no room for a header word"),
        pytest.param(frame(b"\0\0\0\xff{}"), id="header longer than the frame"),
        pytest.param(frame(b"\0\xff\xff\xff{}"), id="header of sixteen megabytes"),
        pytest.param(frame(b"\2\0\0\2{}"), id="unknown serialization"),
        pytest.param(frame(b"\0\0\0\5{nope"), id="broken JSON"),
        pytest.param(frame(b"\0\0\0\2[]"), id="JSON of the wrong kind"),
        pytest.param(frame(b"\0\0\0\4\xff\xfe\xfd\xfc"), id="no UTF-8"),
        pytest.param(frame(b"\1\0\0\4\0\1\2\3"), id="binary header cut off"),
        pytest.param(frame(b"\1\0\0\x15" + bytes(13) + b"\x7f\xff\xff\xff" + bytes(4)), id="binary remark too long"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS without TLS"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="SSH"),
    ],
)
async def test_a_broken_frame_ends_that_connection_after_the_good_ones_before_it(
    start_server: Any, client: RemotingClient, data: bytes
) -> None:
    server, address = await start_server(Service())
    assert await is_served(client, address)
    for before in (b"", GOOD):
        reader, writer = await connect(address)
        writer.write(before + data)
        received = b""
        while chunk := await _read_or_reset(reader):
            received += chunk
        assert len(FrameSplitter().feed(received)) == (1 if before else 0)
        writer.close()
    assert await is_served(client, address)
    await until(lambda: len(server.connections) == 1)


async def _read_or_reset(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionResetError:
        return b""


async def test_random_bytes_never_hurt_others(start_server: Any, client: RemotingClient) -> None:
    service = Service()
    server, address = await start_server(service)
    dice = random.Random(20261115)
    for _ in range(200):
        _, writer = await connect(address)
        if dice.random() < 0.5:
            data = dice.randbytes(dice.randrange(1, 200))
        else:  # a good frame with a few bytes changed gets deeper
            damaged = bytearray(GOOD * 3)
            for _ in range(dice.randrange(1, 6)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            data = bytes(damaged[: dice.randrange(1, len(damaged) + 1)])
        writer.write(data)
        writer.close()
        if dice.random() < 0.2:
            assert await is_served(client, address)
    await until(lambda: len(server.connections) == 1)
    assert await is_served(client, address)


async def test_an_announced_length_costs_nothing_until_bytes_come(start_server: Any, client: Any) -> None:
    server, address = await start_server(Service())
    writers = []
    for _ in range(50):
        _, writer = await connect(address)
        writer.write((16_777_212).to_bytes(4, "big") + b"\0\0\0\x10{")
        writers.append(writer)
    await until(lambda: sum(c.held_bytes > 0 for c in server.connections) == 50)
    assert sum(c.held_bytes for c in server.connections) <= 50 * 65536
    assert await is_served(client, address)
    for writer in writers:
        writer.close()


async def test_five_hundred_silent_connections_are_not_noticed(start_server: Any, client: RemotingClient) -> None:
    server, address = await start_server(Service())
    silent = [await connect(address) for _ in range(500)]
    await until(lambda: len(server.connections) == 500)
    assert await is_served(client, address)
    assert all(c.held_bytes == 0 for c in server.connections)
    for _, writer in silent:
        writer.close()
    await until(lambda: len(server.connections) == 1)


async def test_a_peer_that_does_not_read_is_paused_and_gets_everything_once_it_reads(
    start_server: Any, way: Way, client: RemotingClient
) -> None:
    """300 answers of 300 kB are 90 MB; what waits for this peer must stay near the limit, and nothing may be lost."""
    service = Service()
    server, address = await start_server(service, tls=way.tls)
    reader, writer = await way.connect(address)
    writer.write(b"".join(encode_frame(Command.request(LARGE, opaque=number)) for number in range(300)))
    await until(lambda: any(c.is_paused for c in server.connections))
    (slow,) = server.connections
    for _ in range(50):
        assert await is_served(client, address)
    assert slow.unsent_bytes <= Limits().unsent_bytes + LARGE_BYTES + 1000 + HAND_OVER_BYTES
    served_meanwhile = service.served - 50
    assert served_meanwhile < 100
    splitter, answers = FrameSplitter(), list[Command]()
    while len(answers) < 300:
        answers += splitter.feed(await reader.read(1 << 20))
    assert list(range(300)) == [answer.opaque for answer in answers]
    assert all(len(a.body) == LARGE_BYTES + 4 and int.from_bytes(a.body[:4], "big") == a.opaque for a in answers)
    assert service.released == 300
    writer.close()


async def test_a_peer_that_never_reads_is_cut(start_server: Any, way: Way) -> None:
    clock = VirtualClock()
    service = Service()
    server, address = await start_server(service, clock=clock, tls=way.tls)
    _, writer = await way.connect(address)
    writer.write(b"".join(encode_frame(Command.request(LARGE, opaque=number)) for number in range(100)))
    await until(lambda: any(c.is_paused for c in server.connections))
    (slow,) = server.connections
    await clock.advance(50)
    assert not slow.closed
    await clock.advance(30)
    await until(lambda: slow.closed)
    assert service.released == service.served  # what it would not read is released
    writer.close()


async def test_a_quiet_connection_is_closed_after_the_idle_time_and_a_busy_one_is_not(
    start_server: Any, way: Way, client: RemotingClient
) -> None:
    clock = VirtualClock()
    server, address = await start_server(Service(), clock=clock, tls=way.tls)
    reader, writer = await way.connect(address)
    await until(lambda: len(server.connections) == 1)
    for _ in range(14):
        await clock.advance(10)
        assert await is_served(client, address)
    assert await reader.read(10) == b""
    assert await is_served(client, address)
    assert len(server.connections) == 1
    writer.close()


async def test_too_many_requests_in_flight_stop_the_reading_until_half_are_answered(
    start_server: Any, way: Way
) -> None:
    service = Service()
    server, address = await start_server(service, limits=Limits(in_flight=100), tls=way.tls)
    reader, writer = await way.connect(address)
    writer.write(b"".join(encode_frame(Command.request(HOLD, opaque=number)) for number in range(1000)))
    splitter, answers = FrameSplitter(), list[Command]()
    await until(lambda: len(service.held) == 100)
    (connection,) = server.connections
    while len(answers) < 1000:
        assert connection.in_flight <= 100
        held, service.held = service.held, []
        for call in held:
            call.reply(Answer(body=b"done"))
        if held:
            answers += splitter.feed(await reader.read(1 << 16))
        else:
            await asyncio.sleep(0)
    assert list(range(1000)) == [answer.opaque for answer in answers]
    writer.close()


async def test_a_peer_may_go_in_the_middle_of_a_frame_or_of_its_answer(
    start_server: Any, way: Way, client: Any
) -> None:
    service = Service()
    server, address = await start_server(service, tls=way.tls)
    for size in (2, 10, len(GOOD) - 1):
        _, writer = await way.connect(address)
        writer.write(GOOD[:size])
        await writer.drain()
        writer.transport.abort()
    _, writer = await way.connect(address)
    writer.write(b"".join(encode_frame(Command.request(LARGE, opaque=number)) for number in range(20)))
    await until(lambda: service.served > 0)
    writer.transport.abort()
    assert await is_served(client, address)
    await until(lambda: len(server.connections) == 1)
    await until(lambda: service.released == service.served - 1)


async def test_a_large_upload_does_not_grow_by_the_square(start_server: Any, way: Way) -> None:
    """A frame of 16 MB in 1 kB pieces: each byte is copied a few times, not once a piece."""
    _, address = await start_server(Service(), tls=way.tls)
    reader, writer = await way.connect(address)
    data = encode_frame(Command.request(ECHO, opaque=1, body=bytes(16_000_000)))
    for start in range(0, len(data), 1 << 14):
        writer.write(data[start : start + (1 << 14)])
        await writer.drain()
    splitter, answers = FrameSplitter(), list[Command]()
    while not answers:
        answers = splitter.feed(await reader.read(1 << 20))
    assert len(answers[0].body) == 16_000_000
    writer.close()


async def test_two_peers_with_much_to_say_do_not_wait_for_each_other(start_server: Any, client: Any) -> None:
    """200 requests of 300 kB at once, each echoed: if both stopped reading until the other reads, none would end."""
    _, address = await start_server(Service())
    body = bytes(300_000)
    answers = await asyncio.gather(
        *(client.invoke(address, Command.request(ECHO, body=body), 60) for _ in range(200)),
    )
    assert {len(answer.body) for answer in answers} == {300_000}


async def test_oneway_sends_wait_for_a_peer_that_takes_them_slowly(start_server: Any, client: RemotingClient) -> None:
    """100 MB one way: what waits on our side must stay bounded by the limit and one frame."""
    service = Service()
    _, address = await start_server(service)
    connection = await client.connect(address)
    for _ in range(100):
        await client.invoke_oneway(address, Command.request(ECHO, body=bytes(1_000_000)))
        assert connection.unsent_bytes <= Limits().unsent_bytes + 1_000_200 + HAND_OVER_BYTES
    await until(lambda: service.served == 100)


async def test_a_failing_callback_of_one_connection_does_not_hold_up_others(start_server: Any, client: Any) -> None:
    service = Service()
    _, address = await start_server(service)
    reader, writer = await connect(address)
    writer.write(encode_frame(Command.request(HOLD, opaque=1)))
    other = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 5))
    await until(lambda: len(service.held) == 2)

    def fail() -> None:
        raise RuntimeError("on purpose")

    service.held.sort(key=lambda call: call.connection.peer_text == format_peer(writer), reverse=True)
    service.held[0].connection.on_close(lambda _: fail())
    closed: list[Any] = []
    service.held[0].connection.on_close(closed.append)
    service.held[0].reply(Answer(body=[memoryview(b"x")], on_sent=fail))
    service.held[1].reply(Answer(body=b"unharmed"))
    assert (await other).body == b"unharmed"
    while await _read_or_reset(reader):
        continue
    await until(lambda: closed)
    writer.close()


def format_peer(writer: asyncio.StreamWriter) -> str:
    host, port = writer.get_extra_info("sockname")
    return f"{host}:{port}"

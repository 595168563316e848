"""Goal: a request gets exactly the answer its handler gave, in order, in the request's own header form."""

from __future__ import annotations

import asyncio
import itertools
import mmap
from typing import Any

import pytest

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import LATER, Answer, Call, HandlerTable, Refused, codes_of, handles
from arrowmq.wire.bodies.declare import Body
from arrowmq.wire.codes import CURRENT_VERSION, RequestCode, ResponseCode
from arrowmq.wire.frames import SERIALIZE_ROCKETMQ, Command, FrameSplitter, encode_frame
from arrowmq.wire.headers.declare import Header
from waiting import until

ECHO, WAIT, SLOW, FAIL, REFUSE, PIECES, WRONG, UNWRITABLE = 10, 11, 12, 13, 14, 15, 17, 18


class Echo(Header):
    text: str
    number: int | None = None


class Service:
    def __init__(self) -> None:
        self.held: list[Call] = []
        self.released = 0
        self.seen: list[str] = []
        self.gate = asyncio.Event()

    @handles(ECHO)
    def echo(self, request: Echo, call: Call) -> Echo | Answer:
        self.seen.append(request.text)
        return Answer(header=request, body=call.body) if call.body else request

    @handles(WAIT)
    def wait(self, call: Call) -> Any:
        self.held.append(call)
        return LATER

    @handles(SLOW)
    async def slow(self, request: Echo) -> Echo:
        await self.gate.wait()
        return request

    @handles(FAIL)
    def fail(self) -> None:
        raise KeyError("no such thing")

    @handles(REFUSE)
    def refuse(self) -> None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, "topic orders does not exist: create it")

    @handles(PIECES)
    def pieces(self) -> Answer:
        views = [memoryview(mmap.mmap(-1, 4096))[:5], memoryview(b""), memoryview(b"tail")]
        return Answer(body=views, on_sent=self._release)

    @handles(WRONG)
    def wrong(self) -> Any:
        return "text"

    @handles(UNWRITABLE)
    def unwritable(self) -> Answer:
        return Answer(header={"number": 7}, body=[memoryview(b"x")], on_sent=self._release)  # type: ignore[dict-item]

    def _release(self) -> None:
        self.released += 1


async def exchange(address: str, data: bytes, count: int) -> list[Command]:
    """Send raw bytes, read until `count` commands have come."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        splitter, commands = FrameSplitter(), list[Command]()
        while len(commands) < count:
            chunk = await reader.read(65536)
            assert chunk, f"the connection closed after {len(commands)} answers"
            commands += splitter.feed(chunk)
        return commands
    finally:
        writer.close()


async def test_a_typed_header_comes_back(start_server: Any, client: RemotingClient) -> None:
    _, address = await start_server(Service())
    answer = await client.invoke(address, Command.request(ECHO, Echo(text="hé", number=7), b"body"), 3)
    assert (answer.code, answer.ext, answer.body) == (0, {"text": "hé", "number": "7"}, b"body")
    assert answer.version == CURRENT_VERSION


async def test_many_frames_of_one_read_are_answered_in_order(start_server: Any) -> None:
    service = Service()
    _, address = await start_server(service)
    frames = b"".join(encode_frame(Command.request(ECHO, Echo(text=str(i)), opaque=1000 + i)) for i in range(2000))
    answers = await exchange(address, frames, 2000)
    assert [1000 + i for i in range(2000)] == [answer.opaque for answer in answers]
    assert [str(i) for i in range(2000)] == [answer.ext["text"] for answer in answers]


@pytest.mark.parametrize("size", [10, 20_000, 300_000, 5_000_000])
async def test_frames_of_any_size_arrive_whole_however_they_are_cut(start_server: Any, size: int) -> None:
    _, address = await start_server(Service())
    body = bytes(range(256)) * (size // 256 + 1)
    frame = encode_frame(Command.request(ECHO, Echo(text="x"), body, opaque=5))
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stream = frame * 3

    async def read_three() -> list[Command]:
        splitter, answers = FrameSplitter(), list[Command]()
        while len(answers) < 3:
            answers += splitter.feed(await reader.read(1 << 20))
        return answers

    # Beside the writing: a peer that writes 15 MB before it reads anything is one that the server stops listening to.
    reading = asyncio.ensure_future(read_three())
    cuts = [0, 3, 4, 11, len(frame) - 1, len(frame) + 2, 2 * len(frame) + 9, len(stream)]
    for start, end in itertools.pairwise(cuts):
        writer.write(stream[start:end])
        await writer.drain()
        await asyncio.sleep(0)
    assert [body] * 3 == [answer.body for answer in await reading]
    writer.close()


async def test_a_binary_request_is_answered_in_binary(start_server: Any) -> None:
    _, address = await start_server(Service())
    request = Command.request(ECHO, Echo(text="x"), opaque=5)
    request.serialize_type = SERIALIZE_ROCKETMQ
    (answer,) = await exchange(address, encode_frame(request), 1)
    assert answer.serialize_type == SERIALIZE_ROCKETMQ


async def test_a_oneway_request_is_done_and_never_answered(start_server: Any) -> None:
    service = Service()
    _, address = await start_server(service)
    frames = b"".join(
        encode_frame(command)
        for command in (
            Command.request(ECHO, Echo(text="silent"), oneway=True),
            Command.request(FAIL, oneway=True),
            Command.request(4711, oneway=True),
            Command.request(WAIT, oneway=True),
            Command.request(ECHO, Echo(text="loud"), opaque=9),
        )
    )
    (answer,) = await exchange(address, frames, 1)
    service.held[0].reply(None)
    assert (answer.opaque, service.seen) == (9, ["silent", "loud"])


@pytest.mark.parametrize(
    ("command", "code", "remark"),
    [
        (Command.request(4711), 3, " request type 4711 not supported"),
        (Command.request(FAIL), 1, "KeyError: 'no such thing'"),
        (Command.request(REFUSE), 17, "topic orders does not exist: create it"),
        (Command.request(WRONG), 1, "TypeError: Service.wrong returned str, which is no answer"),
    ],
)
async def test_a_no_says_why(
    start_server: Any, client: RemotingClient, command: Command, code: int, remark: str
) -> None:
    _, address = await start_server(Service())
    answer = await client.invoke(address, command, 3)
    assert (code, remark) == (answer.code, answer.remark)


@pytest.mark.parametrize("ext", [{}, {"text": "x", "number": "many"}])
async def test_a_missing_or_malformed_field_is_named(
    start_server: Any, client: RemotingClient, ext: dict[str, str]
) -> None:
    _, address = await start_server(Service())
    answer = await client.invoke(address, Command.request(ECHO, ext), 3)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert ("number" if ext else "text") in (answer.remark or "")


async def test_an_answer_may_come_later_and_out_of_order(start_server: Any, client: RemotingClient) -> None:
    service = Service()
    server, address = await start_server(service)
    waiting = [asyncio.ensure_future(client.invoke(address, Command.request(WAIT), 3)) for _ in range(3)]
    await until(lambda: len(service.held) == 3)
    (connection,) = server.connections
    assert connection.in_flight == 3
    for number in (2, 0, 1):
        service.held[number].reply(Answer(body=str(number).encode()))
        service.held[number].reply(Answer(body=b"a second answer is dropped"))
    assert [(await answer).body for answer in waiting] == [b"0", b"1", b"2"]
    assert connection.in_flight == 0


async def test_an_async_handler_is_awaited_while_others_are_served(start_server: Any, client: RemotingClient) -> None:
    service = Service()
    _, address = await start_server(service)
    slow = asyncio.ensure_future(client.invoke(address, Command.request(SLOW, Echo(text="slow")), 3))
    fast = await client.invoke(address, Command.request(ECHO, Echo(text="fast")), 3)
    assert (fast.ext["text"], slow.done()) == ("fast", False)
    service.gate.set()
    assert (await slow).ext["text"] == "slow"


async def test_pieces_of_mapped_memory_are_sent_and_let_go(start_server: Any, client: RemotingClient) -> None:
    service = Service()
    _, address = await start_server(service)
    answer = await client.invoke(address, Command.request(PIECES), 3)
    assert (answer.body, service.released) == (b"\0\0\0\0\0tail", 1)
    await client.invoke_oneway(address, Command.request(PIECES))
    await client.invoke(address, Command.request(ECHO, Echo(text="after")), 3)
    assert service.released == 2


async def test_an_answer_that_cannot_be_written_is_an_error_answer_and_its_pieces_are_let_go(
    start_server: Any, client: RemotingClient
) -> None:
    service = Service()
    _, address = await start_server(service)
    answer = await client.invoke(address, Command.request(UNWRITABLE), 3)
    assert (answer.code, service.released) == (ResponseCode.SYSTEM_ERROR, 1)
    assert "cannot be encoded" in (answer.remark or "")
    assert (await client.invoke(address, Command.request(ECHO, Echo(text="x")), 3)).code == 0


async def test_the_fast_path_is_asked_first_and_leaves_the_rest_to_the_handlers(start_server: Any) -> None:
    """The hook answers leading frames with code 99; it must see every position where a frame begins exactly once."""
    asked: list[int] = []

    def fast_path(connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        position, replies = 0, b""
        asked.append(len(buffer))
        while len(buffer) - position >= 4:
            length = 4 + int.from_bytes(buffer[position : position + 4], "big")
            if len(buffer) - position < length:
                break
            (command,) = FrameSplitter().feed(bytes(buffer[position : position + length]))
            if command.code != 99:
                break
            replies += encode_frame(command.answer(body=b"fast"))
            position += length
        return position, replies or None

    _, address = await start_server(Service(), fast_path=fast_path)
    codes = [99, 99, ECHO, 99, ECHO, ECHO, 99]
    frames = b"".join(encode_frame(Command.request(c, Echo(text="x"), opaque=i + 1)) for i, c in enumerate(codes))
    answers = await exchange(address, frames, len(codes))
    assert list(range(1, 8)) == [answer.opaque for answer in answers]
    assert [b"fast" if code == 99 else b"" for code in codes] == [answer.body for answer in answers]
    assert sorted(set(asked), reverse=True) == asked, "a frame that was declined is not shown to it again"


async def test_large_answers_of_the_fast_path_arrive_whole_and_in_order_at_a_slow_reader(start_server: Any) -> None:
    """One frame a call, as pulls are: answers gather, leave together, and wait where the kernel takes no more."""
    sizes = [100, 300_000, 5, 70_000, 1_500_000, 64]

    def fast_path(connection: Any, buffer: memoryview) -> tuple[int, bytes | None]:
        if len(buffer) < 4 or len(buffer) < (length := 4 + int.from_bytes(buffer[:4], "big")):
            return 0, None
        (command,) = FrameSplitter().feed(bytes(buffer[:length]))
        if command.code != 99:
            return 0, None
        return length, encode_frame(command.answer(body=bytes([command.opaque % 251]) * sizes[command.opaque % 6]))

    _, address = await start_server(Service(), fast_path=fast_path)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
    codes = [ECHO if number % 17 == 3 else 99 for number in range(150)]
    for number, code in enumerate(codes):
        writer.write(encode_frame(Command.request(code, Echo(text="x"), opaque=number)))
    await writer.drain()
    splitter, answers = FrameSplitter(), list[Command]()
    while len(answers) < len(codes):
        answers += splitter.feed(await reader.read(4096))
        await asyncio.sleep(0)
    assert [answer.opaque for answer in answers] == list(range(150))
    for number, answer in enumerate(answers):
        assert answer.body == (b"" if codes[number] == ECHO else bytes([number % 251]) * sizes[number % 6])
    writer.close()


def test_two_handlers_of_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="two handlers"):
        HandlerTable(Service(), Service())


def test_a_table_can_leave_codes_out() -> None:
    table = HandlerTable(Service())
    assert {WAIT} == set(table) - set(table.without([RequestCode.PULL_MESSAGE]))


def test_a_handler_with_an_untyped_parameter_is_refused_at_once() -> None:
    class Untyped:
        @handles(1)
        def handle(self, request) -> None:  # type: ignore[no-untyped-def]
            del request

    with pytest.raises(TypeError, match="a handler takes a header"):
        HandlerTable(Untyped())


class Order(Body):
    name: str = ""


class Typed:
    """A handler of a JSON body, and one whose header comes in two forms."""

    @handles(1)
    def order(self, request: Order, call: Call) -> Answer:
        return Answer(remark=f"{request.name} by {call.command.code}")

    @handles(2)
    @handles(3, read=lambda ext: Echo(text=ext["t"]))
    def either(self, request: Echo) -> Echo:
        return request


async def test_a_handler_gets_its_body_decoded_and_never_sees_one_that_cannot_be(
    start_server: Any, client: RemotingClient
) -> None:
    _, address = await start_server(Typed())
    answer = await client.invoke(address, Command.request(1, body=b'{"name":"tea"}'), 5)
    assert (answer.code, answer.remark) == (0, "tea by 1")
    answer = await client.invoke(address, Command.request(1, body=b"{]"), 5)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_one_handler_serves_a_header_that_is_written_in_two_forms(
    start_server: Any, client: RemotingClient
) -> None:
    _, address = await start_server(Typed())
    for code, ext in ((2, {"text": "same"}), (3, {"t": "same"})):
        assert (await client.invoke(address, Command.request(code, ext), 5)).ext == {"text": "same"}
    assert codes_of(Typed().either) == [2, 3]


async def test_what_comes_after_the_hanging_up_is_not_served(start_server: Any) -> None:
    service = Service()
    server, address = await start_server(service)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = encode_frame(Command.request(ECHO, {"text": "before"}))
    writer.write(frame)
    await reader.readexactly(8)
    writer.write(encode_frame(Command.request(ECHO, {"text": "after"})))
    server.hang_up()
    await server.close()
    assert service.seen == ["before"]
    writer.close()

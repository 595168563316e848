"""Goal: whoever asks gets its answer or an error that names the address and what happened, and nothing leaks."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from arrowmq.clock import VirtualClock
from arrowmq.remoting.address import AddressError, advertised_host, own_address, parse_address, parse_addresses
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.deadlines import Deadlines
from arrowmq.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from arrowmq.remoting.handlers import LATER, Answer, Call, handles
from arrowmq.wire.frames import Command
from waiting import until

ECHO, HOLD, CALL_BACK = 10, 11, 12


class Service:
    def __init__(self) -> None:
        self.held: list[Call] = []

    @handles(ECHO)
    def echo(self, call: Call) -> Answer:
        return Answer(body=call.body)

    @handles(HOLD)
    def hold(self, call: Call) -> Any:
        self.held.append(call)
        return LATER

    @handles(CALL_BACK)
    async def call_back(self, call: Call) -> Answer:
        """Ask the client something on its own connection before answering it."""
        answer = await call.connection.request(Command.request(40, {"n": "1"}), 3)
        return Answer(answer.code, body=answer.body, remark=f"opaque {answer.opaque}")


async def test_requests_to_one_address_share_one_connection_made_once(start_server: Any, client: Any) -> None:
    server, address = await start_server(Service())
    answers = await asyncio.gather(
        *(client.invoke(address, Command.request(ECHO, body=str(i).encode()), 3) for i in range(200))
    )
    assert [str(i).encode() for i in range(200)] == [answer.body for answer in answers]
    assert len(server.connections) == 1


async def test_an_address_where_nothing_listens_is_named(client: RemotingClient) -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1: nothing listens there") as caught:
        await client.invoke("127.0.0.1:1", Command.request(ECHO), 3)
    assert caught.value.address == "127.0.0.1:1"


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":10911", "host:port", "host:0", "host:70000", ""])
async def test_a_text_that_is_no_address_is_refused(client: RemotingClient, address: str) -> None:
    with pytest.raises(AddressError, match="expected host:port"):
        await client.invoke(address, Command.request(ECHO), 3)


async def test_a_lost_connection_fails_what_waits_on_it_and_the_next_request_makes_a_new_one(
    start_server: Any, client: RemotingClient
) -> None:
    service = Service()
    server, address = await start_server(service)
    waiting = [asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 30)) for _ in range(3)]
    await until(lambda: len(service.held) == 3)
    (connection,) = server.connections
    connection.abort()
    for request in waiting:
        with pytest.raises(ConnectionLost, match=address):
            await request
    assert (await client.invoke(address, Command.request(ECHO, body=b"again"), 3)).body == b"again"
    assert len(server.connections) == 1


async def test_an_answer_to_a_connection_that_is_gone_is_dropped_and_its_pieces_let_go(
    start_server: Any, client: RemotingClient
) -> None:
    service = Service()
    _, address = await start_server(service)
    waiting = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 30))
    await until(lambda: len(service.held) == 1)
    (call,) = service.held
    client.disconnect(address)
    with pytest.raises(ConnectionLost):
        await waiting
    await until(lambda: call.connection.closed)
    released: list[bool] = []
    call.reply(Answer(body=[memoryview(b"late")], on_sent=lambda: released.append(True)))
    assert released == [True]


async def test_a_request_times_out_by_the_clock_it_was_given(start_server: Any) -> None:
    clock = VirtualClock()
    client = RemotingClient(clock)
    service = Service()
    _, address = await start_server(service)
    await client.connect(address)
    waiting = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 3))
    await until(lambda: len(service.held) == 1)
    await clock.advance(2.9)
    assert not waiting.done()
    await clock.advance(0.2)
    with pytest.raises(RequestTimeout, match=f"{address} did not answer within 3 s"):
        await waiting
    service.held[0].reply(Answer(body=b"too late"))
    answer = await client.invoke(address, Command.request(ECHO, body=b"next"), 3)
    assert answer.body == b"next"
    await client.close()


async def test_a_cancelled_request_leaves_nothing_behind(start_server: Any, client: RemotingClient) -> None:
    service = Service()
    _, address = await start_server(service)
    waiting = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 30))
    await until(lambda: len(service.held) == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    connection = client.connection(address)
    assert connection is not None
    assert connection.pending == 0
    assert len(client._endpoint.deadlines) == 0


async def test_a_server_asks_its_client_with_opaques_from_one(start_server: Any, client: RemotingClient) -> None:
    client.on_request(40, lambda call: Answer(body=b"from the client " + call.ext["n"].encode()))
    _, address = await start_server(Service())
    for number in (1, 2):
        answer = await client.invoke(address, Command.request(CALL_BACK), 3)
        assert (b"from the client 1", f"opaque {number}") == (answer.body, answer.remark)


async def test_a_client_without_that_callback_says_so(start_server: Any, client: RemotingClient) -> None:
    _, address = await start_server(Service())
    answer = await client.invoke(address, Command.request(CALL_BACK), 3)
    assert answer.code == 3


async def test_a_closed_client_asks_nobody(start_server: Any) -> None:
    client = RemotingClient()
    service = Service()
    _, address = await start_server(service)
    waiting = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 30))
    await until(lambda: len(service.held) == 1)
    await client.close()
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(ConnectFailed, match="closed"):
        await client.invoke(address, Command.request(ECHO), 3)


async def test_closing_a_server_sends_what_waits_and_tells_its_connections(start_server: Any, client: Any) -> None:
    service = Service()
    server, address = await start_server(service)
    waiting = asyncio.ensure_future(client.invoke(address, Command.request(HOLD), 30))
    await until(lambda: len(service.held) == 1)
    ended: list[Any] = []
    service.held[0].connection.on_close(ended.append)
    service.held[0].reply(Answer(body=b"last words"))
    await server.close()
    assert (await waiting).body == b"last words"
    assert ended == [service.held[0].connection]
    await until(lambda: client.connection(address) is None)
    with pytest.raises(ConnectFailed):
        await client.invoke(address, Command.request(ECHO), 3)


async def test_deadlines_fire_in_order_and_only_once() -> None:
    clock = VirtualClock()
    deadlines = Deadlines(clock)
    fired: list[float] = []
    kept = [deadlines.add(timeout, lambda t=timeout: fired.append(t)) for timeout in (3.0, 0.3, 10.0, 0.3, 1.0)]
    deadlines.remove(kept[4])
    for step in itertools.repeat(0.5, 24):
        await clock.advance(step)
    assert fired == [0.3, 0.3, 3.0, 10.0]
    assert len(deadlines) == 0


def test_addresses_are_read_as_people_write_them() -> None:
    assert parse_address("[::1]:9876") == ("::1", 9876)
    assert parse_address("broker.example:10911") == ("broker.example", 10911)
    assert parse_addresses(" a:1; b:2 ;;a:1") == ["a:1", "b:2"]


def test_what_is_advertised_is_the_setting_else_the_bound_address_else_an_own_one() -> None:
    assert advertised_host("broker.example", "0.0.0.0") == "broker.example"
    assert advertised_host("", "127.0.0.1") == "127.0.0.1"
    assert advertised_host("", "0.0.0.0") == own_address() != "0.0.0.0"

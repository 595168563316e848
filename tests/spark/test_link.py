"""The blocking connection: frames cut anywhere, of any size, in any order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arrowmq.spark.blocking_link import BUFFER_BYTES, RUN_WINDOW, Link, LinkLost, LinkTls
from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.spark.sink.exchange import Run
from arrowmq.testing import BrokerThread
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from certificates import Authority, key_of

Talk = Callable[[socket.socket, list[Command]], None]


@contextmanager
def linked(talk: Talk, expected: int, timeout_s: float = 10) -> Iterator[Link]:
    """A link to a server that waits for `expected` requests and then does what `talk` says, once."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            splitter = FrameSplitter()
            requests: list[Command] = []
            while len(requests) < expected:
                data = peer.recv(65536)
                if not data:
                    return
                requests += splitter.feed(data)
            talk(peer, requests)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    link = Link(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s)
    try:
        yield link
    finally:
        link.close()
        listener.close()
        thread.join(10)


def ask(count: int) -> list[Command]:
    return [Command.request(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": str(n)}) for n in range(count)]


@pytest.mark.parametrize("step", [1000, 65536, 1 << 20])
def test_answers_of_any_size_cut_anywhere_and_out_of_order_find_their_requests(step: int) -> None:
    sizes = [0, 5, 70_000, BUFFER_BYTES, 3, BUFFER_BYTES * 3, 1, BUFFER_BYTES - 100]

    def talk(peer: socket.socket, requests: list[Command]) -> None:
        answers = [
            request.answer(0, body=bytes([n]) * size)
            for n, (request, size) in enumerate(zip(requests, sizes, strict=True))
        ]
        data = b"".join(encode_frame(answers[n]) for n in (3, 0, 5, 1, 2, 4, 7, 6))
        for first in range(0, len(data), step):
            peer.sendall(data[first : first + step])

    with linked(talk, len(sizes)) as link:
        commands = ask(len(sizes))
        link.send(commands)
        for number, (command, size) in enumerate(zip(commands, sizes, strict=True)):
            assert bytes([number]) * size == bytes(link.receive(command.opaque).body)


def test_many_requests_are_answered_in_their_order() -> None:
    def talk(peer: socket.socket, requests: list[Command]) -> None:
        splitter = FrameSplitter()
        answered = 0
        while answered < 1000:
            peer.sendall(b"".join(encode_frame(each.answer(0, remark=each.ext["queueId"])) for each in requests))
            answered += len(requests)
            requests = splitter.feed(peer.recv(1 << 20)) if answered < 1000 else []

    with linked(talk, 1) as link:
        answers = link.call_many(iter(ask(1000)), window=128)
        assert [str(number) for number in range(1000)] == [answer.remark for answer in answers]


def test_a_request_of_the_broker_among_answers_is_handled() -> None:
    question = Command.request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "M"})

    def talk(peer: socket.socket, requests: list[Command]) -> None:
        peer.sendall(encode_frame(requests[0].answer(0)) + encode_frame(question))
        done.wait(10)

    done = threading.Event()
    asked: list[str] = []
    with linked(talk, 1) as link:
        link.on_request = lambda command: asked.append(command.ext["msgId"])
        assert 0 == link.call(ask(1)[0]).code
        while not asked:
            link.drain()
        done.set()
    assert ["M"] == asked


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\1\0half", "closed the connection"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request", "is it a RocketMQ server"),
    ],
)
def test_an_answer_that_is_none_ends_the_connection_with_a_reason(data: bytes, said: str) -> None:
    with linked(lambda peer, _: peer.sendall(data), 1) as link, pytest.raises(LinkLost, match=said):
        link.call(ask(1)[0])


def test_silence_ends_the_wait() -> None:
    done = threading.Event()
    with linked(lambda peer, _: bool(done.wait(10)) and None, 1, timeout_s=0.05) as link:
        with pytest.raises(LinkLost, match=r"did not answer within 0\.05 s"):
            link.call(ask(1)[0])
        done.set()


def test_a_run_of_requests_by_tls_is_answered_by_a_broker_that_asks_for_a_certificate(tmp_path: Path) -> None:
    """More than a window of them, in pieces larger than a record; and who shows none is told why."""
    authority = Authority(tmp_path / "tls")
    server, client = authority.make("server"), authority.make("client")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.trust),
        "tls.server.certPath": str(server),
        "tls.server.keyPath": str(key_of(server)),
        "tls.client.certPath": str(client),
        "tls.client.keyPath": str(key_of(client)),
    }
    header = {
        "a": "g", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip
    count = 3 * RUN_WINDOW
    with BrokerThread(settings=settings) as broker:
        tls = LinkTls(str(authority.trust), str(client), str(key_of(client)))
        cluster = Cluster(Connection((broker.namesrv,), tls=tls))
        assert cluster.brokers()
        run = Run(count)
        frames = []
        for number in range(count):
            command = Command.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number * 300)
            command.opaque = run.first_opaque + number
            frames.append(encode_frame(command))
        pieces = [(b"".join(frames[at : at + 256]), 256) for at in range(0, count, 256)]
        cluster.link(broker.broker_address).exchange(pieces, run)
        assert count == run.answered
        (answer,) = cluster.link(broker.broker_address).call_many(
            [Command.request(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})]
        )
        assert str(count) == answer.ext["offset"]
        cluster.close()
        for wrong in (None, LinkTls(str(authority.trust)), LinkTls(str(client))):
            with pytest.raises(LinkLost):
                Link(broker.broker_address, 5, tls=wrong).call(ask(1)[0])

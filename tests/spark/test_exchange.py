"""Runs of requests and their answers: native and plain write and read the same, and every answer finds its place."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq import native
from arrowmq.spark.blocking_link import RUN_WINDOW, Link, LinkLost
from arrowmq.spark.cluster import Cluster, Connection, Refusal
from arrowmq.spark.sink import _exchange_plain as plain
from arrowmq.spark.sink.exchange import DONE, FIRST_OPAQUE, Run, end_frames, read_answers
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.ids import offset_message_id
from arrowmq.wire.message_queue import MessageQueue

offsets = st.integers(0, 2**62)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)


@given(
    texts, texts, st.lists(st.tuples(offsets, offsets), max_size=20), st.sampled_from((8, 12)), st.integers(1, 2**30)
)
def test_both_write_the_same_ends(
    group: str, broker: str, places: list[tuple[int, int]], decision: int, opaque: int
) -> None:
    written = end_frames(group, broker, places, decision, opaque)
    assert plain.end_frames(group, broker, places, decision, opaque) == written
    read = FrameSplitter().feed(written)
    assert places == [(int(each.ext["tranStateTableOffset"]), int(each.ext["commitLogOffset"])) for each in read]
    assert [opaque + number for number in range(len(places))] == [each.opaque for each in read]


def answer_to(dice: random.Random, opaque: int) -> Command:
    """Mostly what brokers answer, and some that they hardly do."""
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque, serialize_type=0 if dice.random() < 0.1 else 1)
    kind = dice.randrange(12)
    if kind < 3:
        return request.answer(0)
    ext = {
        "queueOffset": dice.choice(("0", "7", str(2**50), "-1", "", "x", "9" * 19)) if kind == 3 else "123",
        "msgId": dice.choice(("", "short", "G" * 32, "F" * 32)) if kind == 4 else offset_message_id(b"abcd", 9, opaque),
        "queueId": "3",
        "transactionId": "AB",
    }
    if kind == 5:
        del ext[dice.choice(("queueOffset", "msgId"))]
    if kind == 6:
        return request.answer(dice.choice((1, 10, 14)), remark="no")
    if kind == 7:
        return request.answer(0, ext, remark="so so")
    if kind == 8:
        return request.answer(0, ext, b"body")
    if kind == 9:
        return Command.request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "M"}, b"record")
    return request.answer(0, ext)


@pytest.mark.parametrize("seed", range(30))
def test_both_read_the_same_answers(seed: int) -> None:
    dice = random.Random(seed)
    opaques = dice.sample(range(FIRST_OPAQUE - 3, FIRST_OPAQUE + 40), 40)
    data = b"".join(encode_frame(answer_to(dice, opaque)) for opaque in opaques)
    if dice.random() < 0.5:
        data = data[: dice.randrange(len(data))]
    position = 0
    while position < len(data):
        mine: list[tuple[int, int] | None] = [None] * 30
        theirs = list(mine)
        most = dice.choice((1, 5, 100))
        got = read_answers(memoryview(data)[position:], FIRST_OPAQUE, mine, most)
        assert plain.read_answers(memoryview(data)[position:], FIRST_OPAQUE, theirs, most) == got
        assert theirs == mine
        # Past what stopped both of them.
        position += got[0]
        position += 4 + int.from_bytes(data[position : position + 4], "big")


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_answer_is_never_read_as_another_place(seed: int) -> None:
    """The native reader takes no more than the plain one, whatever the bytes; and reads nothing behind their end."""
    dice = random.Random(1000 + seed)
    data = bytearray(b"".join(encode_frame(answer_to(dice, FIRST_OPAQUE + number)) for number in range(20)))
    for _ in range(dice.randrange(1, 6)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    mine: list[tuple[int, int] | None] = [None] * 20
    theirs = list(mine)
    taken = read_answers(memoryview(data), FIRST_OPAQUE, mine, 20)[1]
    assert plain.read_answers(memoryview(data), FIRST_OPAQUE, theirs, 20)[1] >= taken
    assert all(place is None or theirs[number] == place for number, place in enumerate(mine))


def test_the_native_form_is_there_where_the_others_are() -> None:
    from arrowmq.spark.sink import exchange
    from arrowmq.wire import frames as frame

    assert native.is_native(frame._frames) == native.is_native(exchange._exchange)


Talk = Callable[[socket.socket, Iterator[Command]], None]


@contextmanager
def linked(talk: Talk, timeout_s: float = 10) -> Iterator[Link]:
    """A link to a server that answers as `talk` says."""
    listener = socket.create_server(("127.0.0.1", 0))

    def requests(peer: socket.socket) -> Iterator[Command]:
        splitter = FrameSplitter()
        while data := peer.recv(65536):
            yield from splitter.feed(data)

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            talk(peer, requests(peer))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    link = Link(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s)
    try:
        yield link
    finally:
        link.close()
        listener.close()
        thread.join(10)


def pieces(run: Run, count: int, size: int = 100) -> Iterator[tuple[bytes, int]]:
    for first in range(0, count, size):
        places = [(number, number) for number in range(first, min(count, first + size))]
        yield end_frames("g", "b", places, 8, run.first_opaque + first), len(places)


def test_answers_in_any_order_with_questions_between_them_find_their_requests() -> None:
    question = Command.request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "M"})

    def talk(peer: socket.socket, requests: Iterator[Command]) -> None:
        dice = random.Random(1)
        waiting: list[Command] = []
        for request in requests:
            waiting.append(request)
            if len(waiting) == 100:
                dice.shuffle(waiting)
                answers = [
                    each.answer(
                        0 if int(each.ext["commitLogOffset"]) % 50 else 1,
                        {
                            "queueOffset": each.ext["commitLogOffset"],
                            "msgId": offset_message_id(b"abcd", 1, each.opaque),
                        },
                    )
                    for each in waiting
                ]
                peer.sendall(b"".join(map(encode_frame, answers[:60])) + encode_frame(question))
                peer.sendall(b"".join(map(encode_frame, answers[60:])))
                waiting.clear()

    asked: list[str] = []
    with linked(talk) as link:
        link.on_request = lambda command: asked.append(command.ext["msgId"])
        run = Run(5000)
        link.exchange(pieces(run, 5000), run)
    assert ["M"] * 50 == asked
    for number, answer in enumerate(run.answers()):
        if number % 50:
            assert (number, run.first_opaque + number) == answer
        else:
            assert isinstance(answer, Command)
            assert 1 == answer.code
    assert 100 == len(run.unusual())


def test_a_server_that_writes_before_it_reads_does_not_hold_both_up() -> None:
    """A broker with many questions stops reading until they are taken: a writer that only writes would wait forever."""
    questions = encode_frame(Command.request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "M"}, bytes(1000))) * 16_000

    def talk(peer: socket.socket, requests: Iterator[Command]) -> None:
        first = next(requests)
        peer.sendall(questions)
        peer.sendall(encode_frame(first.answer(0)))
        for request in requests:
            peer.sendall(encode_frame(request.answer(0)))

    asked: list[Command] = []
    with linked(talk) as link:
        link.on_request = asked.append
        run = Run(RUN_WINDOW)
        link.exchange(pieces(run, RUN_WINDOW, RUN_WINDOW), run)
    assert [DONE] * RUN_WINDOW == run.answers()
    assert 16_000 == len(asked)


def test_what_was_answered_before_the_connection_broke_is_known() -> None:
    def talk(peer: socket.socket, requests: Iterator[Command]) -> None:
        for _, request in zip(range(150), requests, strict=False):
            peer.sendall(encode_frame(request.answer(0)))
        peer.shutdown(socket.SHUT_WR)
        list(requests)  # read and not answered: closing now would throw away the answers, too

    with linked(talk) as link:
        run = Run(5000)
        with pytest.raises(LinkLost, match="closed the connection"):
            link.exchange(pieces(run, 5000), run)
    answers = run.answers()
    assert 150 == run.answered
    assert [DONE] * 150 == answers[:150]
    assert [None] * 4850 == answers[150:]


def test_a_server_that_takes_nothing_ends_the_wait() -> None:
    done = threading.Event()
    with linked(lambda peer, requests: bool(done.wait(10)) and None, timeout_s=0.05) as link:
        run = Run(2)
        with pytest.raises(LinkLost, match=r"takes no more requests for 0\.05 s|did not answer within 0\.05 s"):
            link.exchange(((bytes(64 << 20), 1) for _ in range(2)), run)
        done.set()


# ------------------------------------------------------------------------------------------------ sending half messages


def halves(count: int) -> list[Outgoing]:
    marks = {"TRAN_MSG": "true", "PGROUP": "g"}
    queue = MessageQueue("T", "broker-a", 0)
    return [Outgoing(queue, b"%d" % number, {**marks, "UNIQ_KEY": f"U{number}"}) for number in range(count)]


def sender_to(link: Link) -> Sender:
    cluster = Cluster(Connection(("nowhere:1",), patience_s=10))
    cluster.learn({"broker-a": link.address})
    cluster._links[link.address] = link
    return Sender(cluster, "g", {})


def test_half_messages_that_a_busy_broker_did_not_take_are_sent_again() -> None:
    """Whatever it says of each of them, every half message that was stored is noted once, and no other."""
    stored: list[int] = []

    def talk(peer: socket.socket, requests: Iterator[Command]) -> None:
        refusals = {3: ResponseCode.SYSTEM_BUSY, 5: ResponseCode.SERVICE_NOT_AVAILABLE}
        late = {7: ResponseCode.FLUSH_DISK_TIMEOUT}
        for request in requests:
            number = int(request.body)
            code = refusals.pop(number, None)
            if code is not None:
                peer.sendall(encode_frame(request.answer(code, remark="later")))
                continue
            place = {"queueOffset": str(len(stored)), "msgId": offset_message_id(b"abcd", 1, 100 + number)}
            peer.sendall(encode_frame(request.answer(late.get(number, 0), place)))
            stored.append(number)

    with linked(talk) as link:
        sender = sender_to(link)
        sender.send(halves(10))
    assert [0, 1, 2, 4, 6, 7, 8, 9, 3, 5] == stored
    # They are ended, and so become visible, in the order of the rows.
    assert [(stored.index(number), 100 + number) for number in range(10)] == sender.halves.places["broker-a"]
    assert (10, {"T"}) == (sender.sent, sender.halves.topics)


def test_what_was_stored_before_a_refusal_is_noted_so_that_it_can_be_rolled_back() -> None:
    def talk(peer: socket.socket, requests: Iterator[Command]) -> None:
        for request in requests:
            number = int(request.body)
            place = {"queueOffset": str(number), "msgId": offset_message_id(b"abcd", 1, number)}
            answer = (
                request.answer(0, place) if number != 2 else request.answer(ResponseCode.NO_PERMISSION, remark="no")
            )
            peer.sendall(encode_frame(answer))

    with linked(talk) as link:
        sender = sender_to(link)
        with pytest.raises(Refusal, match="sending to topic T: NO_PERMISSION: no"):
            sender.send(halves(4))
    assert {"broker-a": [(0, 0), (1, 1), (3, 3)]} == sender.halves.places

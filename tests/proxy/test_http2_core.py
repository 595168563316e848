"""What every HTTP/2 core does; each test runs on the pure-Python reference and on the native module."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import h2.events
import h2.settings
import hpack
import pytest
from http2_peer import PREFACE, REQUEST, Peer, frame

from arrowmq.proxy.http2.core import Core
from arrowmq.proxy.http2.events import DATA, DRAINED, END, GOAWAY, HEADERS, PONG, RESET, ErrorCode, Limits
from arrowmq.proxy.http2.events import REQUEST as REQUEST_EVENT

OK = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]
MakeCore = Callable[..., Core]


def forms() -> list[str]:
    try:
        importlib.import_module("arrowmq.proxy.http2._core_native")
    except ModuleNotFoundError:
        return ["plain"]
    return ["plain", "native"]


@pytest.fixture(params=forms())
def make_core(request: pytest.FixtureRequest) -> MakeCore:
    module = importlib.import_module(f"arrowmq.proxy.http2._core_{request.param}")
    return lambda **limits: module.Http2Core(Limits(**limits))


@pytest.fixture
def peer(make_core: MakeCore) -> Peer:
    return Peer(make_core())


def kinds(events: list[Any], stream: int) -> list[int]:
    return [kind for kind, number, _ in events if number == stream]


def ended_with(core: Core, output: bytes = b"") -> int | None:
    """The code of the GOAWAY in what a core wants to send."""
    data = output + core.take()
    while len(data) >= 9:
        length = int.from_bytes(data[:3], "big")
        if data[3] == 7:
            return int.from_bytes(data[13:17], "big")
        data = data[9 + length :]
    return None


def opened(core: Core) -> Core:
    core.receive(PREFACE + frame(4, 0, 0))
    core.take()
    return core


def block(headers: list[tuple[str, str]] | None = None) -> bytes:
    return bytes(hpack.Encoder().encode(headers or REQUEST))


def test_a_request_and_its_answer(peer: Peer) -> None:
    stream = peer.request(data=b"hello")
    events = peer.exchange()
    assert [HEADERS, DATA, END] == kinds(events, stream)
    assert {(name.encode(), value.encode()) for name, value in REQUEST} == set(events[0][2])
    assert b"hello" == events[1][2]
    peer.core.respond(stream, OK, b"world", TRAILERS)
    peer.exchange()
    assert [b"world"] == [event.data for event in peer.of(h2.events.DataReceived)]
    assert [("grpc-status", "0")] == list(peer.of(h2.events.TrailersReceived)[0].headers)
    assert 1 == len(peer.of(h2.events.StreamEnded))
    assert 0 == peer.core.open_streams


def test_a_request_that_comes_whole_may_be_one_event(peer: Peer) -> None:
    """By the native core; one that is cut into several frames comes as before."""
    peer.core.merges_requests = True
    streams = [peer.request(data=b"one"), peer.request(data=b"two"), peer.request()]
    cut = peer.request(data=b"three", end=False)
    peer.h2.send_data(cut, b"four", end_stream=True)
    events = peer.exchange()
    if kinds(events, streams[0]) != [HEADERS, DATA, END]:
        expected = {(name.encode(), value.encode()) for name, value in REQUEST}
        for stream, data in zip(streams, (b"one", b"two"), strict=False):
            assert [REQUEST_EVENT] == kinds(events, stream)
            (found,) = [value for _, number, value in events if number == stream]
            assert (expected, data) == (set(found[0]), found[1])
    assert [HEADERS, END] == kinds(events, streams[2])
    assert [HEADERS, DATA, DATA, END] == kinds(events, cut)
    for stream in (*streams, cut):
        peer.core.respond(stream, OK, b"answer", TRAILERS)
    peer.exchange()
    assert 4 == len(peer.of(h2.events.StreamEnded))
    assert 0 == peer.core.open_streams


def test_a_stream_is_open_until_it_is_answered_or_cancelled(peer: Peer) -> None:
    answered, cancelled = peer.request(data=b"x"), peer.request(data=b"x")
    peer.h2.reset_stream(cancelled)
    peer.exchange()
    assert (True, False) == (peer.core.is_open(answered), peer.core.is_open(cancelled))
    peer.core.respond(answered, OK, b"answer", TRAILERS)
    assert not peer.core.is_open(answered)


def test_data_that_the_window_holds_back_comes_when_it_opens(peer: Peer) -> None:
    peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    peer.exchange()
    stream = peer.request()
    peer.exchange()
    peer.core.respond(stream, OK, b"x" * 25, TRAILERS)
    peer.exchange()
    assert 10 == sum(len(event.data) for event in peer.of(h2.events.DataReceived))
    assert (15, 15) == (peer.core.unsent(stream), peer.core.unsent_total)
    assert not peer.of(h2.events.TrailersReceived)
    peer.h2.increment_flow_control_window(15, stream)
    peer.exchange()
    assert 25 == sum(len(event.data) for event in peer.of(h2.events.DataReceived))
    assert 1 == len(peer.of(h2.events.TrailersReceived))
    assert 0 == peer.core.unsent_total


def test_a_stream_tells_when_it_has_caught_up(peer: Peer) -> None:
    peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 4})
    peer.exchange()
    stream = peer.request(end=False)
    peer.exchange()
    peer.core.send_headers(stream, OK)
    peer.core.send_data(stream, b"123456")
    peer.exchange()
    peer.h2.increment_flow_control_window(100, stream)
    assert [DRAINED] == kinds(peer.exchange(), stream)


def test_a_smaller_initial_window_may_make_a_window_negative(peer: Peer) -> None:
    peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 100})
    peer.exchange()
    stream = peer.request()
    peer.exchange()
    peer.core.send_headers(stream, OK)
    peer.core.send_data(stream, b"x" * 100)
    peer.exchange()
    peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    peer.exchange()
    peer.core.send_data(stream, b"y" * 5)
    peer.h2.increment_flow_control_window(90, stream)
    peer.exchange()
    assert 5 == peer.core.unsent(stream)
    peer.h2.increment_flow_control_window(5, stream)
    peer.exchange()
    assert 0 == peer.core.unsent(stream)


def test_windows_for_what_we_read_are_given_back(peer: Peer) -> None:
    for _ in range(100):
        stream = peer.request(end=False)
        for _ in range(8):
            peer.h2.send_data(stream, b"x" * 16384)
            peer.exchange()
        peer.h2.end_stream(stream)
        peer.exchange()
        peer.core.respond(stream, OK, b"", TRAILERS)
    peer.exchange()
    assert 100 * 8 * 16384 == sum(len(data) for kind, _, data in peer.seen if kind == DATA)


def test_headers_alone_end_a_stream(peer: Peer) -> None:
    stream = peer.request()
    peer.exchange()
    peer.core.send_headers(stream, OK + TRAILERS, end=True)
    peer.exchange()
    assert 1 == len(peer.of(h2.events.StreamEnded))


def test_a_request_that_is_answered_early_is_not_read_further(peer: Peer) -> None:
    stream = peer.request(data=b"part", end=False)
    peer.exchange()
    peer.core.send_headers(stream, OK + TRAILERS, end=True)
    peer.exchange()
    assert [ErrorCode.NO_ERROR] == [event.error_code for event in peer.of(h2.events.StreamReset)]


def test_trailers_of_a_request_end_it(peer: Peer) -> None:
    stream = peer.request(data=b"x", end=False)
    peer.exchange()
    peer.h2.send_headers(stream, [("some", "trailer")], end_stream=True)
    assert [END] == kinds(peer.exchange(), stream)


def test_a_cancelled_stream_is_reported_and_forgotten(peer: Peer) -> None:
    stream = peer.request(end=False)
    peer.exchange()
    peer.h2.reset_stream(stream, 8)
    assert [(RESET, stream, 8)] == peer.exchange()
    peer.core.respond(stream, OK, b"late", TRAILERS)
    peer.core.reset(stream, 2)
    assert b"" == peer.core.take()


def test_pings_are_answered_and_ours_too(peer: Peer) -> None:
    peer.h2.ping(b"12345678")
    peer.exchange()
    assert 1 == len(peer.of(h2.events.PingAckReceived))
    peer.core.ping(b"abcdefgh")
    assert (PONG, 0, b"abcdefgh") in peer.exchange()


def test_a_peer_that_leaves_is_reported(peer: Peer) -> None:
    peer.h2.close_connection(3)
    assert (GOAWAY, 0, 3) in peer.exchange()


def test_goaway_lets_open_streams_end(peer: Peer) -> None:
    stream = peer.request()
    peer.exchange()
    peer.core.goaway()
    peer.core.respond(stream, OK, b"still", TRAILERS)
    data = peer.core.take()
    assert b"still" in data
    assert 0 == ended_with(peer.core, data)


def test_bytes_may_come_one_by_one(make_core: MakeCore) -> None:
    core = make_core()
    data = PREFACE + frame(4, 0, 0) + frame(1, 4, 1, block()) + frame(0, 1, 1, b"body")
    events = [event for byte in data for event in core.receive(bytes([byte]))]
    assert [HEADERS, DATA, END] == kinds(events, 1)


def test_header_blocks_may_be_cut_and_padded(make_core: MakeCore) -> None:
    core = opened(make_core())
    head = block()
    padded = bytes([3]) + bytes([0, 0, 0, 0, 15]) + head[:5] + bytes(3)
    events = core.receive(frame(1, 8 | 32, 1, padded) + frame(9, 0, 1, head[5:9]) + frame(9, 4, 1, head[9:]))
    assert [HEADERS] == kinds(events, 1)
    events = core.receive(frame(0, 8 | 1, 1, bytes([2]) + b"xy" + bytes(2)))
    assert [(DATA, 1, b"xy"), (END, 1, None)] == events


def test_the_dynamic_table_is_kept_over_requests(peer: Peer) -> None:
    for number in range(50):
        stream = peer.request([*REQUEST, ("x-number", str(number % 7)), ("x-long", "v" * 200)])
        events = peer.exchange()
        assert (b"x-number", str(number % 7).encode()) in events[0][2]
        peer.core.respond(stream, OK, b"a", TRAILERS)
        peer.exchange()


# --- peers that break the protocol ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (frame(0, 0, 0, b"x"), (1,)),  # data on no stream
        (frame(0, 0, 1, b"x"), (1, 5)),  # data on a stream that has not begun
        (frame(4, 0, 0, b"12345"), (6,)),  # settings of a strange length
        (frame(4, 1, 0, bytes(6)), (1, 6)),  # an acknowledgement with content
        (frame(4, 0, 1), (1,)),  # settings on a stream
        (frame(4, 0, 0, b"\x00\x05\x00\x00\x00\x01"), (1,)),  # frames of one byte
        (frame(4, 0, 0, b"\x00\x04\xff\xff\xff\xff"), (3,)),  # a window beyond 2^31 - 1
        (frame(6, 0, 0, b"1234567"), (6,)),  # a ping of seven bytes
        (frame(6, 0, 1, bytes(8)), (1,)),  # a ping on a stream
        (frame(8, 0, 0, bytes(4)), (1,)),  # a window opened by nothing
        (frame(8, 0, 0, b"\x7f\xff\xff\xff"), (3,)),  # and by too much
        (frame(8, 0, 0, bytes(3)), (6,)),
        (frame(3, 0, 0, bytes(4)), (1,)),  # a reset of no stream
        (frame(3, 0, 1, bytes(4)), (1,)),  # and of one that has not begun
        (frame(9, 4, 1, b""), (1,)),  # a continuation of nothing
        (frame(5, 4, 1, bytes(4)), (1,)),  # a promise from a client
        (frame(1, 4, 2, block()), (1,)),  # a client's stream with an even number
        (frame(1, 4, 0, block()), (1,)),
        (frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"), (1, 9)),  # not HPACK
        (frame(1, 4, 1, b"\xc0"), (1, 9)),  # an entry that is not in the table
        (frame(1, 0, 1, block()[:3]) + frame(0, 0, 1, b"x"), (1,)),  # no continuation where one must come
        (frame(1, 4, 1, block()) + b"\xff\xff\xff" + frame(0, 0, 1)[3:] + bytes(20), (6,)),  # a frame of 16 MiB
        (frame(1, 4 | 8, 1, b"\x20" + block()[:4]), (1,)),  # padding longer than the frame
    ],
)
def test_a_breach_of_the_protocol_ends_the_connection(make_core: MakeCore, data: bytes, codes: tuple[int, ...]) -> None:
    core = opened(make_core())
    core.receive(data)
    assert core.is_ended
    assert ended_with(core) in codes
    assert [] == core.receive(frame(6, 0, 0, bytes(8)))


def test_what_is_not_http2_ends_the_connection(make_core: MakeCore) -> None:
    core = make_core()
    core.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert core.is_ended


def test_unknown_frames_and_settings_are_passed_over(make_core: MakeCore) -> None:
    core = opened(make_core())
    core.receive(frame(0xEE, 7, 0, b"what") + frame(4, 0, 0, b"\x00\x99\x00\x00\x00\x01"))
    assert [HEADERS, END] == kinds(core.receive(frame(1, 5, 1, block())), 1)


# --- peers that ask too much ----------------------------------------------------------------------------------------


def test_rapid_reset_ends_the_connection(make_core: MakeCore) -> None:
    core = opened(make_core(cancelled_streams=100))
    for number in range(1, 1000, 2):
        core.receive(frame(1, 5, number, block()) + frame(3, 0, number, (8).to_bytes(4, "big")))
        if core.is_ended:
            break
    assert core.is_ended
    assert 203 >= number
    assert ErrorCode.ENHANCE_YOUR_CALM == ended_with(core)


def test_streams_that_are_answered_pay_for_some_that_are_cancelled(make_core: MakeCore) -> None:
    core = opened(make_core(cancelled_streams=100))
    for number in range(1, 4000, 4):
        core.receive(frame(1, 5, number, block()))
        core.respond(number, OK, b"", TRAILERS)
        core.receive(frame(1, 5, number + 2, block()) + frame(3, 0, number + 2, (8).to_bytes(4, "big")))
    assert not core.is_ended


@pytest.mark.parametrize(
    "idle",
    [
        frame(4, 0, 0, b"\x00\x03\x00\x00\x00\x64"),
        frame(6, 0, 0, bytes(8)),
        frame(2, 0, 1, bytes(5)),
        frame(8, 0, 0, b"\x00\x00\x00\x01"),
        frame(0, 0, 1, b""),
    ],
)
def test_frames_that_ask_for_nothing_are_limited(make_core: MakeCore, idle: bytes) -> None:
    core = opened(make_core(idle_frames=500))
    core.receive(frame(1, 4, 1, block()))
    for _ in range(500):
        core.receive(idle)
    assert not core.is_ended
    for _ in range(3):
        core.receive(idle)
    assert core.is_ended
    assert ErrorCode.ENHANCE_YOUR_CALM == ended_with(core)


def test_time_makes_up_for_frames_that_ask_for_nothing(make_core: MakeCore) -> None:
    core = opened(make_core(idle_frames=10))
    for _ in range(100):
        core.receive(frame(6, 0, 0, bytes(8)))
        core.relax()
    assert not core.is_ended


def test_a_header_block_has_an_end(make_core: MakeCore) -> None:
    core = opened(make_core())
    core.receive(frame(1, 0, 1, block()))
    for _ in range(200):
        core.receive(frame(9, 0, 1, b""))
    assert core.is_ended


def test_a_small_block_cannot_become_a_large_list(make_core: MakeCore) -> None:
    """One entry of 4 KB in the table, named a thousand times by one byte each."""
    core = opened(make_core())
    entry = bytes(hpack.Encoder().encode([("a", "v" * 3900)]))
    core.receive(frame(1, 4, 1, entry + b"\xbe" * 1000))
    assert core.is_ended or 0 == core.open_streams


def test_more_streams_than_allowed_are_refused(make_core: MakeCore) -> None:
    core = opened(make_core(concurrent_streams=3))
    core.receive(frame(4, 1, 0))
    for number in range(1, 13, 2):
        core.receive(frame(1, 4, number, block()))
    assert 3 >= core.open_streams

"""Buffers of large frames are used again, and never while somebody still looks into one."""

from __future__ import annotations

import asyncio
from typing import Any

from arrowmq.remoting.handlers import Answer, Call, handles
from arrowmq.remoting.large_buffers import KEPT_BYTES, START_BYTES, LargeBuffers
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame

ECHO = 7001
BODY_BYTES = 700_000  # more than is read at once


class Echo:
    @handles(ECHO)
    def echo(self, call: Call) -> Answer:
        return Answer(body=call.body)


class Talk:
    """One connection: frames go out in pieces, and come back whole."""

    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")

    async def __aenter__(self) -> Talk:
        self.reader, self.writer = await asyncio.open_connection(self.host, int(self.port))
        self.splitter = FrameSplitter()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def echo(self, body: bytes, piece: int) -> bytes:
        data = encode_frame(Command.request(ECHO, opaque=1, body=body))
        for start in range(0, len(data), piece):
            self.writer.write(data[start : start + piece])
            await asyncio.sleep(0)
        answers = list[Command]()
        while not answers:
            answers = self.splitter.feed(await self.reader.read(1 << 20))
        return answers[0].body


def test_a_buffer_is_used_again_by_a_frame_that_fits() -> None:
    buffers = LargeBuffers()
    buffer = buffers.take(3 * START_BYTES - 9, 2 * START_BYTES)
    assert len(buffer) == 3 * START_BYTES
    buffers.give_back(buffer)
    assert buffers.take(3 * START_BYTES + 1, 0) is not buffer
    assert buffers.take(3 * START_BYTES, 0) is buffer
    assert buffers.spare_bytes == 0


def test_a_new_buffer_is_not_longer_than_what_came_makes_believable() -> None:
    assert len(LargeBuffers().take(16_000_000, 10)) == START_BYTES
    assert len(LargeBuffers().take(16_000_000, START_BYTES)) == 2 * START_BYTES


def test_a_buffer_with_views_is_not_given_to_others_before_they_are_gone() -> None:
    buffers = LargeBuffers()
    buffer = buffers.take(START_BYTES, 0)
    view = memoryview(buffer)[10:20]
    buffers.give_back(buffer)
    assert buffers.take(START_BYTES, 0) is not buffer
    view.release()
    assert buffers.take(START_BYTES, 0) is buffer


def test_what_is_kept_is_bounded_and_forgotten() -> None:
    buffers = LargeBuffers()
    for buffer in [buffers.take(START_BYTES, 0) for _ in range(2 * KEPT_BYTES // START_BYTES)]:
        buffers.give_back(buffer)
    assert buffers.spare_bytes == KEPT_BYTES
    buffers.forget()
    assert buffers.spare_bytes == 0
    assert len(buffers.take(START_BYTES, 0)) == START_BYTES
    assert buffers.spare_bytes == 0


async def test_what_a_fast_path_still_looks_at_is_not_overwritten_by_the_next_frame(start_server: Any) -> None:
    seen: dict[int, memoryview] = {}

    def looking(_: Any, view: memoryview) -> tuple[int, None]:
        if len(view) > BODY_BYTES:
            seen[view[-1]] = view[-BODY_BYTES:]
        return 0, None

    _, address = await start_server(Echo(), fast_path=looking)
    bodies = {letter: bytes([letter]) * BODY_BYTES for letter in b"abcd"}
    async with Talk(address) as talk:
        for body in bodies.values():
            assert await talk.echo(body, BODY_BYTES) == body
    assert {letter: bytes(view) for letter, view in seen.items()} == bodies


async def test_frames_of_many_lengths_in_pieces_on_many_connections_stay_apart(start_server: Any) -> None:
    _, address = await start_server(Echo())

    async def converse(number: int) -> None:
        async with Talk(address) as talk:
            for turn in range(6):
                body = bytes([65 + number]) * (20_000 + (number * 7919 + turn * 104_729) % 400_000)
                assert await talk.echo(body, 30_011) == body

    await asyncio.gather(*(converse(number) for number in range(20)))

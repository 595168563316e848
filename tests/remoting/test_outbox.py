"""Goal: an outbox hands over everything in order, and copies only what it must."""

from __future__ import annotations

from asyncio import Transport
from typing import Any

import pytest

from arrowmq.remoting.outbox import HAND_OVER_BYTES, JOIN_BYTES, Outbox


class Taking(Transport):
    """An encrypted transport that takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.taken.append(data)


def test_a_large_answer_is_handed_over_as_it_is() -> None:
    """Copying it first cost an encrypted pull more than its encryption: fresh memory for each."""
    transport = Taking()
    outbox = Outbox(transport, -1)
    answer, next_answer = bytes(JOIN_BYTES + 1), bytes(10)
    outbox.add(answer)
    outbox.add(next_answer)
    outbox.flush()
    assert [answer, next_answer] == transport.taken
    assert transport.taken[0] is answer
    assert outbox.waiting_bytes == 0


@pytest.mark.parametrize("sizes", [[1, 2, 3], [HAND_OVER_BYTES + 5, 7], [JOIN_BYTES + 1, 1, 1], [40_000] * 20])
def test_pieces_are_bounded_and_in_order(sizes: list[int]) -> None:
    transport = Taking()
    outbox = Outbox(transport, -1)
    sent = b""
    for number, size in enumerate(sizes):
        part = bytes([number]) * size
        outbox.add(memoryview(bytearray(part)) if number % 2 else part)
        sent += part
    outbox.flush()
    assert sent == b"".join(transport.taken)
    assert max(map(len, transport.taken)) <= HAND_OVER_BYTES
    assert all(type(piece) is bytes for piece in transport.taken)
    assert outbox.taken_bytes == len(sent)


def test_a_transport_that_takes_no_more_is_not_given_more() -> None:
    transport = Taking()
    outbox = Outbox(transport, -1)
    released: list[str] = []
    outbox.add_parts([bytes(10)], lambda: released.append("first"))
    outbox.is_blocked = True
    outbox.flush()
    assert not transport.taken
    assert not released
    outbox.is_blocked = False
    outbox.flush()
    assert [bytes(10)] == transport.taken
    assert released == ["first"]

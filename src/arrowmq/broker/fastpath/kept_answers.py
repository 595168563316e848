"""Answers that wait until what the broker promises of their messages is true."""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.broker.send.message_path import status_of
from arrowmq.remoting.connection import Connection
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.positions import Missed
from arrowmq.wire.frames import Command, FrameSplitter

NotSafe = Callable[[Command, PutStatus], None]


def sender_when_kept(store: MessageStore, not_safe: NotSafe) -> Callable[[Connection, bytes], None]:
    """Takes the answers of a pass, and sends them once what the broker promises is true of all that the pass wrote. If
    that fails or takes too long, `not_safe` changes each answer first."""
    positions = store.positions

    def send_when_kept(connection: Connection, answers: bytes) -> None:
        connection.in_flight += 1

        def send(missed: Missed) -> None:
            if missed:
                for answer in FrameSplitter().feed(answers):
                    not_safe(answer, status_of(missed))
                    connection.send(answer)
            else:
                connection.write_frame([answers])
            connection.in_flight_ended()

        positions.when(positions.appended_end, positions.promised, send)

    return send_when_kept

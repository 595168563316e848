"""Requests and answers of the exactly-once sink, many at a time: the pure-Python reference of `_exchange_native.pyx`.

A run of requests has consecutive opaques, so that an answer's place in a list follows from its opaque.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import FrameError
from arrowmq.wire.frames import Command, decode_frame, encode_frame
from arrowmq.wire.ids import IdError, parse_offset_message_id

Place = tuple[int, int]  # offset in the half queue, offset in the commit log
# In place of an answer that says success and no more.
DONE: Place = (-1, -1)

_LENGTH = struct.Struct(">I")
_DIGITS = 18  # of an offset; longer ones are nobody's


def end_frames(group: str, broker: str, places: Sequence[Place], decision: int, first_opaque: int) -> bytes:
    """END_TRANSACTION for half messages, one frame after another."""
    return b"".join(
        encode_frame(
            Command(
                RequestCode.END_TRANSACTION,
                first_opaque + number,
                ext={
                    "producerGroup": group,
                    "bname": broker,
                    "commitOrRollback": str(decision),
                    "fromTransactionCheck": "false",
                    # Apache's broker demands an id, and only writes it to its log.
                    "msgId": str(log_offset),
                    "tranStateTableOffset": str(queue_offset),
                    "commitLogOffset": str(log_offset),
                },
                serialize_type=1,
            )
        )
        for number, (queue_offset, log_offset) in enumerate(places)
    )


def read_answers(view: memoryview, first_opaque: int, found: list[Place | None], most: int) -> tuple[int, int]:
    """Takes in the answers at the beginning of `view`, at most `most`; how many bytes and answers that were.

    It ends at a frame that is not whole, not an answer to this run, or does not simply say success.
    """
    position = taken = 0
    while taken < most and len(view) - position >= 4:
        (length,) = _LENGTH.unpack_from(view, position)
        if length > len(view) - position - 4:
            break
        try:
            command = decode_frame(view[position + 4 : position + 4 + length])
        except FrameError:
            break
        number = command.opaque - first_opaque
        if command.flag != 1 or command.serialize_type != 1 or not 0 <= number < len(found):
            break
        place = place_of(command)
        if found[number] is not None or place is None:
            break
        found[number] = place
        position += 4 + length
        taken += 1
    return position, taken


def place_of(answer: Command) -> Place | None:
    """Where a half message lies, by the answer to its send; None if the answer is not plain success."""
    if answer.code != 0 or answer.remark is not None or answer.body:
        return None
    queue_offset, message_id = answer.ext.get("queueOffset"), answer.ext.get("msgId")
    if queue_offset is None and message_id is None:
        return DONE
    if queue_offset is None or message_id is None:
        return None
    if not (queue_offset.isascii() and queue_offset.isdecimal() and len(queue_offset) <= _DIGITS):
        return None
    try:
        log_offset = parse_offset_message_id(message_id).physical_offset
    except IdError:
        return None
    return (int(queue_offset), log_offset) if log_offset >= 0 else None

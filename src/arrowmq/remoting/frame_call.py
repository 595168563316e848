"""A call that came as a frame of a connection: its answer is encoded and goes back as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.remoting.handlers import Answer, Call, Reply, answer_to_error, release
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import ONEWAY_FLAG, Command, encode_frame, encode_head

if TYPE_CHECKING:
    from arrowmq.remoting.connection import Connection


class FrameCall(Call):
    __slots__ = ()

    connection: Connection

    def hold(self) -> None:
        """Until it is answered, it also counts as one in flight of its connection."""
        if not self._is_held and not self.is_answered:
            self.connection.in_flight += 1
        super().hold()

    def _deliver(self, reply: Reply) -> None:
        """A one-way request and a closed connection get no answer."""
        connection = self.connection
        command = self.command
        if self._is_held:
            connection.in_flight_ended()
        if command.flag & ONEWAY_FLAG or connection.closed:
            release(reply)
            return
        try:
            frame = _encode(command, reply)
        except Exception as error:  # an answer that cannot be written is a defect of its handler, not of the peer
            release(reply)
            failed = answer_to_error(TypeError(f"the answer cannot be encoded: {error}"), self)
            connection.send(command.answer(failed.code, remark=failed.remark))
            return
        if isinstance(reply, Answer):
            if isinstance(reply.body, list):
                connection.write_frame([frame, *reply.body], reply.on_sent)
                return
            connection.write(frame)
            release(reply)
        else:
            connection.write(frame)


def _encode(command: Command, reply: Reply) -> bytes:
    """The frame of an answer; of one whose body is in pieces, the part before them."""
    if not isinstance(reply, Answer):
        return encode_frame(command.answer(ResponseCode.SUCCESS, reply))
    if isinstance(reply.body, list):
        answer = command.answer(reply.code, reply.header, b"", reply.remark)
        return encode_head(answer, sum(map(len, reply.body)))
    return encode_frame(command.answer(reply.code, reply.header, reply.body, reply.remark))

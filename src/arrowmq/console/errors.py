"""What goes wrong, as an HTTP status and a sentence: the one table for API and pages."""

from __future__ import annotations

from arrowmq.client.errors import (
    ArrowMQError,
    InvalidMessage,
    InvalidName,
    InvalidUse,
    NamesrvUnreachable,
    NoRoute,
    Refused,
    SendFailed,
    TimedOut,
    Unreachable,
)
from arrowmq.inspect.messages.finding import MessageGone
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.ids import IdError

_NOT_FOUND = {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.CONSUMER_NOT_ONLINE,
    ResponseCode.USER_NOT_EXIST,
    ResponseCode.POLICY_NOT_EXIST,
}


class Problem(Exception):
    """A sentence for whoever asked, with the status that goes with it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def is_denied(error: Exception) -> bool:
    """Whoever asks has no right to: that is said, where what is missing for other reasons is left out."""
    return isinstance(error, Refused) and error.code == ResponseCode.NO_PERMISSION


def not_found(sentence: str) -> Problem:
    return Problem(404, sentence)


def bad_request(sentence: str) -> Problem:
    return Problem(400, sentence)


def conflict(sentence: str) -> Problem:
    return Problem(409, sentence)


def problem_of(error: Exception) -> Problem:
    """Any expected error as a problem; an unexpected one is raised again."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, MessageGone | NoRoute):
        return Problem(404, str(error))
    if isinstance(error, InvalidName | InvalidMessage | InvalidUse):
        return Problem(400, str(error))
    if isinstance(error, NamesrvUnreachable | Unreachable):
        return Problem(502, str(error))
    if isinstance(error, TimedOut):
        return Problem(504, str(error))
    if isinstance(error, SendFailed) and error.causes and isinstance(error.causes[-1], Refused):
        return problem_of(error.causes[-1])
    if isinstance(error, Refused):
        if is_denied(error):
            return Problem(403, str(error))
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return Problem(501, str(error))
        return Problem(404 if error.code in _NOT_FOUND else 409, str(error))
    if isinstance(error, ArrowMQError):
        return Problem(404 if "does not exist" in str(error) else 409, str(error))
    if isinstance(error, IdError):
        return Problem(400, str(error))
    if isinstance(error, WireError):
        return Problem(502, f"a server's answer could not be read: {error}")
    raise error

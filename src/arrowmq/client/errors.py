"""What can go wrong for a program that uses the client, each with what failed, against whom, and what to try.

One root, `ArrowMQError`. A time-out is a `TimeoutError` as well and a lost connection a `ConnectionError`, so that code
which knows only Python's own exceptions does the right thing.
"""

from __future__ import annotations

from collections.abc import Sequence

from arrowmq.remoting.errors import ConnectFailed
from arrowmq.wire.codes import ResponseCode

#: What usually helps, by the code of a broker's or NameServer's refusal.
_ADVICE: dict[int, str] = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load: send slower, or add brokers",
    ResponseCode.MESSAGE_ILLEGAL: "check the length of the topic, of the body and of all properties together",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker does not take messages now (disk full, starting, or a slave)",
    ResponseCode.NO_PERMISSION: "check the topic's and the group's permissions, and the credentials of this client",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic first: `arrowmq topic create <topic>`, or Admin.create_topic",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "check the expression of the subscription",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "the broker has not seen this group's heartbeat yet; it comes by itself",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group first: `arrowmq group create <group>`",
    ResponseCode.FLUSH_DISK_TIMEOUT: "the message is stored, but its flush to disk was not confirmed in time",
}


class ArrowMQError(Exception):
    """The root of all errors that the client raises."""


class InvalidMessage(ArrowMQError, ValueError):
    """A message that no broker would take; nothing was sent."""


class InvalidName(ArrowMQError, ValueError):
    """A topic or group name that RocketMQ does not allow."""


class InvalidUse(ArrowMQError, RuntimeError):
    """The client was used in a way that cannot work, such as before its start or after its end."""


class NoRoute(ArrowMQError):
    """No NameServer knows a broker for the topic."""

    def __init__(self, topic: str, namesrv: str, advice: str) -> None:
        super().__init__(f"no route for topic {topic}: NameServer {namesrv} knows no broker that serves it. {advice}")
        self.topic = topic


class NamesrvUnreachable(ArrowMQError, ConnectionError):
    """None of the NameServers answered."""

    def __init__(self, addresses: Sequence[str], causes: Sequence[BaseException]) -> None:
        tried = "; ".join(f"{address}: {cause}" for address, cause in zip(addresses, causes, strict=False))
        super().__init__(f"no NameServer answers ({tried}). Check the addresses and that one of them runs")


class Unreachable(ArrowMQError, ConnectionError):
    """The connection to a server could not be made, or broke before the answer came; `is_in_doubt` says whether the
    request may have reached the server."""

    def __init__(self, what: str, address: str, cause: BaseException) -> None:
        self.is_in_doubt = not isinstance(cause, ConnectFailed)
        doubt = ". Whether it took effect is not known" if self.is_in_doubt else ""
        super().__init__(f"{what} at {address} failed: {cause}{doubt}")
        self.address = address


class TimedOut(ArrowMQError, TimeoutError):
    """A server did not answer in time."""

    def __init__(self, what: str, address: str, timeout_s: float) -> None:
        super().__init__(
            f"{what} at {address}: no answer within {timeout_s:.3g} s. Whether it took effect is not known"
        )
        self.address = address


class Refused(ArrowMQError):
    """A server answered with an error; `code` is RocketMQ's ResponseCode, `remark` the server's own sentence."""

    def __init__(self, what: str, address: str, code: int, remark: str | None) -> None:
        name = ResponseCode(code).name if code in ResponseCode._value2member_map_ else "unknown code"
        advice = f". To try: {_ADVICE[code]}" if code in _ADVICE else ""
        super().__init__(f"{what} was refused by {address}: {code} {name}, {remark or 'without a remark'}{advice}")
        self.address = address
        self.code = code
        self.remark = remark


class SendFailed(ArrowMQError):
    """All attempts to send a message failed; `causes` has one error an attempt, `brokers` whom they went to."""

    def __init__(self, topic: str, brokers: Sequence[str], causes: Sequence[BaseException], spent_ms: float) -> None:
        attempts = "; ".join(f"{broker}: {cause}" for broker, cause in zip(brokers, causes, strict=False))
        super().__init__(f"sending to {topic} failed {len(brokers)} times in {spent_ms:.0f} ms ({attempts})")
        self.topic = topic
        self.brokers = list(brokers)
        self.causes = list(causes)

    @property
    def code(self) -> int | None:
        """The code of the last refusal, or None if no broker answered."""
        return next((cause.code for cause in reversed(self.causes) if isinstance(cause, Refused)), None)


class SendTimedOut(SendFailed, TimeoutError):
    """The time for a send ran out before an attempt succeeded. The message may be stored all the same."""


class ReplyTimedOut(ArrowMQError, TimeoutError):
    """A request was sent but no consumer replied in time."""

"""Who calls: the client's id and what else its metadata says of it."""

from __future__ import annotations

from arrowmq.proxy.faults import Fault
from arrowmq.proxy.grpc.call import Call
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire.codes import LanguageCode

#: The names that clients write beside RocketMQ's own
_LANGUAGES = {
    "GOLANG": LanguageCode.GO,
    "DOT_NET": LanguageCode.DOTNET,
    "C#": LanguageCode.DOTNET,
    "C++": LanguageCode.CPP,
    "NODEJS": LanguageCode.NODE_JS,
    "NODE": LanguageCode.NODE_JS,
}


class Caller:
    __slots__ = ("call", "client_id", "language_text", "user", "version")

    def __init__(self, call: Call) -> None:
        self.call = call
        metadata = call.metadata
        self.client_id = _text(metadata, b"x-mq-client-id")
        self.language_text = _text(metadata, b"x-mq-language")
        self.version = _text(metadata, b"x-mq-client-version")
        self.user: object = None  # who it is, where users are told apart

    @property
    def language(self) -> LanguageCode:
        name = self.language_text.strip().upper()
        if name in LanguageCode.__members__:
            return LanguageCode[name]
        return _LANGUAGES.get(name, LanguageCode.OTHER)

    @property
    def peer(self) -> tuple[str, int]:
        return self.call.connection.peer

    @property
    def peer_text(self) -> str:
        return self.call.connection.peer_text

    @property
    def authorization(self) -> str:
        return _text(self.call.metadata, b"authorization")

    @property
    def date_time(self) -> str:
        return _text(self.call.metadata, b"x-mq-date-time")

    def check(self) -> None:
        if not self.client_id.strip():
            raise Fault(v2.CLIENT_ID_REQUIRED, "client id cannot be empty")

    def remaining_ms(self, now: float) -> int | None:
        """Until the client gives up; None if it waits for ever."""
        if self.call.timeout_s is None:
            return None
        return int((self.call.timeout_s - (now - self.call.began)) * 1000)


def _text(metadata: dict[bytes, bytes], name: bytes) -> str:
    return metadata.get(name, b"").decode("utf-8", "replace")

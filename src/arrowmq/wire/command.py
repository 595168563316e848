"""A command: one request or response, as it travels in one frame."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode
from arrowmq.wire.headers.declare import Header, encode_header

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

SERIALIZE_JSON = 0
SERIALIZE_ROCKETMQ = 1

# Starts at 1: the Node client takes an opaque of 0 for "none".
_opaques = itertools.count(1)


def next_opaque() -> int:
    """A number for a request of ours, positive and 31 bits wide."""
    return (next(_opaques) & 0x7FFFFFFF) or 1


class Command:
    """A request or a response: code, the fields of its custom header as text (`ext`), and its body."""

    __slots__ = ("body", "code", "ext", "flag", "language", "opaque", "remark", "serialize_type", "version")

    def __init__(
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        version: int = CURRENT_VERSION,
        language: int = LanguageCode.PYTHON,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        serialize_type: int = SERIALIZE_JSON,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.version = version
        self.language = language
        self.remark = remark
        self.ext: dict[str, str] = {} if ext is None else ext
        self.body = body
        self.serialize_type = serialize_type

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        opaque: int | None = None,
    ) -> Command:
        """A new request, with the next opaque unless one is given."""
        return cls(
            code=int(code),
            opaque=next_opaque() if opaque is None else opaque,
            flag=ONEWAY_FLAG if oneway else 0,
            ext=_ext(header),
            body=body,
        )

    def answer(
        self,
        code: int = 0,
        header: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> Command:
        """The response to this request: same opaque, same serialization."""
        return Command(
            code=int(code),
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext=_ext(header),
            body=body,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        remark = f" remark={self.remark!r}" if self.remark else ""
        return f"<{kind} code={self.code} opaque={self.opaque}{remark} ext={self.ext} body={len(self.body)} bytes>"


def _ext(header: Header | Mapping[str, str] | None) -> dict[str, str]:
    if header is None:
        return {}
    return encode_header(header) if isinstance(header, Header) else dict(header)

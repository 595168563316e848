"""Requests to one etcd member: HTTP/1.1 with JSON bodies, whole or as a stream. Every length has a bound."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from arrowmq.remoting.address import parse_address

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class HttpFailed(Exception):
    """No answer, or none that is HTTP."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes


class HttpMember:
    """One member of an etcd cluster. Whole requests share a connection, one after another; a stream has its own."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        scheme, _, place = url.partition("://")
        self._host, self._port = parse_address(place)
        self._place = place
        self._tls = tls if scheme == "https" else None
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, body: bytes, headers: dict[str, str], timeout_s: float) -> HttpAnswer:
        """Raises `HttpFailed`. A request may have been carried out all the same."""
        reused = self._idle.pop() if self._idle else None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = reused or await self._connect()
                try:
                    writer.write(self._request(path, body, headers))
                    status, fields = await _read_head(reader)
                    answer = HttpAnswer(status, await _read_body(reader, fields))
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HttpFailed(f"{self.url}: {_sentence(error)}") from error
        if fields.get("connection", "").lower() == "close" or len(self._idle) >= 4:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that does not end. Raises `HttpFailed`, also when it ends all the same."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connect()
        except (OSError, TimeoutError) as error:
            raise HttpFailed(f"{self.url}: {_sentence(error)}") from error
        try:
            writer.write(self._request(path, body, headers))
            yield self._lines(reader)
        except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HttpFailed(f"{self.url}: {_sentence(error)}") from error
        finally:
            writer.close()

    async def _lines(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        status, fields = await _read_head(reader)
        if status != 200:
            body = await _read_body(reader, fields)
            raise ValueError(f"it answered {status}: {body[:200].decode('utf-8', 'replace')}")
        buffer = b""
        async for chunk in _chunks(reader):
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            if len(buffer) > MAX_BODY_BYTES:
                raise ValueError("a line of its stream is too long")
        raise EOFError("it ended the stream")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._host if self._tls is not None else None,
            limit=MAX_HEAD_BYTES,
        )

    def _request(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        fields = {"Host": self._place, "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
        raise ValueError(f"this is no HTTP: {lines[0][:80]!r}")
    fields = (line.partition(":") for line in lines[1:] if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in fields}


async def _read_body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        async for chunk in _chunks(reader):
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ValueError("its answer is too long")
        return body
    length = fields.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        raise ValueError(f"its answer has the length {length[:20]!r}")
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = (await reader.readuntil(b"\r\n")).strip().split(b";")[0]
        size = int(line, 16)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise ValueError(f"a piece of its answer has the length {size}")
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


def _sentence(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return str(error) or type(error).__name__

"""The first thing that sees a request, and the last that sees its answer.

In this order: the host it was sent to, its size and how slowly it comes, who sends it, and for a change whether a page
of ours or a program sent it, and whether changes are allowed at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arrowmq.console.doors.sessions import COOKIE, Sessions, Visitor
from arrowmq.console.errors import Problem
from arrowmq.console.options import ConsoleOptions

LARGEST_BODY_BYTES = 8 << 20
BODY_TIMEOUT_S = 30.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Not by GET, and yet nothing of the cluster is changed by them
CHANGES_NOTHING = ("/api/offsets/plan", "/api/doctor", "/logout")
OPEN_PATHS = ("/static/", "/login", "/favicon.ico")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Guard:
    """ASGI middleware around the whole console."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions, sessions: Sessions) -> None:
        self.app = app
        self.options = options
        self.sessions = sessions
        self._hosts = frozenset(allowed_hosts(options))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        sender = _with_headers(scope, send)
        refusal = self._look(scope)
        if refusal is not None:
            await refusal(scope, receive, sender)
            return
        await self.app(scope, _Limited(scope, receive), sender)

    def _look(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = host_name(headers.get("host", ""))
        if host is None or (self._hosts and host not in self._hosts):
            return PlainTextResponse(
                "this console is not known under that name: use its address, or start it with --host NAME\n", 400
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY_BYTES:
            return _refused(scope, 413, f"a request has at most {LARGEST_BODY_BYTES >> 20} MiB here")
        visitor = self._visitor(scope, headers)
        scope["visitor"] = visitor
        path: str = scope["path"]
        if visitor is None and not path.startswith(OPEN_PATHS):
            if path.startswith("/api/"):
                return _refused(scope, 401, "log in first, or send Authorization: Bearer TOKEN")
            query = scope["query_string"].decode("latin-1")
            target = path + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target)}", 303)
        if scope["method"] in SAFE_METHODS:
            return None
        return self._look_at_change(scope, headers, visitor)

    def _visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            # A wrong token is never taken for an open door.
            return Visitor("token", "bearer") if self.sessions.is_token(given.strip()) else None
        name = HTTPConnection(scope).cookies.get(COOKIE, "")
        if name and (visitor := self.sessions.find(name)) is not None:
            return visitor
        return None if self.options.needs_login else Visitor("local", "open")

    def _look_at_change(self, scope: Scope, headers: Headers, visitor: Visitor | None) -> Response | None:
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _refused(scope, 403, "a page of another site may not change anything here")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return _refused(scope, 403, "a page of another site may not change anything here")
        if scope["path"] == "/login":
            return None
        if visitor is None:
            return _refused(scope, 401, "log in first, or send Authorization: Bearer TOKEN")
        if visitor.how != "bearer" and not self.sessions.is_csrf(visitor, headers.get("x-csrf-token", "")):
            return _refused(scope, 403, "X-CSRF-Token is missing or too old: load the page again (GET /api/session)")
        if self.options.is_read_only and scope["path"] not in CHANGES_NOTHING:
            return _refused(scope, 403, "this console was started read-only: nothing can be changed through it")
        return None


def allowed_hosts(options: ConsoleOptions) -> Iterable[str]:
    yield from (host.lower() for host in options.hosts)
    yield from LOOPBACK_NAMES
    if options.bind not in ("", "0.0.0.0", "::"):
        yield options.bind.lower()
    elif not options.hosts:
        # Bound to every address: by which one the machine is known cannot be told here.
        from arrowmq.remoting.address import own_address

        yield own_address()
        import socket

        yield socket.gethostname().lower()


def host_name(header: str) -> str | None:
    """The name in a Host header, without its port; None if it is no such header."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname.lower()


def _refused(scope: Scope, status: int, sentence: str) -> Response:
    if scope["path"].startswith("/api/"):
        return JSONResponse({"error": sentence}, status)
    return PlainTextResponse(sentence + "\n", status)


def _with_headers(scope: Scope, send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if not scope["path"].startswith("/static/"):
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return sender


class _Limited:
    """`receive` with a bound on the body's size and on the time it takes; after the body, waiting is free."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self._is_complete = scope["method"] in SAFE_METHODS
        self._deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S

    async def __call__(self) -> dict[str, Any]:
        if self._is_complete:
            return dict(await self._receive())
        try:
            async with asyncio.timeout_at(self._deadline):
                message = dict(await self._receive())
        except TimeoutError:
            raise Problem(408, f"the request was not complete within {BODY_TIMEOUT_S:g} s") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            if self._size > LARGEST_BODY_BYTES:
                raise Problem(413, f"a request has at most {LARGEST_BODY_BYTES >> 20} MiB here")
            self._is_complete = not message.get("more_body", False)
        return message

"""Visitors and their sessions. A session is a random name in a cookie; what it stands for stays here."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field

COOKIE = "arrowmq_console"
LONGEST_IDLE_S = 12 * 3600.0
MOST_SESSIONS = 1000
FAILURES_A_MINUTE = 10


@dataclass(slots=True)
class Visitor:
    """Who asks. `how` is open (loopback without log-in), cookie or bearer."""

    who: str
    how: str
    session: str = ""
    #: Of a broker's user: what requests to brokers are signed with
    credentials: tuple[str, str] | None = None


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    used_at: float = field(default_factory=time.monotonic)


class Sessions:
    def __init__(self, token: str) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    # -- log-in

    def is_token(self, given: str) -> bool:
        return bool(self._token) and hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def may_try(self, address: str) -> bool:
        """No more than some failures a minute from one address: a token is not to be guessed."""
        now = time.monotonic()
        recent = [at for at in self._failures.get(address, []) if now - at < 60]
        if recent:
            self._failures[address] = recent
        else:
            self._failures.pop(address, None)
        return len(recent) < FAILURES_A_MINUTE

    def failed(self, address: str) -> None:
        self._failures.setdefault(address, []).append(time.monotonic())
        while len(self._failures) > MOST_SESSIONS:
            self._failures.popitem(last=False)

    def open(self, who: str, credentials: tuple[str, str] | None = None) -> Visitor:
        name = secrets.token_urlsafe(32)
        visitor = Visitor(who, "cookie", name, credentials)
        self._sessions[name] = _Session(visitor)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return visitor

    def find(self, name: str) -> Visitor | None:
        session = self._sessions.get(name)
        if session is None:
            return None
        now = time.monotonic()
        if now - session.used_at > LONGEST_IDLE_S:
            del self._sessions[name]
            return None
        session.used_at = now
        self._sessions.move_to_end(name)
        return session.visitor

    def close(self, name: str) -> None:
        self._sessions.pop(name, None)

    # -- forged requests

    def csrf_of(self, visitor: Visitor) -> str:
        """What a page of ours knows and a page of others cannot read."""
        return hmac.new(self._secret, f"csrf {visitor.session}".encode(), hashlib.sha256).hexdigest()

    def is_csrf(self, visitor: Visitor, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.csrf_of(visitor).encode())

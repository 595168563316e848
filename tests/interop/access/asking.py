"""Asks a broker the questions of the matrix, each signed and from its own address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from oracle.java import Value

from access.cases import USERS, Case, Rule, password
from arrowmq.auth.signature import sign
from arrowmq.wire import fastjson
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame

ADMIN = ("root", "password-of-root")
NO_PERMISSION = 16
AUTH = "org.apache.rocketmq.auth"
INNER_SECRET = "password-of-inner"
GUARDED: dict[str, Value] = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ADMIN[0], "password": ADMIN[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER_SECRET}),
}


class Line:
    """A connection from one address; one question at a time."""

    def __init__(self, broker: str, source: str = "127.0.0.1") -> None:
        self.host, port = broker.split(":")
        self.port = int(port)
        self.source = source
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._splitter = FrameSplitter()

    async def ask(self, command: Command) -> Command:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port, local_addr=(self.source, 0))
        reader, writer = self._streams
        writer.write(encode_frame(command))
        while True:
            data = await asyncio.wait_for(reader.read(1 << 16), 30)
            if not data:
                raise ConnectionError(f"the broker hung up on {command.code}")
            for answer in self._splitter.feed(data):
                if answer.flag & 1 and answer.opaque == command.opaque:
                    return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def signed(code: int, ext: dict[str, str], body: bytes, user: str, secret: str) -> Command:
    command = Command.request(code, dict(ext), body)
    if user:
        sign(command.ext, body, user, secret.encode())
    return command


async def administer(line: Line, code: int, ext: dict[str, str], body: Any = b"") -> Command:
    data = body if isinstance(body, bytes) else fastjson.dumps(body)
    return await line.ask(signed(code, ext, data, *ADMIN))


async def prepare(broker: str) -> None:
    """The users of the matrix with their policies."""
    line = Line(broker)
    for user, (custom, default) in {**USERS, "disabled": ([], [])}.items():
        status = "disable" if user == "disabled" else "enable"
        made = {"password": password(user), "userType": "Normal", "userStatus": status}
        answer = await administer(line, 3001, {"username": user}, made)
        assert answer.code == 0, answer.remark
        policies = [
            {"policyType": kind, "entries": [_entry(rule) for rule in rules]}
            for kind, rules in (("Custom", custom), ("Default", default))
            if rules
        ]
        if policies:
            body = {"subject": f"User:{user}", "policies": policies}
            answer = await administer(line, 3006, {"subject": f"User:{user}"}, body)
            assert answer.code == 0, answer.remark
    line.close()


def _entry(rule: Rule) -> dict[str, Any]:
    resource, actions, decision, sources = rule
    entry: dict[str, Any] = {"resource": resource, "actions": actions.split(","), "decision": decision}
    if sources:
        entry["sourceIps"] = sources.split(",")
    return entry


async def judge(broker: str, questions: Iterable[Case], secrets: Iterable[str] = ()) -> dict[Case, str]:
    """What each case is answered: the remark of a refusal for want of rights, or `let in`. No answer has a secret."""
    hidden = [secret.encode() for secret in secrets]
    lines: dict[str, Line] = {}
    found: dict[Case, str] = {}
    for case in questions:
        line = lines.setdefault(case.source, Line(broker, case.source))
        answer = await line.ask(signed(case.code, dict(case.ext), case.body, case.user, case.secret))
        is_refused = answer.code == NO_PERMISSION and _is_about_rights(answer.remark or "")
        found[case] = answer.remark or "" if is_refused else "let in"
        assert not is_refused or not answer.body
        if hidden:
            told = encode_frame(answer)
            assert not any(secret in told for secret in hidden), case.name
    for line in lines.values():
        line.close()
    return found


def _is_about_rights(remark: str) -> bool:
    """Code 16 is also what a topic or broker without write permission answers."""
    return remark.startswith(("User:", "username", "check signature"))

"""Somebody who signs its requests to a broker that knows its users, or does not."""

from __future__ import annotations

import json
import ssl
from typing import Any

from arrowmq.auth.signature import sign
from arrowmq.clock import SystemClock
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command

ROOT_SECRET = "the-secret-of-root"
ANN_SECRET = "the-secret-of-ann"
INNER_SECRET = "the-secret-of-brokers"
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER_SECRET}),
}
NO = ResponseCode.NO_PERMISSION
OK = ResponseCode.SUCCESS


class Caller:
    """A user at one connection; without a name, somebody who does not sign."""

    def __init__(self, address: str, name: str = "", secret: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.name = name
        self.secret = secret
        self.remoting = RemotingClient(tls=tls)

    def command(
        self, code: int, ext: dict[str, Any] | None = None, body: Any = b"", *, oneway: bool = False
    ) -> Command:
        data = body if isinstance(body, bytes) else fastjson.dumps(body)
        texts = {name: str(value) for name, value in (ext or {}).items()}
        command = Command.request(code, texts, data, oneway=oneway)
        if self.name:
            sign(command.ext, data, self.name, self.secret.encode())
        return command

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: Any = b"") -> Command:
        return await self.remoting.invoke(self.address, self.command(code, ext, body), 20)

    async def oneway(self, code: int, ext: dict[str, Any] | None = None, body: Any = b"") -> None:
        await self.remoting.invoke_oneway(self.address, self.command(code, ext, body, oneway=True))

    def send_header(self, topic: str, **more: Any) -> dict[str, Any]:
        return {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, **more}

    async def send(self, topic: str, body: bytes = b"body", **more: Any) -> Command:
        return await self.ask(RequestCode.SEND_MESSAGE_V2, self.send_header(topic, **more), body)

    async def pull(self, topic: str, group: str, offset: int = 0, **more: Any) -> Command:
        header = {
            "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0, "subscription": "*",
            **more,
        }  # fmt: skip
        return await self.ask(RequestCode.PULL_MESSAGE, header)

    async def pop(self, topic: str, group: str, code: int = RequestCode.POP_MESSAGE) -> Command:
        """Waits for as long as a request may, where nothing is there."""
        header = {
            "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
            "pollTime": 600_000, "bornTime": SystemClock().now_ms(), "initMode": 0, "expType": "TAG", "exp": "*",
        }  # fmt: skip
        return await self.ask(code, header)

    async def give(self, user: str, resource: str, actions: str, decision: str = "Allow", **more: Any) -> Command:
        entry = {"resource": resource, "actions": actions.split(","), "decision": decision, **more}
        body = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        return await self.ask(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{user}"}, body)

    async def create_user(self, name: str, password: str, **more: str) -> Command:
        return await self.ask(RequestCode.AUTH_CREATE_USER, {"username": name}, {"password": password, **more})

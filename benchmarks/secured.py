"""`python -m benchmarks.secured [--seconds S]`: what signatures, rights and TLS cost a broker, beside Apache's.

The frames are made, and signed, beforehand (a signature has no time in it), so that the client costs the same in each
row and what is counted is the broker's processor time a message. Rows: sends and pulls, plain at a broker that checks
nothing; then, at one that checks users and rights, signed ones, and signed ones by TLS. Every row is run once to
warm up. Goals: signed sends at most 1.6 times our own plain cost; beside Apache three times the rate at an eighth of
its cost; by TLS twice the rate at a quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import uvloop
from oracle.arrow import COMMAND
from oracle.java import Value

from arrowmq.auth.signature import sign
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, encode_frame
from benchmarks.memory import touch_free_memory
from benchmarks.systems import SYSTEMS, System

TOPIC, GROUP, QUEUES = "secured", "secured_group", 8
CONNECTIONS, IN_FLIGHT, BODY_BYTES = 8, 64, 1024
PULLED, PULLS_IN_FLIGHT, PULLS = 32, 4, 64
ROOT, USER = ("root", "password-of-root"), ("shop", "password-of-shop")
PROPERTIES = "UNIQ_KEY\x01AC11000118B418B4AAC2123456780000\x02WAIT\x01true\x02"
_AUTH = "org.apache.rocketmq.auth"
AUTH: dict[str, Value] = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}
HEAD_BYTES = 64  # of an answer that are looked at; every answer has more


class Load(NamedTuple):
    """What one connection sends, a part after the other, each when the one before is answered."""

    parts: list[bytes]
    frames: int  # in a part
    messages: int  # of a part
    least_bytes: int  # of an answer


class Cost(NamedTuple):
    rate: float
    microseconds: float


def sends(credentials: tuple[str, str] | None, _: int) -> Load:
    """A window of sends, over all queues."""
    made = []
    for number in range(IN_FLIGHT):
        ext = {
            "a": "shop", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0", "g": "1",
            "h": "0", "i": PROPERTIES, "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        made.append(_frame(RequestCode.SEND_MESSAGE_V2, ext, bytes([number]) * BODY_BYTES, credentials))
    return Load([b"".join(made)], IN_FLIGHT, IN_FLIGHT, HEAD_BYTES)


def pulls(credentials: tuple[str, str] | None, connection: int) -> Load:
    """The first messages of a queue, full answers, over and over."""
    made = []
    for number in range(PULLS):
        ext = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(connection % QUEUES),
            "queueOffset": str(number * PULLED), "maxMsgNums": str(PULLED), "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        made.append(_frame(RequestCode.PULL_MESSAGE, ext, b"", credentials))
    parts = [b"".join(made[at : at + PULLS_IN_FLIGHT]) for at in range(0, PULLS, PULLS_IN_FLIGHT)]
    return Load(parts, PULLS_IN_FLIGHT, PULLS_IN_FLIGHT * PULLED, PULLED * BODY_BYTES)


def _frame(code: int, ext: dict[str, str], body: bytes, credentials: tuple[str, str] | None) -> bytes:
    if credentials is not None:
        sign(ext, body, credentials[0], credentials[1].encode())
    return encode_frame(Command.request(code, ext, body))


class Line(asyncio.Protocol):
    """One connection under load until the time is over; every answer must be a success, or "busy"."""

    def __init__(self, load: Load, end: float) -> None:
        self.load, self.end = load, end
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._part = 0
        self._waiting = 0
        self._head = b""
        self._rest = 0
        self._busy = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        self._transport.write(self.load.parts[self._part % len(self.load.parts)])
        self._part += 1
        self._waiting = self.load.frames

    def data_received(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size:
            if self._rest:
                some = min(self._rest, size - at)
                self._rest -= some
                at += some
            else:
                wanted = HEAD_BYTES - len(self._head)
                self._head += data[at : at + wanted]
                at += min(wanted, size - at)
                if len(self._head) < HEAD_BYTES:
                    return
                length = 4 + int.from_bytes(self._head[:4], "big")
                if b'"code":2,' in self._head and b"JAVA" in self._head:
                    self._busy += (
                        1  # Apache's broker has its moments while it warms up; such an answer counts for nothing
                    )
                elif b'"code":0,' not in self._head or length < self.load.least_bytes:
                    self._fail(f"refused: {self._head!r}{data[at : at + 300]!r}")
                    return
                self._rest, self._head = length - HEAD_BYTES, b""
            if not self._rest:
                self._waiting -= 1
                if not self._waiting:
                    self._answered()

    def _answered(self) -> None:
        self.answered += self.load.messages * (self.load.frames - self._busy) // self.load.frames
        self._busy = 0
        if time.monotonic() < self.end:
            self._next()
        elif not self.done.done():
            self.done.set_result(None)
            self._transport.close()

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))
        self._transport.abort()

    def connection_lost(self, fault: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(fault or ConnectionError("the broker hung up"))


async def prepare(address: str, is_guarded: bool) -> None:
    """The topic, and the user with the rights to send to it and to read it."""
    client = RemotingClient()

    async def ask(code: int, ext: dict[str, str], body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        command = Command.request(code, ext, data)
        if is_guarded:
            sign(command.ext, data, ROOT[0], ROOT[1].encode())
        answer = await client.invoke(address, command, 20)
        if answer.code:
            raise RuntimeError(f"{code}: {answer.remark}")

    topic = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6"}
    await ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic, "topicFilterType": "SINGLE_TAG"})
    if is_guarded:
        await ask(RequestCode.AUTH_CREATE_USER, {"username": USER[0]}, {"password": USER[1], "userType": "Normal"})
        rights = ((f"Topic:{TOPIC}", ["Pub", "Sub"]), (f"Group:{GROUP}", ["Sub"]))
        entries = [{"resource": name, "actions": actions, "decision": "Allow"} for name, actions in rights]
        subject = f"User:{USER[0]}"
        body = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        await ask(RequestCode.AUTH_CREATE_ACL, {"subject": subject}, body)
    await client.close()


async def run(port: int, loads: list[Load], seconds: float, tls: ssl.SSLContext | None) -> int:
    """Messages that were answered with success, until the time is over."""
    end = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    lines = [
        (await loop.create_connection(lambda load=load: Line(load, end), "127.0.0.1", port, ssl=tls))[1]  # type: ignore[misc]
        for load in loads
    ]
    await asyncio.gather(*(line.done for line in lines))
    return sum(line.answered for line in lines)


def measure(system: System, loads: list[Load], seconds: float, tls: ssl.SSLContext | None) -> Cost:
    uvloop.run(run(system.port, loads, seconds, tls))  # warm
    touch_free_memory()
    cpu, wall = system.broker.cpu_seconds(), time.monotonic()
    count = uvloop.run(run(system.port, loads, seconds, tls))
    return Cost(count / (time.monotonic() - wall), (system.broker.cpu_seconds() - cpu) / count * 1e6)


def rows(kind: type[System], seconds: float, certificate: Path, found: dict[tuple[str, str], Cost]) -> None:
    """All rows of one system, by its name and the row's."""
    believing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believing.check_hostname, believing.verify_mode = False, ssl.CERT_NONE
    # With it, Apache's broker refuses what waited for 200 ms, which under such a load says nothing about its cost.
    quick: dict[str, Value] = {"brokerFastFailureEnable": False} if kind.name == "apache" else {}
    guarded = {**AUTH, **quick}
    if kind.name == "arrowmq":  # Apache's makes itself a certificate
        guarded |= {"tls.server.certPath": certificate, "tls.server.keyPath": certificate.with_name("server-key.pem")}
    for config, ways in ((quick, ("plain",)), (guarded, ("signed", "signed, TLS"))):
        with kind(None, **config) as system:
            credentials = USER if config is guarded else None
            uvloop.run(prepare(system.address, config is guarded))
            for way in ways:
                for what, load in (("sends", sends), ("pulls", pulls)):
                    loads = [load(credentials, number) for number in range(CONNECTIONS)]
                    cost = measure(system, loads, seconds, believing if "TLS" in way else None)
                    found[kind.name, f"{what}, {way}"] = cost
                    print(
                        f"{kind.name:8} {what + ', ' + way:20} {cost.rate:12,.0f} messages/s "
                        f"{cost.microseconds:8.2f} µs of the broker a message",
                        flush=True,
                    )


def compare(found: dict[tuple[str, str], Cost]) -> None:
    for (name, row), cost in found.items():
        if name != "arrowmq":
            continue
        plain = found["arrowmq", f"{row.partition(',')[0]}, plain"]
        line = f"{row:20} {cost.microseconds / plain.microseconds:6.2f} times the cost of plain"
        apache = found.get(("apache", row))
        if apache is not None:
            line += f", {cost.rate / apache.rate:6.1f} times Apache's rate"
            line += f" at 1/{apache.microseconds / cost.microseconds:.1f} of its cost"
        print(line)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--systems", nargs="+", default=["apache", "arrowmq"], choices=list(SYSTEMS))
    given = parser.parse_args(arguments)
    found: dict[tuple[str, str], Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*COMMAND, "tls", "make", "--dir", folder], check=True, stdout=subprocess.DEVNULL)
        for name in given.systems:
            rows(SYSTEMS[name], given.seconds, Path(folder) / "server.pem", found)
    compare(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

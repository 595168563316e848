"""`python -m benchmarks.secured [--seconds S]`: what signatures, rights and TLS cost a broker, beside Apache's.

The frames are made, and signed, beforehand (a signature has no time in it), so that the client costs the same in each
row and what is counted is the broker's processor time a message. Rows: plain sends, sends by a signed user whose rights
are checked, and plain sends by TLS. Goals: signed at most 1.6 times our own plain cost; beside Apache three times the
rate at an eighth of its cost; by TLS twice the rate at a quarter.
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

import uvloop
from oracle.arrow import COMMAND
from oracle.java import Value

from arrowmq.auth.signature import sign
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.frames import Command, encode_frame
from benchmarks.systems import SYSTEMS, System

TOPIC = "secured"
CONNECTIONS, IN_FLIGHT, BODY_BYTES = 8, 64, 1024
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


def frames(credentials: tuple[str, str] | None) -> bytes:
    """A window of sends, over all queues."""
    made = []
    for number in range(IN_FLIGHT):
        ext = {
            "a": "shop", "b": TOPIC, "c": "TBW102", "d": "8", "e": str(number % 8), "f": "0", "g": "1", "h": "0",
            "i": PROPERTIES, "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        body = bytes([number]) * BODY_BYTES
        if credentials is not None:
            sign(ext, body, credentials[0], credentials[1].encode())
        made.append(encode_frame(Command.request(310, ext, body)))
    return b"".join(made)


async def prepare(address: str, is_guarded: bool, tls: ssl.SSLContext | None) -> None:
    """The topic, and the user with the right to send to it."""
    client = RemotingClient(tls=tls)

    async def ask(code: int, ext: dict[str, str], body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        command = Command.request(code, ext, data)
        if is_guarded:
            sign(command.ext, data, ROOT[0], ROOT[1].encode())
        answer = await client.invoke(address, command, 20)
        if answer.code:
            raise RuntimeError(f"{code}: {answer.remark}")

    topic = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6"}
    await ask(17, {**topic, "topicFilterType": "SINGLE_TAG"})
    if is_guarded:
        await ask(3001, {"username": USER[0]}, {"password": USER[1], "userType": "Normal"})
        entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
        policies = [{"policyType": "Custom", "entries": [entry]}]
        await ask(3006, {"subject": f"User:{USER[0]}"}, {"subject": f"User:{USER[0]}", "policies": policies})
    await client.close()


async def load(port: int, window: bytes, seconds: float, tls: ssl.SSLContext | None) -> int:
    """Messages that were answered with success, until the time is over."""
    end = time.monotonic() + seconds
    answered = 0

    async def work() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 22)
        is_checked = False
        while time.monotonic() < end:
            writer.write(window)
            for _ in range(IN_FLIGHT):
                length = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(length)
                if not is_checked and b'"code":0' not in answer and answer[4:6] != b"\0\0":
                    raise RuntimeError(f"a send was refused: {answer[:300]!r}")
                is_checked = True
            answered += IN_FLIGHT
        writer.close()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return answered


def measure(kind: type[System], row: str, seconds: float, certificate: Path) -> tuple[float, float]:
    """Messages a second, and microseconds of the broker's processor time for each."""
    config: dict[str, Value] = dict(AUTH) if row == "signed" else {}
    if row == "tls" and kind.name == "arrowmq":
        config |= {"tls.server.certPath": certificate, "tls.server.keyPath": certificate.with_name("server-key.pem")}
    tls = None
    if row == "tls":  # Apache's makes itself a certificate
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with kind(None, **config) as system:
        uvloop.run(prepare(system.address, row == "signed", tls))
        window = frames(USER if row == "signed" else None)
        uvloop.run(load(system.port, window, seconds, tls))  # warm
        cpu, wall = system.broker.cpu_seconds(), time.monotonic()
        count = uvloop.run(load(system.port, window, seconds, tls))
        return count / (time.monotonic() - wall), (system.broker.cpu_seconds() - cpu) / count * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--systems", nargs="+", default=["apache", "arrowmq"], choices=list(SYSTEMS))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*COMMAND, "tls", "make", "--dir", folder], check=True, stdout=subprocess.DEVNULL)
        certificate = Path(folder) / "server.pem"
        for row in ("plain", "signed", "tls"):
            for name in given.systems:
                rate, cost = measure(SYSTEMS[name], row, given.seconds, certificate)
                print(f"{row:8} {name:8} {rate:12,.0f} messages/s {cost:8.2f} µs of the broker a message", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

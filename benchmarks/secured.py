"""`python -m benchmarks.secured [--rows NAME …]`: what signatures, rights and TLS cost a broker, beside Apache's.

The frames are made, and signed, beforehand (a signature has no time in it) and sent by a program in C (`replay.c`), so
that the client costs the same in each row, keeps up with either broker, and what is counted is the broker's processor
time a message. Rows: sends and pulls, plain at a broker that checks nothing; then, at one that checks users and rights,
signed ones, and signed ones by TLS. All brokers run at the same time; every row is warmed up (a JVM compiles what is
hot for a while) before any is measured, then they take turns. The table of medians and goals is printed and kept in
`bench-results/secured.md`. About seven minutes. Needs a C compiler and OpenSSL's headers.

To see what a change does, some rows of one system are enough, and nothing is kept then:

    python -m benchmarks.secured --systems arrowmq --rows "pulls, signed, TLS" --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from oracle.arrow import COMMAND
from oracle.java import Value

from arrowmq.auth.signature import sign
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, encode_frame
from benchmarks import native
from benchmarks.memory import touch_free_memory
from benchmarks.report import machine
from benchmarks.systems import APACHE_JVM, SYSTEMS, System

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"
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
Found = dict[tuple[str, str], list["Cost"]]  # by system and row


class Load(NamedTuple):
    """What one connection sends, a part after the other, each when the one before is answered."""

    parts: list[bytes]
    frames: int  # in a part
    messages: int  # of a part
    least_bytes: int  # of an answer


class Cost(NamedTuple):
    rate: float
    microseconds: float


class Pace(NamedTuple):
    seconds: float
    rounds: int
    warm_s: float


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


class Row(NamedTuple):
    """One kind of work. Goals: so many times Apache's rate, at so small a part of its cost, and so many times our own
    plain cost at most; 0: none."""

    what: str
    way: str
    load: Callable[[tuple[str, str] | None, int], Load]
    rate_goal: float = 0
    cost_goal: float = 0
    plain_goal: float = 0

    @property
    def name(self) -> str:
        return f"{self.what}, {self.way}"

    @property
    def is_guarded(self) -> bool:
        return self.way != "plain"

    @property
    def is_encrypted(self) -> bool:
        return "TLS" in self.way


ROWS = (
    Row("sends", "plain", sends),
    Row("pulls", "plain", pulls),
    Row("sends", "signed", sends, 3, 8, 1.6),
    Row("pulls", "signed", pulls),
    Row("sends", "signed, TLS", sends, 2, 4),
    Row("pulls", "signed, TLS", pulls, 2, 4),
)


def _frame(code: int, ext: dict[str, str], body: bytes, credentials: tuple[str, str] | None) -> bytes:
    if credentials is not None:
        sign(ext, body, credentials[0], credentials[1].encode())
    return encode_frame(Command.request(code, ext, body))


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


def file_of(loads: Sequence[Load], path: Path) -> Path:
    """The frames of every connection, as `replay.c` reads them."""
    data = bytearray(struct.pack(">I", len(loads)))
    for load in loads:
        data += struct.pack(">IIII", len(load.parts), load.frames, load.messages, load.least_bytes)
        for part in load.parts:
            data += struct.pack(">I", len(part)) + part
    path.write_bytes(data)
    return path


def measure(system: System, row: Row, file: Path, seconds: float) -> Cost:
    """One run of a row: the rate, and the broker's processor time a message."""
    way = "tls" if row.is_encrypted else "plain"
    command = [
        str(native.program("replay", "ssl", "crypto")),
        "127.0.0.1",
        str(system.port),
        str(seconds),
        way,
        str(file),
    ]
    cpu = system.broker.cpu_seconds()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        raise RuntimeError(f"{system.name}, {row.name}: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    spent = system.broker.cpu_seconds() - cpu
    return Cost(told["messages"] / told["seconds"], spent / told["messages"] * 1e6)


def settings_of(name: str, is_guarded: bool, certificate: Path) -> dict[str, Value]:
    # With it, Apache's broker refuses what waited for 200 ms, which under such a load says nothing about its cost.
    settings: dict[str, Value] = {"brokerFastFailureEnable": False} if name == "apache" else {}
    if is_guarded:
        settings |= AUTH
        if name == "arrowmq":  # Apache's makes itself a certificate
            key = certificate.with_name("server-key.pem")
            settings |= {"tls.server.certPath": certificate, "tls.server.keyPath": key}
    return settings


def needed(rows: Sequence[Row]) -> list[Row]:
    """These rows, and before them the sends that fill the brokers which are only read otherwise."""
    filled = {row.is_guarded for row in rows if row.load is sends}
    empty = {row.is_guarded for row in rows} - filled
    return [row for row in ROWS if row.load is sends and not row.is_encrypted and row.is_guarded in empty] + list(rows)


def run_rows(names: Sequence[str], rows: Sequence[Row], folder: Path, pace: Pace, found: Found) -> None:
    """Of each system one broker that checks nothing and one that checks users and rights run all the time; all rows are
    warmed up, then measured in turns, so that what else the machine does falls on all of them alike."""
    with ExitStack() as stack:
        systems: dict[tuple[str, bool], System] = {}
        for name in names:
            for is_guarded in sorted({row.is_guarded for row in rows}):
                settings = settings_of(name, is_guarded, folder / "server.pem")
                systems[name, is_guarded] = stack.enter_context(SYSTEMS[name](None, **settings))
                asyncio.run(prepare(systems[name, is_guarded].address, is_guarded))
        files = {}
        warmed = needed(rows)
        for row in warmed:
            loads = [row.load(USER if row.is_guarded else None, number) for number in range(CONNECTIONS)]
            files[row] = file_of(loads, folder / f"{row.name}.frames")
        for row in warmed:
            for name in names:
                warm_s = pace.warm_s if name == "apache" else min(pace.warm_s, 2.0)  # nothing here is compiled later
                warm = measure(systems[name, row.is_guarded], row, files[row], warm_s)
                print(f"{name:8} {row.name:20} warm-up {warm.rate:12,.0f} messages/s", flush=True)
        for _ in range(pace.rounds):
            for row in rows:
                for name in names:
                    touch_free_memory()
                    cost = measure(systems[name, row.is_guarded], row, files[row], pace.seconds)
                    found.setdefault((name, row.name), []).append(cost)
                    print(
                        f"{name:8} {row.name:20} {cost.rate:12,.0f} messages/s "
                        f"{cost.microseconds:8.2f} µs of the broker a message",
                        flush=True,
                    )


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(figure) for figure in zip(*costs, strict=True)))


class Verdict(NamedTuple):
    text: str
    is_met: bool | None


def verdicts(row: Row, found: dict[tuple[str, str], Cost]) -> list[Verdict]:
    """What was aimed at, beside what came out; None where a system did not run."""
    ours, apache = found.get(("arrowmq", row.name)), found.get(("apache", row.name))
    if ours is None:
        return []
    lines = []
    if row.rate_goal:
        ratio = None if apache is None else ours.rate / apache.rate
        shown = "-" if ratio is None else f"{ratio:.1f}"
        lines.append(Verdict(f"rate {shown} times Apache's, goal {row.rate_goal:g}", ratio and ratio >= row.rate_goal))
    if row.cost_goal:
        ratio = None if apache is None else apache.microseconds / ours.microseconds
        shown = "-" if ratio is None else f"{ratio:.1f}"
        lines.append(Verdict(f"cost 1/{shown} of Apache's, goal 1/{row.cost_goal:g}", ratio and ratio >= row.cost_goal))
    plain = found.get(("arrowmq", f"{row.what}, plain"))
    if row.plain_goal and plain is not None:
        ratio = ours.microseconds / plain.microseconds
        lines.append(Verdict(f"{ratio:.2f} times our plain cost, goal {row.plain_goal:g}", ratio <= row.plain_goal))
    return lines


def table(found: dict[tuple[str, str], Cost]) -> list[str]:
    lines = [
        "| work | ArrowMQ, messages/s | µs a message | Apache, messages/s | µs a message | goals | met |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for row in ROWS:
        if not any(row.name == measured for _, measured in found):
            continue
        cells = []
        for name in ("arrowmq", "apache"):
            cost = found.get((name, row.name))
            cells += ["—", "—"] if cost is None else [f"{cost.rate:,.0f}", f"{cost.microseconds:.2f}"]
        aims = verdicts(row, found)
        words = "; ".join(aim.text for aim in aims) or "—"
        met = "; ".join({True: "yes", False: "**no**"}.get(aim.is_met, "—") for aim in aims) or "—"  # type: ignore[arg-type]
        lines.append(f"| {row.name} | {' | '.join(cells)} | {words} | {met} |")
    return lines


def write(lines: Sequence[str], runs: Found, pace: Pace) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine().items())
    settings = (
        f"{time.strftime('%Y-%m-%d %H:%M')}. Medians of {pace.rounds} rounds of {pace.seconds:g} s, systems in turns, "
        f"Apache's warmed up for {pace.warm_s:g} s a row before. {CONNECTIONS} connections; bodies of {BODY_BYTES} "
        f"bytes. JVM: `{' '.join(APACHE_JVM)}`."
    )
    text = "\n".join(["# Signatures, rights and TLS beside the Apache broker", "", facts, "", settings, "", *lines, ""])
    (RESULTS / "secured.md").write_text(text)
    kept = [
        {"system": name, "row": row, "rounds": [cost._asdict() for cost in costs]}
        for (name, row), costs in runs.items()
    ]
    (RESULTS / "secured.json").write_text(json.dumps(kept, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=float, default=20, help="seconds a row for Apache's broker")
    parser.add_argument("--systems", nargs="+", default=["apache", "arrowmq"], choices=["apache", "arrowmq"])
    every = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", default=every, choices=every, help="measure these only, and keep nothing")
    given = parser.parse_args(arguments)
    rows = [row for row in ROWS if row.name in given.rows]
    pace = Pace(given.seconds, given.rounds, given.warm)
    runs: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*COMMAND, "tls", "make", "--dir", folder], check=True, stdout=subprocess.DEVNULL)
        run_rows(given.systems, rows, Path(folder), pace, runs)
    lines = table({key: median(costs) for key, costs in runs.items()})
    print("\n".join(lines))
    if len(rows) < len(ROWS):
        return 0
    write(lines, runs, pace)
    print(f"\nwritten to {RESULTS / 'secured.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

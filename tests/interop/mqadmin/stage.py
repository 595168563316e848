"""Puts the same data into a target and runs the plan there, all subcommands in one Java process."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from oracle import hands
from oracle.hand import Hand

from mqadmin.fields import Fields, Mask, document
from mqadmin.plan import CALLS, GROUP, PAST_GROUP, PRODUCER_GROUP, STEPS, TOPIC, Call, Step

# Small files, and a broker that others on the network do not see.
CONFIG = {"defaultTopicQueueNums": 4, "mappedFileSizeCommitLog": 64 << 20, "bindAddress": "127.0.0.1"}
MESSAGES = [
    {
        "key": f"order-{number} customer-{number % 3}",
        "tag": f"Tag{'AB'[number % 2]}",
        "body": f"body {number}",
        "queue": number % 4,
        "props": {"city": "北京", "number": str(number)},
    }
    for number in range(12)
]


@dataclass(frozen=True, slots=True)
class Said:
    """What one step said, masked: `fields` to compare, `raw` to look at."""

    step: Step | Call
    fields: Fields
    raw: str


class Place(Protocol):
    """Servers that a stage asks: `Target`, or a trio."""

    @property
    def kind(self) -> str: ...
    @property
    def namesrv(self) -> str: ...
    @property
    def broker(self) -> str: ...
    @property
    def folder(self) -> Path: ...


class Stage:
    def __init__(self, target: Place, folder: Path) -> None:
        self.target, self.folder = target, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._hand: Hand | None = None
        self._values: dict[str, str] = {}
        self._mask = Mask({})

    @property
    def hand(self) -> Hand:
        assert self._hand is not None, "the stage is not set yet"
        return self._hand

    def __enter__(self) -> Stage:
        self._hand = hands.start("java-5.5-json", self.target.namesrv, self.target.broker, self.folder)
        try:
            self._set()
        except BaseException:
            self._hand.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.hand.end()

    def _set(self) -> None:
        hand = self.hand
        hand.do("create-topic", topic=TOPIC, queues=4)
        hand.do("create-topic", topic="Traces", queues=1)
        hand.do("producer", name="shop", group=PRODUCER_GROUP)
        receipts = hand.do("send", producer="shop", topic=TOPIC, messages=MESSAGES)
        self._consume_once(PAST_GROUP)
        client = hand.do("listen", name="billing", group=GROUP, topic=TOPIC)
        self._consumed("billing", GROUP)
        hand.do("holds", name="billing", topic=f"%RETRY%{GROUP}", count=1, timeout=60_000)
        names = {
            self.target.namesrv: "<namesrv>",
            self.target.broker: "<broker>",
            client: "<client of Billing>",
            str(self.folder): "<folder>",
            str(self.target.folder): "<data>",
        }
        for number, receipt in enumerate(receipts):
            names[receipt["msgId"]] = f"<id {number}>"
            names[receipt["offsetMsgId"]] = f"<offset id {number}>"
        self._mask = Mask(names)
        self._values = {
            "namesrv": self.target.namesrv,
            "broker": self.target.broker,
            "client": client,
            "id": receipts[1]["msgId"],
            "offset_id": receipts[1]["offsetMsgId"],
            "traced_id": self._traced(),
            "folder": str(self.folder),
        }

    def _consume_once(self, group: str) -> None:
        self.hand.do("listen", name=group, group=group, topic=TOPIC)
        self._consumed(group, group)
        self.hand.do("stop-listening", name=group)

    def _consumed(self, name: str, group: str) -> None:
        """Returns when the broker has the offsets: a message is seen a moment before it counts as consumed."""
        self.hand.do("seen", name=name, atLeast=len(MESSAGES))
        for _ in range(300):
            self.hand.do("commit-offsets", name=name)
            queues = self.hand.do("progress", group=group, topic=TOPIC).values()
            if sum(queue["consumer"] for queue in queues) == len(MESSAGES):
                return
        raise AssertionError(f"{self.target.kind} never had the offsets of {group}")

    def _traced(self) -> str:
        """A message that left a trace: one line of the form that Java producers write, in the trace topic."""
        message_id = "C0000202000000000000000000000001"
        told = f"Pub 1700000000000 DefaultRegion Shop {TOPIC} {message_id} TagA order-1 127.0.0.1:1 6 3 0"
        trace = "\x01".join([*told.split(), "7F00000100002A9F0000000000000000", "true", "127.0.0.1"])
        message = {"key": message_id, "body": trace + "\x02", "queue": 0}
        self.hand.do("send", producer="shop", topic="Traces", messages=[message])
        return message_id

    def run(self, steps: Iterable[Step] = STEPS, calls: Iterable[Call] = CALLS) -> list[Said]:
        """The calls first: the steps change what they would find."""
        return [*map(self._call, calls), *map(self._run, steps)]

    def _call(self, call: Call) -> Said:
        arguments = [self._filled(one) for one in call.arguments]
        told = str(self.hand.do("admin", method=call.method, arguments=arguments))
        fields = {self._mask(path): self._mask(value) for path, value in document(told).items()}
        return Said(call, fields, self._mask(told))

    def _filled(self, argument: object) -> object:
        if isinstance(argument, str):
            return argument.format(**self._values)
        if isinstance(argument, list):
            return [self._filled(one) for one in argument]
        if isinstance(argument, dict):
            return {name: self._filled(one) for name, one in argument.items()}
        return argument

    def _run(self, step: Step) -> Said:
        if step.routed:
            self._await_route(step.routed)
        name, content = step.given
        if name:
            (self.folder / name).write_text(content)
        arguments = shlex.split(step.arguments.format(**self._values))
        told = self.mqadmin(step.subcommand, *arguments, limit_ms=step.limit_ms)
        text = told
        if step.writes:
            found = sorted(self.folder.rglob(step.writes))
            text = found[-1].read_text() if found else told
        masked = self._mask(text)
        if step.read is document:  # a masked number would no longer be JSON
            fields = {self._mask(path): self._mask(value) for path, value in document(text).items()}
        else:
            fields = step.read(masked)
        return Said(step, fields, masked)

    def mqadmin(self, subcommand: str, *arguments: str, limit_ms: int = 60_000) -> str:
        """Standard output, and of what it complained the first line of each error (the rest is a stack of Java's)."""
        given = [subcommand, *arguments, "-n", self.target.namesrv]
        said = self.hand.do("mqadmin", arguments=given, limit=limit_ms)
        complaints = [
            line.strip()
            for line in said["complained"].splitlines()
            if line.strip() and not line.lstrip().startswith(("at ", "... ")) and " WARN " not in line
        ]
        return str(said["printed"]) + "\n".join(complaints)

    def _await_route(self, topic: str) -> None:
        for _ in range(40):
            if "queueDatas" in self.mqadmin("topicRoute", "-t", topic):
                return
        raise AssertionError(f"the NameServer of {self.target.kind} never knew topic {topic}")

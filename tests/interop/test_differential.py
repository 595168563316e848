"""The same random operations against the Apache broker and against ours; what a client saw must be the same.

One seeded driver sends (one by one, in batches, with tags, keys, flags, to chosen queues), pulls with and without tags
and at odd offsets, commits and reads offsets, asks for offsets by time, and queries by key. Each observation is kept
without what must differ: ids, times and addresses.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from oracle import hands
from oracle.hand import Hand, Refusal
from oracle.target import Target

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

OPERATIONS = 2_000
TOPICS, QUEUES = ("diff_a", "diff_b"), 3
GROUPS = ("diff_g1", "diff_g2")
# Left out of a comparison: ids and times differ by nature; the broker's own bookkeeping properties carry them too.
KEPT = ("topic", "key", "tag", "body", "queue", "offset", "times", "flag")
IGNORED_PROPERTIES = ("UNIQ_KEY", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET", "TRACE_ON", "MSG_REGION", "1ST_CONSUME_TIME")


def plain(record: dict[str, Any]) -> dict[str, Any]:
    props = {name: value for name, value in record["props"].items() if name not in IGNORED_PROPERTIES}
    return {**{name: record.get(name) for name in KEPT}, "props": props}


class Driver:
    def __init__(self, hand: Hand, seed: int) -> None:
        self.hand, self.draw = hand, random.Random(seed)
        self.observed: list[Any] = []
        self.sent = 0
        for topic in TOPICS:
            hand.do("create-topic", topic=topic, queues=QUEUES)
        hand.do("producer", name="p", group="diff_producer")
        for group in GROUPS:
            hand.do("puller", name=group, group=group)

    def run(self, operations: int) -> list[Any]:
        deeds = [self.send] * 6 + [self.batch] + [self.pull] * 6 + [self.commit, self.committed, self.ends, self.query]
        for _ in range(operations):
            deed = self.draw.choice(deeds)
            try:
                self.observed.append((deed.__name__, deed()))
            except Refusal as refusal:
                self.observed.append((deed.__name__, "refused", refusal.kind, refusal.code))
        return self.observed

    def message(self) -> dict[str, Any]:
        self.sent += 1
        message: dict[str, Any] = {"body": f"body {self.sent}", "flag": self.draw.randrange(3)}
        if self.draw.random() < 0.8:
            message["key"] = " ".join(f"key{self.draw.randrange(40)}" for _ in range(self.draw.randint(1, 2)))
        if self.draw.random() < 0.8:
            message["tag"] = f"T{self.draw.randrange(4)}"
        if self.draw.random() < 0.5:
            message["props"] = {f"p{self.draw.randrange(3)}": f"v{self.draw.randrange(9)}ü"}
        if self.draw.random() < 0.05:
            message |= {"body": "long words ", "repeat": 600}
        return message

    def place(self) -> dict[str, Any]:
        return {"topic": self.draw.choice(TOPICS), "queue": self.draw.randrange(QUEUES)}

    def send(self) -> Any:
        place = self.place()
        message = {**self.message(), "queue": place["queue"]}
        receipt = self.hand.do("send", producer="p", topic=place["topic"], messages=[message])[0]
        return place, receipt.get("status"), receipt.get("queue"), receipt.get("offset")

    def batch(self) -> Any:
        """A batch goes where the client likes; only one queue of its own keeps the two runs alike."""
        count = self.draw.randint(1, 8)
        messages = [self.message() for _ in range(count)]
        for message in messages:
            message.pop("repeat", None)
        self.hand.do("create-topic", topic="diff_batch", queues=1)
        receipt = self.hand.do("send", producer="p", topic="diff_batch", messages=messages, how="batch")
        return receipt["status"], receipt["queue"], receipt["offset"], len(receipt["offsetMsgId"].split(","))

    def pull(self) -> Any:
        place = self.place() if self.draw.random() < 0.8 else {"topic": "diff_batch", "queue": 0}
        offset = self.draw.choice([0, self.draw.randrange(200), self.draw.randrange(2_000)])
        tags = self.draw.choice(["*", "*", "T1", "T0 || T3", "T9"])
        most = self.draw.choice([1, 8, 32])
        found = self.hand.do("pull", name=self.draw.choice(GROUPS), **place, offset=offset, most=most, tags=tags)
        messages = [plain(record) for record in found["messages"]]
        return place, offset, tags, found["status"], found["next"], found["min"], found["max"], messages

    def commit(self) -> Any:
        place, group = self.place(), self.draw.choice(GROUPS)
        return self.hand.do("commit", name=group, **place, offset=self.draw.randrange(50))

    def committed(self) -> Any:
        place, group = self.place(), self.draw.choice(GROUPS)
        return place, group, self.hand.do("committed", name=group, **place)

    def ends(self) -> Any:
        place = self.place()
        said = self.hand.do("offsets", **place, time=self.draw.choice([0, 4_000_000_000_000]))
        return place, said["min"], said["max"], said["at"]

    def query(self) -> Any:
        topic, key = self.draw.choice(TOPICS), f"key{self.draw.randrange(45)}"
        found = self.hand.do("query", topic=topic, key=key, most=64)
        return topic, key, sorted(str(plain(record)) for record in found)


def observe(kind: str, folder: Path) -> list[Any]:
    with (
        Target(kind, folder / kind) as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, folder / f"{kind}-hand") as hand,
    ):
        return Driver(hand, 20261115).run(OPERATIONS)


def test_two_thousand_random_operations_look_the_same(tmp_path: Path) -> None:
    expected, actual = observe("apache", tmp_path), observe("arrowmq", tmp_path)
    different = [
        (number, one, other) for number, (one, other) in enumerate(zip(expected, actual, strict=True)) if one != other
    ]
    assert not different, f"{len(different)} of {OPERATIONS} differ, first: {different[:3]}"

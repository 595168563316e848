"""The fast path of pops and acks is a shortcut: with it and without it the same is answered and the same state left."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from talking import Talk, cut, files_of, has_fast_path

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import VirtualClock
from arrowmq.remoting.server import RemotingServer
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.headers.pop import parse_offset_info

START_MS = 1_790_000_000_000
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
CLIENT = "127.0.0.7"
TOPICS, GROUPS = ("Orders", "Payments"), ("billing", "audit")


@dataclass(frozen=True)
class Popped:
    """One queue's part of an answer."""

    group: str
    topic: str
    queue: str
    flag: str
    start: int
    offsets: tuple[int, ...]
    pop_time: str
    invisible: str
    revive: str

    def receipt(self, offset: int) -> str:
        return f"{self.start} {self.pop_time} {self.invisible} {self.revive} {self.flag} broker-a {self.queue} {offset}"


@dataclass
class Outcome:
    port: int = 0
    local_port: int = 0
    answers: list[dict[int, bytes]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    state: list[Any] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)


class Frames:
    """The requests of one run. Those that depend on answers depend on nothing else but the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.opaque = 0
        self.popped: list[Popped] = []
        self._asked: dict[int, tuple[str, str]] = {}

    def encoded(self, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
        self.opaque += 1
        command = Command.request(code, ext, body, opaque=self.opaque)
        command.serialize_type = self.dice.randrange(2)
        if self.dice.random() < 0.02:
            command.flag = 2
        return encode_frame(command)

    def send(self) -> bytes:
        dice = self.dice
        ext = {
            "a": "P", "b": dice.choice(TOPICS), "c": "TBW102", "d": "4", "e": str(dice.randrange(4)), "f": "0",
            "g": str(START_MS), "h": "0", "j": "0", "k": "false", "m": "false",
            "i": f"UNIQ_KEY\x01{self.opaque:032X}\x02" + dice.choice(("TAGS\x01paid\x02", "TAGS\x01sent\x02", "")),
        }  # fmt: skip
        return self.encoded(RequestCode.SEND_MESSAGE_V2, ext, dice.randbytes(dice.randrange(1, 300)))

    def pop(self) -> bytes:
        dice = self.dice
        group, topic = dice.choice(GROUPS), dice.choice(TOPICS)
        ext = {
            "consumerGroup": group, "topic": topic, "queueId": dice.choice(("-1", "-1", "-1", "0", "3")),
            "maxMsgNums": str(dice.choice((1, 1, 2, 8, 32))), "invisibleTime": str(dice.choice((500, 5000, 60_000))),
            "pollTime": "0", "bornTime": dice.choice(("0", str(START_MS + 10**7))),
            "initMode": dice.choice(("0", "0", "1")), "order": "false",
        }  # fmt: skip
        if dice.random() < 0.3:
            expressions = (("TAG", "*"), ("TAG", "paid"), ("TAG", "paid || sent"), ("SQL92", "TAGS = 'paid'"))
            ext["expType"], ext["exp"] = dice.choice(expressions)
        if dice.random() < 0.15:
            name, value = dice.choice(
                (("queueId", "99"), ("queueId", "-5"), ("maxMsgNums", "33"), ("maxMsgNums", "0"), ("maxMsgNums", "x"),
                 ("invisibleTime", "-1"), ("invisibleTime", str(1 << 50)), ("invisibleTime", "0"), ("bornTime", "1"),
                 ("topic", "Unknown"), ("topic", "grüß"), ("consumerGroup", "nobody"), ("order", "true"),
                 ("initMode", "x"), ("pollTime", "-1000"), ("pollTime", "x"), ("exp", "a ||"), ("ns", "space"),
                 ("attemptId", "1"), ("odd", "1"))
            )  # fmt: skip
            ext[name] = value
        frame = self.encoded(RequestCode.POP_MESSAGE, ext)
        self._asked[self.opaque] = (ext["consumerGroup"], ext["topic"])
        return frame

    def ack(self) -> bytes:
        dice, popped = self.dice, self._one()
        offset = dice.choice(popped.offsets)
        ext = {
            "consumerGroup": popped.group, "topic": popped.topic, "queueId": popped.queue, "offset": str(offset),
            "extraInfo": popped.receipt(offset),
        }  # fmt: skip
        if dice.random() < 0.2:
            later = popped.receipt(offset).replace(popped.pop_time, str(int(popped.pop_time) + 1))
            name, value = dice.choice(
                (("offset", str(offset + 1)), ("offset", "-1"), ("offset", str(1 << 40)), ("queueId", "99"),
                 ("queueId", "-1"), ("topic", "Unknown"), ("consumerGroup", "nobody"), ("extraInfo", "1 2 3"),
                 ("extraInfo", later), ("extraInfo", popped.receipt(offset) + " 77"), ("extraInfo", "x " * 8),
                 ("extraInfo", popped.receipt(offset).replace("broker-a", "broker-b")), ("liteTopic", "l"))
            )  # fmt: skip
            ext[name] = value
        return self.encoded(RequestCode.ACK_MESSAGE, ext)

    def batch_ack(self) -> bytes:
        dice, acks = self.dice, []
        for popped in {self._one() for _ in range(dice.randrange(1, 5))} if self.popped else ():
            chosen = dice.sample(popped.offsets, dice.randrange(1, len(popped.offsets) + 1))
            bits = sum(1 << (offset - popped.start) for offset in chosen)
            ack = {
                "b": base64.b64encode(bits.to_bytes(bits.bit_length() + 7 >> 3, "little")).decode(),
                "c": popped.group, "it": int(popped.invisible), "pt": int(popped.pop_time), "q": int(popped.queue),
                "r": popped.flag, "rq": int(popped.revive), "so": popped.start, "t": popped.topic,
            }  # fmt: skip
            if dice.random() < 0.1:
                name, value = dice.choice(
                    (("b", ""), ("b", "/////w=="), ("b", "!"), ("b", "AAAA"), ("pt", 1), ("so", 1 << 40), ("q", 99),
                     ("rq", 999), ("t", "Unknown"), ("c", "nobody"), ("r", "2"), ("t", 'quo"te'))
                )  # fmt: skip
                ack[name] = value
            acks.append(ack)
        acks.sort(key=lambda ack: (str(ack["t"]), str(ack["c"]), ack["q"], ack["so"], ack["pt"]))
        body = fastjson.dumps({"acks": acks, "brokerName": "broker-a"})
        if dice.random() < 0.05:
            body = dice.choice((b"", b"{}", b"[]", body[:-1], body.replace(b'"b"', b'"bitSet"'), body + b" "))
        return self.encoded(RequestCode.BATCH_ACK_MESSAGE, {}, body)

    def change(self) -> bytes:
        popped = self._one()
        offset = self.dice.choice(popped.offsets)
        ext = {
            "consumerGroup": popped.group, "topic": popped.topic, "queueId": popped.queue, "offset": str(offset),
            "extraInfo": popped.receipt(offset), "invisibleTime": "3000",
        }  # fmt: skip
        return self.encoded(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)

    def _one(self) -> Popped:
        return self.dice.choice(self.popped[-40:])

    def one_kind(self, number: int) -> bytes:
        """Messages alone, then pops alone, then acks alone: what a pop finds rests on no moment of a flush."""
        made = ((self.send,), (self.pop,), (self.ack, self.batch_ack))[number % 3]
        return b"".join(self.dice.choice(made)() for _ in range(40)) + self.batch_ack_of_nothing()

    def batch_ack_of_nothing(self) -> bytes:
        self.opaque += 1
        return encode_frame(Command.request(RequestCode.BATCH_ACK_MESSAGE, {}, b"{}", opaque=self.opaque))

    def round(self, count: int) -> bytes:
        kinds = [self.send] * 5 + [self.pop] * 6
        if self.popped:
            kinds += [self.ack] * 5 + [self.batch_ack] * 3 + [self.change]
        frames = b"".join(self.dice.choice(kinds)() for _ in range(count))
        # The broker takes requests of a connection in order: with the last one, all have been served
        return frames + self.send()

    def learn(self, answers: dict[int, bytes]) -> None:
        for opaque in sorted(answers.keys() & self._asked.keys()):
            group, topic = self._asked[opaque]
            (answer,) = FrameSplitter().feed(answers[opaque])
            if answer.code != ResponseCode.SUCCESS or answer.ext["reviveQid"] == "999":
                continue
            starts = parse_offset_info(answer.ext["startOffsetInfo"])
            for (flag, queue), offsets in parse_offset_info(answer.ext["msgOffsetInfo"]).items():
                self.popped.append(
                    Popped(
                        *(group, topic, queue, flag, starts[flag, queue][0], tuple(offsets), answer.ext["popTime"]),
                        *(answer.ext["invisibleTime"], answer.ext["reviveQid"]),
                    )
                )


def state_of(broker: Broker) -> list[Any]:
    services = broker.services
    table, log = services.pop.table, services.pop.log
    open_now = [
        (
            *(each.lane.topic, each.lane.group, each.lane.queue_id, each.start_offset, each.pop_time),
            *(each.invisible_ms, each.offsets(), each.acked, each.revive_queue, each.revive_offset, each.bucket),
            *(each.broker_name, each.client, each.tries, each.is_suspend),
        )
        for each in table
    ]
    lanes = {
        key: (lane.in_flight, len(lane), sorted(lane.moved)) for key, lane in table.lanes.items() if lane.in_flight
    }
    queues = [(each.read_offset, sum(1 for one in each.open if one.is_open)) for each in log.queues]
    # Those of the broker's own groups are written now and then
    offsets = {key: value for key, value in broker.offsets.as_json()["offsetTable"].items() if "CID_RMQ" not in key}
    broker.stats.gather()
    return [
        *(sorted(open_now), lanes, table.in_flight, table.count, queues, dict(services.acks.counts.stored)),
        *(offsets, services.pop.popping_now(), services.pop.chance.value, services.pop.revive.revived),
    ]


async def run(root: Path, seed: int, like: Outcome, *, fast: bool, flush: str = "ASYNC_FLUSH") -> Outcome:
    clock = VirtualClock(START_MS)
    outcome, frames = Outcome(), Frames(seed)
    settings = {**SETTINGS, "flushDiskType": flush, "listenPort": str(like.port)}
    broker = Broker(BrokerConfig.from_properties(settings), root, clock)
    broker.open()
    for topic in TOPICS:
        broker.topics.create_internal(topic, 4)
    broker.services.pop.chance.seed(seed)
    broker.services.pop.chance.value = 50
    server = RemotingServer(broker.handlers, clock=clock)
    outcome.port = await server.start("127.0.0.1", like.port)
    await broker.start(outcome.port)
    if fast:
        server.fast_path = broker.fast_path
    talk = Talk(CLIENT, like.local_port)
    await talk.connect(outcome.port)
    outcome.local_port = talk.local_port
    try:
        for number in range(14):
            data = frames.round(60) if flush == "ASYNC_FLUSH" else frames.one_kind(number)
            answers = await talk.answers(cut(data, random.Random(seed)))
            frames.learn(answers)
            outcome.answers.append(answers)
            outcome.state.append(state_of(broker))
            await clock.advance(frames.dice.choice((0, 0.001, 0.3, 7)) if flush == "ASYNC_FLUSH" else 0.001)
        if broker.fast_path is not None:
            handlers = broker.fast_path.handlers
            outcome.taken = {
                "pops": handlers["pops"].taken_pops,
                "acks": handlers["acks"].taken_acks,
                "batches": handlers["acks"].taken_batches,
            }
    finally:
        await talk.__aexit__()
        await server.close()
        await broker.stop()
    outcome.files = files_of(root)
    return outcome


def assert_same(general: Outcome, fast: Outcome) -> None:
    for number, (expected, found) in enumerate(zip(general.answers, fast.answers, strict=True)):
        for opaque, answer in expected.items():
            assert answer == found[opaque], (number, opaque)
        for part, (left, right) in enumerate(zip(general.state[number], fast.state[number], strict=True)):
            assert left == right, (number, part)
    assert general.files.keys() == fast.files.keys()
    for name, data in general.files.items():
        assert data == fast.files[name], name


@pytest.mark.parametrize("seed", range(4))
async def test_pops_and_acks_of_both_paths_answer_store_and_leave_the_same(tmp_path: Path, seed: int) -> None:
    general = await run(tmp_path / "general", seed, Outcome(), fast=False)
    fast = await run(tmp_path / "fast", seed, general, fast=has_fast_path())
    assert_same(general, fast)
    assert not any(general.taken.values())
    if has_fast_path():
        assert fast.taken["pops"] > 30
        assert fast.taken["acks"] > 10
        assert fast.taken["batches"] > 0  # how many depends on how the bytes arrive


async def test_under_sync_flush_acks_of_the_fast_path_are_answered_when_the_disk_has_them(tmp_path: Path) -> None:
    general = await run(tmp_path / "general", 9, Outcome(), fast=False, flush="SYNC_FLUSH")
    fast = await run(tmp_path / "fast", 9, general, fast=has_fast_path(), flush="SYNC_FLUSH")
    assert_same(general, fast)
    if has_fast_path():
        assert fast.taken["acks"] + fast.taken["batches"] > 3

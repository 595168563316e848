"""The fast path of transactions is a shortcut: with it and without it the same is answered and the same files left."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from talking import Talk, cut, files_of, has_fast_path
from two_paths import PROPERTY_NAMES, VALUES

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.broker.names import HALF_TOPIC, OP_HALF_TOPIC
from arrowmq.clock import VirtualClock
from arrowmq.remoting.server import RemotingServer
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.ids import parse_offset_message_id

START_MS = 1_790_000_000_000
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 17),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "transactionCheckInterval": str(365 * 86_400_000),
}
CLIENT = "127.0.0.8"
TOPICS = ("Orders", "Payments")
# Forms that are odd; odd names and values are generated from the lists of `wire` (`test_generated_cases.py`).
ODD_PROPERTIES = (
    "TAGS\x01tag\x02TAGS\x01other\x02", "TAGS\x01\x02", "\x01\x02", "fruit\x01grüß\x02", 'quote\x01"\\\x02',
    "KEYS\x01" + "k " * 200 + "\x02",
)  # fmt: skip


def encoded(dice: random.Random, command: Command) -> bytes:
    if dice.random() < 0.1:
        command.flag = 2
    command.serialize_type = dice.randrange(2)
    return encode_frame(command)


def half_frame(dice: random.Random, opaque: int) -> bytes:
    """Mostly ordinary half messages, with odd ones, ordinary messages and other requests between them."""
    text = f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01{opaque:032X}\x02WAIT\x01true\x02"
    if dice.random() < 0.5:
        text += f"KEYS\x01order-{opaque} customer-{opaque % 7}\x02TAGS\x01paid\x02"
    if dice.random() < 0.2:
        text += dice.choice(("city\x01Zürich\x02", "城市\x01北京\x02", "smile\x01😀\x02", "mangled\x01\ufffd\x02"))
    if dice.random() < 0.15:
        text += dice.choice((*ODD_PROPERTIES, f"{dice.choice(PROPERTY_NAMES)}\x01{dice.choice(VALUES)}\x02"))
    if dice.random() < 0.1:
        text = text.replace("TRAN_MSG\x01true\x02", dice.choice(("", "TRAN_MSG\x01false\x02")))
    if dice.random() < 0.05:
        text = text.replace("UNIQ_KEY\x01", "UNIQ_KEY\x01not a word ")
    if dice.random() < 0.2:
        text = text.removesuffix("\x02")
    ext = {
        "a": "producers", "b": dice.choice(TOPICS), "c": "TBW102", "d": "4", "e": str(dice.randrange(4)), "f": "4",
        "g": str(START_MS - dice.randrange(90_000)), "h": str(dice.choice((0, 7))), "i": text, "j": "0", "k": "false",
        "l": "16", "m": "false", "n": "broker-a",
    }  # fmt: skip
    if dice.random() < 0.1:
        name, value = dice.choice(
            (("e", "99"), ("e", "x"), ("f", "0"), ("f", "5"), ("f", "12"), ("f", "16"), ("g", ""), ("j", "2"),
             ("k", "true"), ("b", "%RETRY%nobody"), ("b", "Unknown"), ("m", "TRUE"), ("ns", "space"))
        )  # fmt: skip
        ext[name] = value
    body = dice.randbytes(dice.choice((0, 1, 300, 900)) if dice.random() < 0.1 else dice.randrange(1, 400))
    frame = encoded(dice, Command.request(RequestCode.SEND_MESSAGE_V2, ext, body, opaque=opaque))
    if frame[4] == 1 and dice.random() < 0.5:  # a binary header may hold any bytes
        frame = frame.replace("ü".encode(), dice.choice((b"\xc3\x28", b"\xff\xfe", b"\xc0\xaf", b"\xc3\xc3")))
        frame = frame.replace("北".encode(), dice.choice((b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xe5\x8c\x01")))
        frame = frame.replace("😀".encode(), dice.choice((b"\xf5\x90\x80\x80", b"\xf0\x80\x80\x80", b"\xf8abc")))
    return frame


def end_frame(dice: random.Random, opaque: int, place: tuple[int, int]) -> bytes:
    """Mostly the first end of a half message; some come twice, late, from a check, or name no half message."""
    ext = {
        "producerGroup": "producers", "tranStateTableOffset": str(place[0]), "commitLogOffset": str(place[1]),
        "commitOrRollback": dice.choice(("8", "8", "8", "12")), "fromTransactionCheck": "false", "msgId": f"m{opaque}",
        "transactionId": f"t{opaque}", "bname": "broker-a",
    }  # fmt: skip
    if dice.random() < 0.15:
        name, value = dice.choice(
            (("producerGroup", "others"), ("tranStateTableOffset", str(place[0] + 1)), ("commitOrRollback", "0"),
             ("commitLogOffset", str(place[1] + 1)), ("commitLogOffset", "-1"), ("commitLogOffset", str(1 << 40)),
             ("fromTransactionCheck", "true"), ("commitOrRollback", "x"), ("msgId", "grüß"), ("ns", "space"))
        )  # fmt: skip
        ext[name] = value
    if dice.random() < 0.1:
        del ext[dice.choice(("fromTransactionCheck", "transactionId", "bname"))]
    return encoded(dice, Command.request(RequestCode.END_TRANSACTION, ext, opaque=opaque))


@dataclass
class Outcome:
    port: int = 0
    local_port: int = 0
    answers: list[dict[int, bytes]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    counts: list[Any] = field(default_factory=list)
    taken: tuple[int, int] = (0, 0)


async def run(
    root: Path, seed: int, like: Outcome, *, fast: bool, repeated: int = 20, flush: str = "ASYNC_FLUSH"
) -> Outcome:
    """Half messages, their ends, a round of checks, and ends again, on a broker of its own."""
    clock = VirtualClock(START_MS)
    outcome = Outcome()
    settings = {**SETTINGS, "flushDiskType": flush, "listenPort": str(like.port)}
    broker = Broker(BrokerConfig.from_properties(settings), root, clock)
    broker.open()
    for topic in TOPICS:
        broker.topics.create_internal(topic, 4)
    await broker.topics.saved()
    server = RemotingServer(broker.handlers, clock=clock)
    outcome.port = await server.start("127.0.0.1", like.port)
    await broker.start(outcome.port)
    if fast:
        server.fast_path = broker.fast_path
    talk = Talk(CLIENT, like.local_port)
    await talk.connect(outcome.port)
    outcome.local_port = talk.local_port
    try:
        dice = random.Random(seed)
        halves = b"".join(half_frame(dice, opaque) for opaque in range(1, 301))
        outcome.answers.append(await talk.answers(cut(halves, random.Random(seed))))
        places = places_in(outcome.answers[0])
        for number, first in enumerate((1000, 2000)):
            chosen = dice.sample(places, len(places) * 2 // 3) + dice.choices(places, k=repeated)
            ends = b"".join(end_frame(dice, first + index, place) for index, place in enumerate(chosen))
            outcome.answers.append(await talk.answers(cut(ends + closing(first + 999), random.Random(seed))))
            outcome.counts.append(counts_of(broker))
            if number == 0:
                await clock.advance(30)
                await broker.services.transaction_checks.round()
        outcome.counts.append(broker.store.max_offset(HALF_TOPIC, 0))
        outcome.counts.append(broker.store.max_offset(OP_HALF_TOPIC, 0))
        if fast and has_fast_path():
            assert broker.fast_path is not None
            fast = broker.fast_path.handlers["half messages"]
            outcome.taken = (fast.taken_halves, fast.taken_ends)
    finally:
        talk.writer.transport.abort()
        await server.close()
        await broker.stop()
    outcome.files = files_of(root)
    return outcome


def closing(opaque: int) -> bytes:
    ext = {"topic": "Orders", "queueId": "0"}
    return encode_frame(Command.request(RequestCode.GET_MAX_OFFSET, ext, opaque=opaque))


def places_in(answers: dict[int, bytes]) -> list[tuple[int, int]]:
    found = []
    for opaque in sorted(answers):
        (answer,) = FrameSplitter().feed(answers[opaque])
        if "queueOffset" in answer.ext:
            found.append((int(answer.ext["queueOffset"]), parse_offset_message_id(answer.ext["msgId"]).physical_offset))
    return found


def counts_of(broker: Broker) -> Any:
    counts = broker.services.transactions.counts
    broker.stats.gather()
    totals = {(name, key): item.total for name, items in broker.stats.items.items() for key, item in items.items()}
    latency = {topic: (found.counts, found.total) for topic, found in counts.latency.items()}
    return (
        +counts.committed,
        +counts.rolled_back,
        latency,
        dict(counts.open_by_topic()),
        totals,
        broker.stats.puts.total,
    )


@pytest.mark.parametrize("seed", range(6))
async def test_the_fast_path_and_the_general_path_decide_and_store_the_same(tmp_path: Path, seed: int) -> None:
    """A random stream, cut anywhere, goes to two brokers of which one has no fast path."""
    general = await run(tmp_path / "general", seed, Outcome(), fast=False)
    fast = await run(tmp_path / "fast", seed, general, fast=True)
    assert general.answers == fast.answers
    assert general.counts == fast.counts
    assert general.files.keys() == fast.files.keys()
    for name, data in general.files.items():
        assert data == fast.files[name], name
    if has_fast_path():
        assert fast.taken[0] > 150, "most half messages are ordinary and must have gone the fast path"
        assert fast.taken[1] > 80, "and so must most first ends"


async def test_under_sync_flush_the_same_is_answered_once_the_disk_has_it(tmp_path: Path) -> None:
    """Without immediate repetitions: what is known of an end that is not on disk yet depends on the moment."""
    general = await run(tmp_path / "general", 77, Outcome(), fast=False, repeated=0, flush="SYNC_FLUSH")
    fast = await run(tmp_path / "fast", 77, general, fast=True, repeated=0, flush="SYNC_FLUSH")
    for ours, theirs in zip(fast.answers, general.answers, strict=True):
        for last in (1999, 2999):  # so does how far a reader sees
            ours.pop(last, None)
            theirs.pop(last, None)
        assert theirs == ours
    assert general.files == fast.files
    if has_fast_path():
        assert fast.taken[1] > 80

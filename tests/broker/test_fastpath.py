"""The fast path is a shortcut: with it and without it the same bytes are answered and the same files left."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from talking import Talk, cut, has_fast_path, taken_by_fast_path
from two_paths import CLIENT, PROPERTY_NAMES, SETTINGS, START_MS, VALUES, run, same_on_both

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import SystemClock, VirtualClock
from arrowmq.remoting.server import RemotingServer
from arrowmq.store.read.reader import is_resident
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.records import decode_records

TOPICS = ("Orders", "Payments", "a-topic_with|every%letter")
# Forms that are odd; odd names and values are generated from the lists of `wire` (`test_generated_cases.py`).
ODD_PROPERTIES = (
    "TAGS\x01tag\x02TAGS\x01other\x02", "TAGS\x01\x02", "TAGS", "\x01\x02", "name\x01a\x01b\x02", "fruit\x01grüß\x02",
    "KEYS\x01" + "k " * 200 + "\x02", "no-end\x01value", 'quote\x01"\\\x02',
)  # fmt: skip


def properties_of(dice: random.Random, number: int) -> str:
    text = f"UNIQ_KEY\x01{number:032X}\x02"
    if dice.random() < 0.6:
        text += f"KEYS\x01order-{number} customer-{number % 7}\x02"
    if dice.random() < 0.6:
        text += f"TAGS\x01{dice.choice(('created', 'paid', 'shipped'))}\x02"
    if dice.random() < 0.3:
        text = f"region\x01north\x02WAIT\x01true\x02{text}"
    if dice.random() < 0.2:
        text += dice.choice((*ODD_PROPERTIES, f"{dice.choice(PROPERTY_NAMES)}\x01{dice.choice(VALUES)}\x02"))
    return text


def ext_of(dice: random.Random, number: int, *, batch: bool) -> dict[str, str]:
    ext = {
        "a": "producers", "b": dice.choice(TOPICS), "c": "TBW102", "d": "4", "e": str(dice.randrange(4)), "f": "0",
        "g": str(START_MS + number), "h": str(dice.choice((0, 7, -1))), "i": properties_of(dice, number), "j": "0",
        "k": "false", "l": "16", "m": "true" if batch else "false", "n": "broker-a",
    }  # fmt: skip
    if dice.random() < 0.15:
        name, value = dice.choice(
            (
                ("e", "99"), ("e", "x"), ("f", "1"), ("f", "4"), ("f", "769"), ("g", ""), ("h", "12345678901"),
                ("j", "2"),
                ("k", "true"), ("b", "SCHEDULE_TOPIC_XXXX"), ("b", "%RETRY%nobody"), ("b", "no/topic"), ("ns", "space"),
                ("d", "many"), ("m", "TRUE"), ("l", "-1"),
            )
        )  # fmt: skip
        ext[name] = value
    if dice.random() < 0.1:
        del ext[dice.choice("acdhjklmn")]
    if ext.get("m") == "true" and dice.random() < 0.4:
        ext["i"] = ""  # clients of other languages give a batch no properties of its own
    elif dice.random() < 0.2:
        ext["i"] = ext["i"].removesuffix("\x02")
    return ext


def batch_of(dice: random.Random, number: int) -> bytes:
    items = [
        (index, dice.randbytes(dice.randrange(1, 80)), properties_of(dice, number * 1000 + index).encode())
        for index in range(dice.randrange(1, 12))
    ]
    body = bytearray(encode_batch(items))
    if dice.random() < 0.15:
        body[dice.randrange(min(len(body), 40))] ^= 1 << dice.randrange(8)
    return bytes(body)


def pull_of(dice: random.Random, number: int) -> Command:
    ext = {
        "consumerGroup": dice.choice(("readers", "others")), "topic": dice.choice(TOPICS[:2]),
        "queueId": str(dice.randrange(4)), "queueOffset": str(dice.choice((0, 1, 5, dice.randrange(60)))),
        "maxMsgNums": str(dice.choice((1, 8, 32, 500))), "sysFlag": str(dice.choice((4, 5))),
        "commitOffset": str(dice.choice((0, 3))), "suspendTimeoutMillis": "15000", "subVersion": "0",
        "subscription": dice.choice(("*", "created", "created || paid", "nothing", "")), "expressionType": "TAG",
    }  # fmt: skip
    odd = dice.random()
    if odd < 0.05:
        ext |= {"expressionType": "SQL92", "subscription": "region = 'north'"}
    elif odd < 0.1:
        ext["maxMsgBytes"] = dice.choice(("1000", "1", "-5", "x"))
    elif odd < 0.15:
        ext[dice.choice(("queueId", "queueOffset", "topic", "consumerGroup"))] = dice.choice(("-1", "77", "!", ""))
    elif odd < 0.2:
        del ext[dice.choice(("subscription", "expressionType", "subVersion", "commitOffset"))]
    elif odd < 0.25:
        ext |= {"bname": "broker-a", "requestSource": "-1", "lo": "false"}
    return Command.request(RequestCode.PULL_MESSAGE, ext, opaque=number)


def frames_of(seed: int, count: int) -> list[bytes]:
    """Mostly ordinary sends and pulls, in both header forms, with odd ones and other requests between them."""
    dice = random.Random(seed)
    frames = []
    for number in range(1, count + 1):
        is_batch = dice.random() < 0.25
        if dice.random() < 0.1:
            ext = {"topic": "Orders", "queueId": "0"}
            command = Command.request(RequestCode.GET_MAX_OFFSET, ext, opaque=number)
        elif dice.random() < 0.4:
            command = pull_of(dice, number)
        else:
            code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
            body = batch_of(dice, number) if is_batch else dice.randbytes(dice.randrange(0, 900))
            command = Command.request(code, ext_of(dice, number, batch=is_batch), body, opaque=number)
            if dice.random() < 0.1:
                command.flag = 2
        command.serialize_type = dice.randrange(2)
        frames.append(encode_frame(command))
    return frames


def closing(frames: list[bytes]) -> bytes:
    last = Command.request(RequestCode.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"}, opaque=len(frames) + 1)
    return encode_frame(last)


@pytest.mark.parametrize("seed", range(6))
async def test_the_fast_path_and_the_general_path_answer_and_store_the_same_bytes(tmp_path: Path, seed: int) -> None:
    """A random stream of sends, cut anywhere, goes to two brokers of which one has no fast path."""
    frames = frames_of(seed, 800)
    _, fast = await same_on_both(tmp_path, frames, closing(frames), seed=seed + 1000)
    if has_fast_path():
        assert fast.taken["sent"] > len(frames) // 3, "most sends are ordinary and must have gone the fast path"
        assert fast.taken["pulled"] > len(frames) // 3, "and so must most pulls that find something"


async def test_under_sync_flush_the_fast_path_answers_the_same_once_the_disk_has_it(tmp_path: Path) -> None:
    """Sends alone: how much of it a pull may see depends on when the disk was done."""
    frames = [frame for frame in frames_of(50, 500) if b"consumerGroup" not in frame and b"queueOffset" not in frame]
    chunks = cut(b"".join(frames) + closing(frames), random.Random(51))
    general = await run(tmp_path / "general", frames, chunks, fast=False, flush="SYNC_FLUSH")
    fast = await run(tmp_path / "fast", frames, chunks, fast=has_fast_path(), like=general, flush="SYNC_FLUSH")
    sends = {opaque for opaque, answer in general.answers.items() if b"MSG_REGION" in answer}
    assert {opaque: general.answers[opaque] for opaque in sends} == {opaque: fast.answers[opaque] for opaque in sends}
    assert general.files == fast.files
    if has_fast_path():
        assert fast.taken["sent"] > len(frames) // 3


async def test_batches_go_the_fast_path_while_the_files_of_queue_and_index_grow(tmp_path: Path) -> None:
    """Both get their room piece by piece. Only where a file begins the general path is needed."""
    settings = SETTINGS | {
        "mappedFileSizeConsumeQueue": str(20 * 10_000), "mappedFileSizeCommitLog": str(1 << 23), "maxIndexNum": "20000",
    }  # fmt: skip
    ext = {**ext_of(random.Random(1), 1, batch=True), "b": "Orders", "e": "0", "f": "0"}
    frames = []
    for number in range(1, 1601):
        body = encode_batch([(0, b"x", f"UNIQ_KEY\x01{number:024X}{each:08X}\x02".encode()) for each in range(7)])
        ext["i"] = f"UNIQ_KEY\x01{number:032X}\x02"
        frames.append(encode_frame(Command.request(RequestCode.SEND_BATCH_MESSAGE, ext, body, opaque=number)))
    chunks = cut(b"".join(frames) + closing(frames), random.Random(2))
    general = await run(tmp_path / "general", frames, chunks, fast=False, settings=settings)
    fast = await run(tmp_path / "fast", frames, chunks, fast=has_fast_path(), like=general, settings=settings)
    assert general.answers == fast.answers
    assert general.files == fast.files
    if has_fast_path():
        assert 1600 - fast.taken["sent"] // 7 <= 2, "the first batch, and the one over the end of the queue's file"


async def test_a_setting_that_was_changed_counts_for_the_very_next_message(tmp_path: Path) -> None:
    """By the machine's clock the fast path asks only once a millisecond whether it may go on."""
    broker = Broker(BrokerConfig.from_properties({**SETTINGS, "listenPort": "0"}), tmp_path, SystemClock())
    broker.open()
    server = RemotingServer(broker.handlers)
    port = await server.start("127.0.0.1", 0)
    await broker.start(port)
    ext = {**ext_of(random.Random(1), 1, batch=False), "b": "Orders", "e": "0", "i": f"UNIQ_KEY\x01{1:032X}\x02"}
    frame = encode_frame(Command.request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100))
    taken = []
    async with Talk(CLIENT, 0) as talk:
        await talk.connect(port)
        await talk.answers([frame])
        (connection,) = server.connections
        for limit in ["10", "1000"] * 20:
            broker.config.apply({"maxMessageSize": limit})
            broker.config_changed({"maxMessageSize": limit})
            taken.append(
                broker.fast_path is not None and broker.fast_path(connection, memoryview(frame))[0] == len(frame)
            )
    await server.close()
    await broker.stop()
    assert taken == [False, has_fast_path()] * 20


async def test_a_pull_whose_queue_entries_are_on_disk_only_is_not_waited_for_on_the_fast_path(tmp_path: Path) -> None:
    """A queue's first file after a restart: nothing has read it, and the page cache was told to forget it."""
    ext = {**ext_of(random.Random(1), 1, batch=False), "b": "Orders", "e": "0", "i": f"UNIQ_KEY\x01{1:032X}\x02"}
    ext |= {"f": "0", "d": "4"}
    sends = [encode_frame(Command.request(RequestCode.SEND_MESSAGE_V2, ext, b"x", opaque=n)) for n in range(1000)]
    sent = await run(tmp_path, sends, sends, fast=has_fast_path())
    for file in (tmp_path / "consumequeue").rglob("*"):
        if file.is_file():
            with file.open("rb+") as entries:
                os.fsync(entries.fileno())
                os.posix_fadvise(entries.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    broker = Broker(BrokerConfig.from_properties({**SETTINGS, "listenPort": str(sent.port)}), tmp_path, VirtualClock())
    broker.open()
    server = RemotingServer(broker.handlers)
    await broker.start(await server.start("127.0.0.1", sent.port))
    server.fast_path = broker.fast_path
    pull = pull_of(random.Random(5), 1)
    pull.ext |= {"topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "8", "subscription": "*"}
    queue = broker.store.consume_queues.find("Orders", 0)
    assert queue is not None
    first = queue.segment_at(0)
    assert first is not None
    is_at_hand = is_resident(first.view, 0, 160)
    async with Talk(CLIENT, 0) as talk:
        await talk.connect(server.port)
        (answer,) = FrameSplitter().feed((await talk.answers([encode_frame(pull)]))[1])
        assert [record.queue_offset for record in decode_records(answer.body)] == list(range(8))
        fast = taken_by_fast_path(broker)["pulled"]
        assert fast == (8 if is_at_hand and has_fast_path() else 0)
        pull.opaque = 2
        await talk.answers([encode_frame(pull)])
        if has_fast_path():
            assert broker.fast_path is not None
            assert taken_by_fast_path(broker)["pulled"] == fast + 8, "it lies in memory now"
    await server.close()
    await broker.stop()


@pytest.mark.parametrize("in_turn", [1, 7, 400])
async def test_a_reader_that_is_slow_gets_every_answer_whole_and_in_order(tmp_path: Path, in_turn: int) -> None:
    """50 MB of answers to 400 pulls, some larger than what is gathered before it is sent, in reads of 4 KiB; other
    requests between them go the general path."""
    settings = {**SETTINGS, "mappedFileSizeCommitLog": str(1 << 23), "listenPort": "0"}
    broker = Broker(BrokerConfig.from_properties(settings), tmp_path, SystemClock())
    broker.open()
    server = RemotingServer(broker.handlers)
    port = await server.start("127.0.0.1", 0)
    await broker.start(port)
    server.fast_path = broker.fast_path
    ext = {**ext_of(random.Random(1), 1, batch=False), "b": "Orders", "e": "0", "i": f"UNIQ_KEY\x01{1:032X}\x02"}
    ext |= {"f": "0", "d": "4"}
    bodies = [bytes([number]) * (500_000 if number == 6 else 20_000) for number in range(12)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    splitter, answers = FrameSplitter(), list[Command]()

    async def answered(count: int) -> None:
        while len(answers) < count:
            answers.extend(splitter.feed(await reader.read(4096)))

    for number, body in enumerate(bodies):
        writer.write(encode_frame(Command.request(RequestCode.SEND_MESSAGE_V2, ext, body, opaque=number)))
    await answered(len(bodies))
    answers.clear()
    pulls = []
    for number in range(400):
        pull = pull_of(random.Random(5), number)
        start = "6" if number % 10 == 0 else "7" if number % 2 else "2"
        pull.ext |= {"topic": "Orders", "queueId": "0", "queueOffset": start, "maxMsgNums": "32", "subscription": "*"}
        pulls.append(pull)
        if number % 23 == 5:
            pull.code, pull.ext = RequestCode.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"}
    for begin in range(0, len(pulls), in_turn):
        writer.write(b"".join(map(encode_frame, pulls[begin : begin + in_turn])))
        await asyncio.sleep(0)
        if in_turn < 100:
            await answered(begin + 1)
    await answered(len(pulls))
    assert [answer.opaque for answer in answers] == list(range(400))
    for number, (pull, answer) in enumerate(zip(pulls, answers, strict=True)):
        assert answer.code == 0, answer.remark
        if pull.code == RequestCode.PULL_MESSAGE:
            start = int(pull.ext["queueOffset"])
            records = decode_records(answer.body, check_crc=True)
            expected = bodies[start : start + len(records)]
            assert expected, number
            assert [record.body for record in records] == expected
    if has_fast_path():
        assert broker.fast_path is not None
        assert taken_by_fast_path(broker)["pulled"] > 1000
    writer.close()
    await server.close()
    await broker.stop()


async def test_what_went_the_fast_path_is_counted_like_any_message(tmp_path: Path) -> None:
    """Statistics take in the fast path's counts when they are read."""
    frames = frames_of(77, 200)
    chunks = [b"".join(frames) + closing(frames)]
    clock = VirtualClock(START_MS)
    totals = []
    for fast in (False, True):
        broker = Broker(BrokerConfig.from_properties({**SETTINGS, "listenPort": "0"}), tmp_path / str(fast), clock)
        broker.open()
        server = RemotingServer(broker.handlers, clock=clock)
        await broker.start(await server.start("127.0.0.1", 0))
        if fast:
            server.fast_path = broker.fast_path
        async with Talk(CLIENT, 0) as talk:
            await talk.connect(server.port)
            await talk.answers(chunks)
        broker.stats.gather()
        found = {
            (name, key): (item.total, item.times if name.startswith(("GROUP", "QUEUE_GET")) else 0)
            for name, items in broker.stats.items.items()
            for key, item in items.items()
        }
        sizes = {of: (each.counts, each.total, each.largest) for of, each in broker.stats.sizes.items()}
        answers = {of: times.count for of, times in broker.answer_times.times.items()}
        totals.append((broker.stats.puts.total, broker.stats.gets_found.total, found, sizes, answers))
        await server.close()
        await broker.stop()
    assert totals[0] == totals[1]
    assert totals[0][0] > 100

"""Under SYNC_FLUSH nobody is told, and nobody reads, what the disk does not have; and one time-out counts for all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from disks import HangingDisk
from talking import Talk, has_fast_path, taken_by_fast_path

from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.ids import parse_offset_message_id

SUSPEND = 2
COMMIT = 8
TAGS = ("created", "paid", "shipped")


@pytest.fixture
async def disk(make_node: Any) -> AsyncIterator[HangingDisk]:
    """It goes on before the brokers that use it are stopped."""
    hanging = HangingDisk()
    yield hanging
    hanging.go_on()


def send_header(number: int, *, queue_id: int = 0, properties: str = "", sys_flag: int = 0) -> dict[str, Any]:
    """What an ordinary producer sends, and the fast path takes."""
    return {
        "a": "P", "b": "orders", "c": "TBW102", "d": "4", "e": queue_id, "f": sys_flag, "g": 1, "h": 0,
        "i": f"{properties}UNIQ_KEY\x01{number:032X}\x02", "j": 0, "k": False,
    }  # fmt: skip


async def send(node: Any, number: int, body: bytes, **more: Any) -> Command:
    return await node.client.ask(RequestCode.SEND_MESSAGE_V2, send_header(number, **more), body)


def sending(node: Any, number: int, body: bytes, **more: Any) -> asyncio.Task[Command]:
    return asyncio.ensure_future(send(node, number, body, **more))


def natively_pulled(node: Any) -> int:
    return taken_by_fast_path(node.broker)["pulled"]


@pytest.mark.parametrize("short", [True, False], ids=["natively", "generally"])
async def test_no_pull_sees_what_the_disk_does_not_have(make_node: Any, disk: HangingDisk, short: bool) -> None:
    node = await make_node(short=short, disk=disk, flushDiskType="SYNC_FLUSH")
    await send(node, 1, b"safe")
    disk.hang()
    before = node.broker.store.appended
    unsafe = sending(node, 2, b"unsafe")
    await node.eventually(lambda: node.broker.store.appended > before)
    for _ in range(3):
        answer = await node.client.pull("orders")
        assert ([b"safe"], "1", "1") == (
            node.client.bodies(answer), answer.ext["nextBeginOffset"], answer.ext["maxOffset"],
        )  # fmt: skip
        beyond = await node.client.pull("orders", 1)
        assert (ResponseCode.PULL_NOT_FOUND, b"") == (beyond.code, beyond.body)
    assert not unsafe.done()
    disk.go_on()
    assert (await unsafe).code == ResponseCode.SUCCESS
    assert [b"safe", b"unsafe"] == node.client.bodies(await node.client.pull("orders"))
    if short and has_fast_path():
        assert natively_pulled(node) == 5, "every pull that found something was served natively"


async def test_no_recall_is_answered_that_the_disk_does_not_have(make_node: Any, disk: HangingDisk) -> None:
    """A loss of power just then brought the message back that its sender was told is taken back."""
    node = await make_node(disk=disk, flushDiskType="SYNC_FLUSH", recallMessageEnable="true")
    due_ms = node.clock.now_ms() + 10_000
    sent = await send(node, 1, b"taken back", properties=f"TIMER_DELIVER_MS\x01{due_ms}\x02")
    disk.hang()
    before = node.broker.store.appended
    request = {"topic": "orders", "producerGroup": "P", "recallHandle": sent.ext["recallHandle"]}
    recall = node.client.asking(RequestCode.RECALL_MESSAGE, request)
    await node.eventually(lambda: node.broker.store.appended > before)
    assert not recall.done()
    disk.go_on()
    assert ResponseCode.SUCCESS == (await recall).code


async def test_a_pull_that_comes_while_the_disk_hangs_gets_the_message_however_long_that_takes(
    make_node: Any, disk: HangingDisk
) -> None:
    """It looks in vain each time the time-out is over, and must be woken all the same."""
    node = await make_node(short=True, disk=disk, flushDiskType="SYNC_FLUSH", syncFlushTimeout="500")
    await send(node, 1, b"first")
    disk.hang()
    before = node.broker.store.appended
    late = sending(node, 2, b"late")
    await node.eventually(lambda: node.broker.store.appended > before)
    header = node.client.pull_header("orders", 1, sysFlag=4 | SUSPEND, suspendTimeoutMillis=60_000)
    pull = node.client.asking(RequestCode.PULL_MESSAGE, header)
    await node.eventually(lambda: node.broker.longpoll.count == 1)
    for _ in range(4):
        await node.clock.advance(0.6)
        await node.eventually(lambda: node.broker.longpoll.count == 1)
    assert ResponseCode.FLUSH_DISK_TIMEOUT == (await late).code
    assert not pull.done()
    disk.go_on()
    assert [b"late"] == node.client.bodies(await asyncio.wait_for(pull, 10))


# One time-out


async def transaction_end(node: Any) -> asyncio.Task[Command]:
    begun = await send(node, 9, b"paid", properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02", sys_flag=4)
    header = {
        "producerGroup": "P", "tranStateTableOffset": begun.ext["queueOffset"], "commitOrRollback": COMMIT,
        "commitLogOffset": parse_offset_message_id(begun.ext["msgId"]).physical_offset,
        "msgId": begun.ext["transactionId"], "transactionId": begun.ext["transactionId"],
    }  # fmt: skip
    node.disk.hang()
    return node.client.asking(RequestCode.END_TRANSACTION, header)


async def retry(node: Any) -> asyncio.Task[Command]:
    (record,) = node.client.records(await node.client.pull("orders"))
    node.disk.hang()
    header = {"offset": record.physical_offset, "group": "G", "delayLevel": 3, "originTopic": "orders"}
    return node.client.asking(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def ordinary_send(node: Any) -> asyncio.Task[Command]:
    node.disk.hang()
    return sending(node, 7, b"body")


@pytest.mark.parametrize("short", [True, False], ids=["natively", "generally"])
@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (ordinary_send, ResponseCode.FLUSH_DISK_TIMEOUT),
        (transaction_end, ResponseCode.SUCCESS),
        (retry, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_changed_time_out_reaches_everyone_who_waits(
    make_node: Any, disk: HangingDisk, ask: Any, code: ResponseCode, short: bool
) -> None:
    node = await make_node(short=short, disk=disk, flushDiskType="SYNC_FLUSH")
    await send(node, 1, b"there before")
    positions = node.broker.store.positions
    waiting = await ask(node)
    await node.eventually(lambda: positions.is_flush_awaited)
    await node.clock.advance(1)
    changed = await node.connect().ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"syncFlushTimeout=1500\n")
    assert changed.code == ResponseCode.SUCCESS
    shown = await node.connect().ask(RequestCode.GET_BROKER_CONFIG)
    assert "syncFlushTimeout=1500" in shown.body.decode().splitlines()
    await node.clock.advance(0.4)
    assert positions.is_flush_awaited
    assert not waiting.done()
    await node.clock.advance(0.2)
    answer = await asyncio.wait_for(waiting, 10)
    assert code == answer.code
    assert answer.remark.startswith("FLUSH_DISK_TIMEOUT")


async def test_a_changed_time_out_reaches_a_pull_that_waits_for_the_disk(
    make_node: Any, disk: HangingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await make_node(short=True, disk=disk, flushDiskType="SYNC_FLUSH")
    await send(node, 1, b"first")
    disk.hang()
    before = node.broker.store.appended
    answer = await send(node, 2, b"unsafe", properties="WAIT\x01false\x02")
    assert answer.code == ResponseCode.SUCCESS
    assert node.broker.store.appended > before
    looks: list[str] = []
    look_again = node.broker.longpoll.poke
    monkeypatch.setattr(node.broker.longpoll, "poke", lambda *queue: (looks.append(queue[0]), look_again(*queue)))
    header = node.client.pull_header("orders", 1, sysFlag=4 | SUSPEND, suspendTimeoutMillis=60_000)
    pull = node.client.asking(RequestCode.PULL_MESSAGE, header)
    await node.eventually(lambda: node.broker.longpoll.count == 1)
    await node.clock.advance(4)
    assert [] == looks
    await node.connect().ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"syncFlushTimeout=1000\n")
    await node.eventually(lambda: looks)
    await node.eventually(lambda: node.broker.longpoll.count == 1)
    disk.go_on()
    assert [b"unsafe"] == node.client.bodies(await asyncio.wait_for(pull, 10))


# Both paths


def pulls_of(dice: random.Random, count: int) -> list[bytes]:
    """Pulls that answer at once, some of them not ordinary."""
    frames = []
    for number in range(1, count + 1):
        ext = {
            "consumerGroup": dice.choice(("readers", "others")), "topic": "orders", "queueId": str(dice.randrange(4)),
            "queueOffset": str(dice.choice((0, 1, dice.randrange(70)))), "commitOffset": "0", "subVersion": "0",
            "maxMsgNums": str(dice.choice((1, 8, 32, 500))), "sysFlag": "4", "suspendTimeoutMillis": "15000",
            "subscription": dice.choice(("*", "created", "created || paid", "nothing")), "expressionType": "TAG",
        }  # fmt: skip
        if dice.random() < 0.2:
            ext["maxMsgBytes"] = dice.choice(("200", "1000"))
        command = Command.request(RequestCode.PULL_MESSAGE, ext, opaque=number)
        command.serialize_type = dice.randrange(2)
        frames.append(encode_frame(command))
    return frames


async def answers_of(node: Any, pulls: list[bytes], fast_path: Any) -> dict[int, bytes]:
    node.server.fast_path = fast_path
    async with Talk("127.0.0.9", 0) as talk:
        await talk.connect(node.server.port)
        return await talk.answers(pulls)


def suggested(answers: dict[int, bytes]) -> set[str]:
    found = (FrameSplitter().feed(answer)[0] for answer in answers.values())
    return {answer.ext["suggestWhichBrokerId"] for answer in found if answer.code == ResponseCode.SUCCESS}


@pytest.mark.parametrize(
    ("settings", "brokers"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, {"0"}),
        ({"slaveReadEnable": "true"}, {"0", "2"}),
        ({"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}, {"1", "3"}),
        ({"slaveReadEnable": "true", "flushDiskType": "SYNC_FLUSH"}, {"0", "2"}),
    ],
)
async def test_native_pulls_and_the_general_path_answer_the_same(
    make_node: Any, disk: HangingDisk, settings: dict[str, str], brokers: set[str]
) -> None:
    """The same pulls, on one broker, by both paths: first while the disk has not all of it, then when it has."""
    node = await make_node(disk=disk, **settings)
    group = {"groupName": "others", "brokerId": 2, "whichBrokerWhenConsumeSlowly": 3}
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    dice = random.Random(7)
    for number in range(160):
        tag = f"TAGS\x01{dice.choice(TAGS)}\x02"
        await send(node, number, bytes(dice.randrange(1, 300)), queue_id=number % 4, properties=tag)
    disk.hang()
    unsafe = [sending(node, 1000 + number, b"unsafe", queue_id=number % 4) for number in range(40)]
    await node.eventually(lambda: sum(node.broker.store.queue("orders", each).next_offset for each in range(4)) == 200)
    for _ in range(2):
        pulls = pulls_of(dice, 300)
        general = await answers_of(node, pulls, None)
        before = natively_pulled(node)
        assert general == await answers_of(node, pulls, node.broker.fast_path)
        assert brokers == suggested(general)
        if has_fast_path():
            assert natively_pulled(node) - before > 1000, "most that find something are ordinary"
        disk.go_on()
        await asyncio.gather(*unsafe)


async def test_a_reader_hears_where_to_read_on_as_soon_as_that_was_changed(make_node: Any) -> None:
    node = await make_node(short=True, accessMessageInMemoryMaxRatio="0")
    await send(node, 1, b"far back")
    for enabled, broker in (("false", "0"), ("true", "1"), ("false", "0")):
        await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"slaveReadEnable={enabled}\n".encode())
        assert broker == (await node.client.pull("orders")).ext["suggestWhichBrokerId"]
    if has_fast_path():
        assert 3 == natively_pulled(node)

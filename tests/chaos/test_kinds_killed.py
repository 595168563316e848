"""Every kind of message while the broker is killed (-9) and started again, several times, at seeded moments.

What holds in all of them: what was acknowledged is there afterwards, in the order of its queue; what was decided stays
decided; what was refused, rolled back or taken back does not appear. What was sent without an answer may be there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from killing import ALERT, BrokerProcess, insistently

import arrowmq
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.ids import parse_offset_message_id
from waiting import pause, until

pytestmark = pytest.mark.timeout(170)
TOPIC, QUEUES = "orders", 4


async def make_topic(broker: BrokerProcess, topic: str = TOPIC, queues: int = QUEUES) -> None:
    async with arrowmq.Admin(broker.namesrv, **ALERT) as admin:
        await admin.create_topic(topic, queues=queues)


def producer_of(broker: BrokerProcess, **more: Any) -> arrowmq.Producer:
    return arrowmq.Producer(broker.namesrv, **{"group": "P", "timeout_s": 1.0, **ALERT, **more})


def push_of(broker: BrokerProcess, handler: Any, **more: Any) -> arrowmq.PushConsumer:
    options = {"group": "G", "topic": TOPIC, "consume_from": "first", "commit_interval_s": 0.2, **ALERT, **more}
    return arrowmq.PushConsumer(broker.namesrv, handler=handler, **options)


async def test_order_holds_per_key_and_nothing_acknowledged_is_lost(broker: BrokerProcess) -> None:
    keys, count = 8, 150
    await make_topic(broker)
    seen: dict[str, list[int]] = defaultdict(list)

    async def note(message: arrowmq.ReceivedMessage) -> None:
        key, _, number = message.body.decode().partition(":")
        seen[key].append(int(number))

    async def send(key: str, producer: arrowmq.Producer) -> None:
        for number in range(count):
            await insistently(lambda: producer.send(TOPIC, f"{key}:{number}".encode(), order_key=key))  # noqa: B023

    async with producer_of(broker) as producer, push_of(broker, note, orderly=True):
        await broker.killed_while(_together(*(send(f"k{key}", producer) for key in range(keys))))
        await until(lambda: all(set(range(count)) <= set(seen[f"k{key}"]) for key in range(keys)))
    for key, numbers in seen.items():
        highest = -1
        for number in numbers:
            assert number <= highest + 1, f"{key}: {number} came before {highest + 1}"
            highest = max(highest, number)


async def test_a_batch_is_there_whole_or_not_at_all(broker: BrokerProcess) -> None:
    await make_topic(broker)
    sizes: dict[str, int] = {}
    acknowledged: set[str] = set()

    async def send(lane: int, producer: arrowmq.Producer) -> None:
        for number in range(60):
            name, size = f"b{lane}.{number}", broker.chance.randint(1, 20)
            sizes[name] = size
            batch = [arrowmq.Message(TOPIC, f"{name}:{index}".encode()) for index in range(size)]
            try:
                await producer.send_batch(batch)
                acknowledged.add(name)
            except arrowmq.ArrowMQError:
                await asyncio.sleep(0)

    async with producer_of(broker, retries=0) as producer:
        await broker.killed_while(_together(*(send(lane, producer) for lane in range(4))))
    found: set[str] = set()
    for queue_id in range(QUEUES):
        bodies = [body.decode() for body in await broker.bodies(TOPIC, queue_id)]
        while bodies:
            name = bodies[0].partition(":")[0]
            assert [f"{name}:{index}" for index in range(sizes[name])] == bodies[: sizes[name]]
            assert name not in found
            found.add(name)
            del bodies[: sizes[name]]
    assert acknowledged
    assert acknowledged <= found


async def test_delays_of_several_levels_come_once_and_in_order(broker: BrokerProcess) -> None:
    await make_topic(broker, queues=2)
    stored: dict[int, list[bytes]] = {1: [], 2: []}

    async def send(level: int) -> None:
        for number in range(1500):
            name = b"%d-%d" % (level, number)
            header = {
                "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                "queueId": level - 1, "bornTimestamp": 1, "properties": f"DELAY\x01{level}\x02",
            }  # fmt: skip
            answer = await broker.ask(RequestCode.SEND_MESSAGE, header, name)
            if answer is None:
                await pause()
            else:
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                stored[level].append(name)

    await broker.killed_while(_together(send(1), send(2)), every_s=1.2)
    for level, names in stored.items():
        came: list[bytes] = []

        async def all_came(level: int = level, names: list[bytes] = names, came: list[bytes] = came) -> bool:
            came[:] = await broker.bodies(TOPIC, level - 1)
            return set(names) <= set(came)

        await until(all_came)
        acknowledged = set(names)
        # What was stored without its answer comes as well, and also once.
        assert [name for name in came if name in acknowledged] == names
        assert len(set(came)) == len(came)


async def test_timers_come_once_never_early_and_never_when_taken_back(broker: BrokerProcess) -> None:
    await make_topic(broker, queues=1)
    due_ms: dict[bytes, int] = {}
    recalled: set[bytes] = set()
    in_doubt: set[bytes] = set()  # asked back, and the broker died before it answered

    async def send(lane: int, producer: arrowmq.Producer) -> None:
        for number in range(40):
            name = b"%d-%d" % (lane, number)
            deliver_at = time.time() + 3 + broker.chance.random() * 4
            try:
                receipt = await producer.send(TOPIC, name, deliver_at=deliver_at)
                due_ms[name] = int(deliver_at * 1000)
                if number % 5 == 0:
                    assert receipt.recall_handle
                    in_doubt.add(name)
                    await producer.recall(TOPIC, receipt.recall_handle)
                    in_doubt.remove(name)
                    recalled.add(name)
            except arrowmq.ArrowMQError:
                await pause()

    async with producer_of(broker, retries=0) as producer:
        await broker.killed_while(_together(*(send(lane, producer) for lane in range(4))), every_s=1.5)
    wanted = set(due_ms) - recalled - in_doubt
    assert wanted
    assert recalled

    async def all_came() -> bool:
        return wanted <= set(await broker.bodies(TOPIC))

    await until(all_came)
    records = await broker.records(TOPIC)
    assert max(Counter(record.body for record in records).values()) == 1
    assert not recalled & {record.body for record in records}
    early = [record.body for record in records if record.store_timestamp < due_ms.get(record.body, 0) - 1000]
    assert not early


async def test_failed_messages_are_retried_or_become_dead_letters(broker: BrokerProcess) -> None:
    await make_topic(broker)
    done: set[bytes] = set()
    tries: Counter[bytes] = Counter()
    names = [b"%s-%d" % (kind, number) for kind in (b"fine", b"once", b"bad") for number in range(20)]

    async def work(message: arrowmq.ReceivedMessage) -> None:
        tries[message.body] += 1
        if message.body.startswith(b"bad") or (message.body.startswith(b"once") and message.reconsume_times == 0):
            raise arrowmq.RetryLater(1)
        done.add(message.body)

    async def send(producer: arrowmq.Producer) -> None:
        for name in names:
            await insistently(lambda: producer.send(TOPIC, name))  # noqa: B023

    async with producer_of(broker) as producer, push_of(broker, work, max_reconsume_times=2):
        await broker.killed_while(send(producer), every_s=1.2)
        bad = {name for name in names if name.startswith(b"bad")}

        async def ended() -> bool:
            dead = set(await broker.bodies("%DLQ%G"))
            return done >= set(names) - bad and dead >= bad

        await until(ended)
        dead = await broker.records("%DLQ%G")
    assert {record.body for record in dead} == bad
    assert all(tries[name] >= 2 for name in names if name.startswith(b"once"))
    assert all(tries[name] >= 3 for name in bad)


async def test_transactions_are_decided_by_their_sender_or_by_a_check_and_only_once(broker: BrokerProcess) -> None:
    await make_topic(broker, queues=1)
    fates: dict[bytes, str] = {}

    def verdict(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        commits = message.body.endswith(b"commit")
        return arrowmq.TransactionState.COMMIT if commits else arrowmq.TransactionState.ROLLBACK

    async def begin_and_end(lane: int) -> None:
        for number in range(40):
            how, fate = broker.chance.choice(["told", "asked"]), broker.chance.choice(["commit", "rollback"])
            name = f"{lane}-{number} {how} {fate}".encode()
            half = await _half(broker, name)
            if half is None:
                await pause()
                continue
            fates[name] = fate
            if how == "told":
                await _end(broker, half, 8 if fate == "commit" else 12)

    async with producer_of(broker, transaction_checker=verdict) as producer:
        await insistently(lambda: producer.send(TOPIC, b"so that the broker knows this member"))
        await broker.killed_while(_together(*(begin_and_end(lane) for lane in range(4))))
        wanted = {name for name, fate in fates.items() if fate == "commit"}

        async def all_came() -> bool:
            return wanted <= set(await broker.bodies(TOPIC))

        await until(all_came)
        # A check that is under way when the last commit comes must not change anything any more.
        await until(lambda: _is_over(broker, time.monotonic() + 3))
    published = Counter(await broker.bodies(TOPIC))
    assert not [name for name in published if name.endswith(b"rollback")]
    assert {name: count for name, count in published.items() if count > 1} == {}


async def test_ends_that_are_lost_or_repeated_decide_every_transaction_once(broker: BrokerProcess) -> None:
    """Nobody is there to be checked: all that counts is what the sender says, however often."""
    await make_topic(broker, queues=1)
    halves: dict[bytes, tuple[tuple[int, int], int]] = {}

    async def begin_and_end() -> None:
        for number in range(400):
            half = await _half(broker, b"%d" % number)
            if half is None:
                await pause()
            else:
                halves[b"%d" % number] = half, broker.chance.choice([8, 12])
                await _end(broker, *halves[b"%d" % number])

    await broker.killed_while(begin_and_end(), every_s=0.3)
    for _ in range(2):
        for half, how in halves.values():
            await _end(broker, half, how)
    wanted = [name for name, (_, how) in halves.items() if how == 8]
    assert wanted
    assert sorted(await broker.bodies(TOPIC)) == sorted(wanted)


async def test_a_filter_goes_on_selecting(broker: BrokerProcess) -> None:
    await make_topic(broker)
    seen: Counter[int] = Counter()

    async def note(message: arrowmq.ReceivedMessage) -> None:
        seen[int(message.body)] += 1

    async def send(producer: arrowmq.Producer) -> None:
        for number in range(400):
            properties = {"n": str(number % 10)}
            await insistently(lambda: producer.send(TOPIC, b"%d" % number, properties=properties))  # noqa: B023

    registered = broker.folder / "config" / "consumerFilter.json"
    async with producer_of(broker) as producer, push_of(broker, note, sql="n > 6 AND n <> 8"):
        await until(lambda: registered.exists() and "n > 6 AND n <> 8" in registered.read_text())
        await broker.killed_while(send(producer))
        wanted = {number for number in range(400) if number % 10 in (7, 9)}
        await until(lambda: wanted <= set(seen))
    assert set(seen) == wanted
    assert "n > 6 AND n <> 8" in registered.read_text()


async def test_every_member_of_a_broadcasting_group_still_gets_everything(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await make_topic(broker)
    seen: list[set[bytes]] = [set(), set()]

    def noting(member: int) -> Any:
        async def note(message: arrowmq.ReceivedMessage) -> None:
            seen[member].add(message.body)

        return note

    names = {b"m%d" % number for number in range(300)}

    async def send(producer: arrowmq.Producer) -> None:
        for name in sorted(names):
            await insistently(lambda: producer.send(TOPIC, name))  # noqa: B023

    async with (
        producer_of(broker) as producer,
        push_of(broker, noting(0), broadcasting=True, offset_folder=tmp_path / "a", instance_name="a"),
        push_of(broker, noting(1), broadcasting=True, offset_folder=tmp_path / "b", instance_name="b"),
    ):
        await broker.killed_while(send(producer))
        await until(lambda: all(names <= each for each in seen))
    assert seen == [names, names]


async def test_requests_get_their_own_replies_again(broker: BrokerProcess) -> None:
    await make_topic(broker)
    async with producer_of(broker) as asking, producer_of(broker, group="Q") as replying:

        async def answer(message: arrowmq.ReceivedMessage) -> None:
            try:
                await replying.reply(message, b"re: " + message.body, timeout_s=1.0)
            except arrowmq.ArrowMQError:
                return  # who asked has gone or was cut off, and asks again

        async def ask(lane: int) -> list[tuple[bytes, bytes]]:
            pairs = []
            for number in range(15):
                question = b"%d-%d" % (lane, number)
                reply = await insistently(lambda: asking.request(TOPIC, question, timeout_s=1.0))  # noqa: B023
                pairs.append((question, reply.body))
            return pairs

        pairs: list[list[tuple[bytes, bytes]]] = []

        async def ask_all() -> None:
            pairs.extend(await asyncio.gather(*(ask(lane) for lane in range(3))))

        async with push_of(broker, answer):
            await broker.killed_while(ask_all())
    assert [len(lane) for lane in pairs] == [15] * 3
    assert all(reply == b"re: " + question for lane in pairs for question, reply in lane)


async def test_an_acknowledged_reset_is_kept(broker: BrokerProcess) -> None:
    """Of a group that nobody runs, and of one that consumes while the broker dies right after it said yes."""
    await make_topic(broker, queues=1)
    seen: list[int] = []

    async def note(message: arrowmq.ReceivedMessage) -> None:
        seen.append(int(message.body))

    async with producer_of(broker) as producer, arrowmq.Admin(broker.namesrv, **ALERT) as admin:
        for number in range(50):
            await producer.send(TOPIC, b"%d" % number)
        async with push_of(broker, note):
            await until(lambda: len(seen) == 50)
        (queue,) = await producer.queues(TOPIC)
        for _ in range(2):
            assert await insistently(lambda: admin.committed("G", queue)) == 50
            await insistently(lambda: admin.reset_offsets("G", TOPIC, "first"))
            await broker.crash()
            assert await insistently(lambda: admin.committed("G", queue)) == 0
            seen.clear()
            async with push_of(broker, note):
                await until(lambda: set(range(50)) <= set(seen))
                await insistently(lambda: admin.reset_offsets("G", TOPIC, "first"))
                await until(lambda: len(seen) > 50)
                await broker.crash()
                await until(lambda: seen[-1] == 49)
        assert seen.count(49) >= 2


async def test_traces_of_what_was_sent_between_the_crashes_are_kept(broker: BrokerProcess) -> None:
    await make_topic(broker)
    trace = arrowmq.MessageTrace(broker.namesrv, group="P", connect=ALERT)

    async def traced() -> set[str]:
        records = [record for queue in range(2) for record in await broker.records("RMQ_SYS_TRACE_TOPIC", queue)]
        fields = [line.split("\x01") for record in records for line in record.body.decode().split("\x02") if line]
        return {line[5] for line in fields if line[0] == "Pub"}

    kept: set[str] = set()
    async with producer_of(broker, hooks=[trace]) as producer:
        for round_number in range(3):
            ids = set()
            for number in range(20):
                receipt = await insistently(lambda: producer.send(TOPIC, b"%d.%d" % (round_number, number)))  # noqa: B023
                ids.add(receipt.msg_id)

            async def all_traced(ids: set[str] = ids) -> bool:
                return ids <= await traced()

            await until(all_traced)
            kept |= ids
            await broker.crash()
            assert kept <= await traced()


async def _together(*work: Any) -> None:
    await asyncio.gather(*work)


def _is_over(broker: BrokerProcess, deadline: float) -> Any:
    async def waited() -> bool:
        while time.monotonic() < deadline:
            await broker.bodies(TOPIC)
        return True

    return waited()


async def _half(broker: BrokerProcess, name: bytes) -> tuple[int, int] | None:
    header = {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "bornTimestamp": 1, "sysFlag": 4, "properties": "TRAN_MSG\x01true\x02PGROUP\x01P\x02",
    }  # fmt: skip
    answer = await broker.ask(RequestCode.SEND_MESSAGE, header, name)
    if answer is None:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext["queueOffset"]), parse_offset_message_id(answer.ext["msgId"]).physical_offset


async def _end(broker: BrokerProcess, half: tuple[int, int], how: int) -> None:
    """Once or twice, as a nervous client does; a word that is lost is asked for by a check."""
    header = {
        "producerGroup": "P", "tranStateTableOffset": half[0], "commitLogOffset": half[1], "commitOrRollback": how,
        "fromTransactionCheck": "false", "msgId": "",
    }  # fmt: skip
    for _ in range(broker.chance.choice([1, 2])):
        await broker.ask(RequestCode.END_TRANSACTION, header)

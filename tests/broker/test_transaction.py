"""Transactions: decided once, whatever comes twice, late, or after a crash; checked with any member of the group."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from arrowmq.broker.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from arrowmq.broker.transactions.checks import TransactionChecks
from arrowmq.broker.transactions.service import TransactionService
from arrowmq.store import PutStatus
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import CheckTransactionState, decode_header
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.records import Record, decode_record

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
TRANSACTION = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"


def service(node: Any) -> TransactionService:
    return node.broker.services.transactions


def checks(node: Any) -> TransactionChecks:
    return node.broker.services.transaction_checks


class Half:
    """A half message as its producer knows it."""

    def __init__(self, answer: Command) -> None:
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.offset = int(answer.ext["queueOffset"])
        self.physical = parse_offset_message_id(answer.ext["msgId"]).physical_offset
        self.id = answer.ext["transactionId"]
        self.queue_id = answer.ext["queueId"]


async def begin(node: Any, body: bytes = b"paid", more: str = "", **options: Any) -> Half:
    if not node.short:
        options.setdefault("bornTimestamp", node.clock.now_ms())
        return Half(await node.client.send("orders", body, properties=TRANSACTION + more, sysFlag=4, **options))
    unique = "" if "UNIQ_KEY" in more else f"UNIQ_KEY\x01{uuid.uuid4().hex}\x02"
    header = {
        "a": "P", "b": "orders", "c": "TBW102", "d": "4", "e": options.get("queue_id", 0), "f": 4, "h": 0, "j": 0,
        "g": options.get("bornTimestamp", node.clock.now_ms()), "i": TRANSACTION + more + unique, "k": False,
    }  # fmt: skip
    return Half(await node.client.ask(RequestCode.SEND_MESSAGE_V2, header, body))


async def end(node: Any, half: Half, how: int, *, from_check: bool = False, **more: Any) -> Command:
    header = {
        "producerGroup": "P", "tranStateTableOffset": half.offset, "commitLogOffset": half.physical,
        "commitOrRollback": how, "fromTransactionCheck": from_check, "msgId": half.id, "transactionId": half.id, **more,
    }  # fmt: skip
    return await node.client.ask(RequestCode.END_TRANSACTION, header)


async def bodies(node: Any) -> list[bytes]:
    return node.client.bodies(await node.client.pull("orders"))


@pytest.fixture(params=["general", "short"])
async def node(make_node: Any, request: pytest.FixtureRequest) -> Any:
    """A broker whose rounds of checks are begun by the tests, so that they can wait for their end. What half messages
    and ends are promised holds whichever way they come in."""
    return await make_node(short=request.param == "short", transactionCheckInterval=str(365 * 86_400_000))


async def rounds(node: Any, count: int = 1) -> None:
    """Rounds of checks, half a minute apart."""
    for _ in range(count):
        await node.clock.advance(30)
        await checks(node).round()


class Producer:
    """A member of the producer group that answers the broker's questions."""

    def __init__(self, node: Any, decision: int) -> None:
        self.node = node
        self.client = node.connect()
        self.asked: list[tuple[CheckTransactionState, Record]] = []
        self.decision = decision
        self.client.remoting.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    def _asked(self, call: Any) -> None:
        self.asked.append((decode_header(CheckTransactionState, call.ext), decode_record(call.body)))

    async def register(self, client_id: str = "producer") -> None:
        await self.client.heartbeat(client_id, producer="P")

    async def answer(self) -> list[Command]:
        answers = []
        for header, _ in self.asked:
            request = {
                "producerGroup": "P", "tranStateTableOffset": header.tran_state_table_offset,
                "commitLogOffset": header.commit_log_offset, "commitOrRollback": self.decision,
                "fromTransactionCheck": True, "msgId": header.msg_id, "transactionId": header.transaction_id,
            }  # fmt: skip
            answers.append(await self.client.ask(RequestCode.END_TRANSACTION, request))
        self.asked = []
        return answers


# Beginning and end


async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(node: Any) -> None:
    half = await begin(node, b"paid", "TAGS\x01t\x02", queue_id=2)
    assert half.queue_id == "2"
    assert node.broker.store.max_offset("orders", 2) == 0
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    (record,) = node.client.records(await node.client.pull("orders", queue_id=2))
    assert (record.body, record.tag, record.sys_flag & 0xC) == (b"paid", "t", 8)
    assert record.prepared_transaction_offset == half.physical
    assert record.properties["UNIQ_KEY"] == record.properties["__transactionId__"] == half.id
    assert {"REAL_TOPIC", "REAL_QID"}.isdisjoint(record.properties)


async def test_a_topic_that_has_half_messages_only_is_there_after_a_crash(node: Any) -> None:
    """Right after the first answer: there is no message by which the topic could be found again, only a reader."""
    for queue_id in range(4):
        node.broker.store.queue("orders", queue_id)
    halves = await asyncio.gather(*(begin(node, b"%d" % number) for number in range(4)))
    await node.crash()
    assert node.broker.topics.get("orders") is not None
    for half in halves:
        assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert sorted(await bodies(node)) == [b"0", b"1", b"2", b"3"]


async def test_the_half_and_op_records_are_in_apaches_form(node: Any) -> None:
    half = await begin(node, queue_id=1)
    await end(node, half, ROLLBACK)
    store = node.broker.store
    stored = store.record_at(half.physical)
    assert (stored.topic, stored.queue_id, stored.sys_flag) == (HALF_TOPIC, 0, 0)
    assert (stored.properties["REAL_TOPIC"], stored.properties["REAL_QID"]) == ("orders", "1")
    assert stored.properties["__transactionId__"] == half.id
    (entry,) = store.entries(OP_HALF_TOPIC, 0, 0, 10)
    op = store.record_at(entry.physical_offset)
    assert (op.body, op.tag, op.queue_id, op.sys_flag) == (b"0,", "d", 0, 0)
    assert op.born_host == op.store_host


async def test_a_rolled_back_message_never_appears(node: Any) -> None:
    half = await begin(node)
    assert (await end(node, half, ROLLBACK)).code == ResponseCode.SUCCESS
    late = await end(node, half, COMMIT)
    assert late.code == ResponseCode.SYSTEM_ERROR
    assert "by rollback: a commit comes too late" in (late.remark or "")
    assert await bodies(node) == []


async def test_an_unknown_end_leaves_the_transaction_open(node: Any) -> None:
    half = await begin(node)
    assert (await end(node, half, UNKNOWN)).code == ResponseCode.SUCCESS
    assert node.broker.store.max_offset(OP_HALF_TOPIC, 0) == 0
    await end(node, half, COMMIT)
    assert await bodies(node) == [b"paid"]


async def test_a_repeated_commit_publishes_once(node: Any) -> None:
    half = await begin(node)
    for _ in range(3):
        assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(node, half, ROLLBACK)).code == ResponseCode.SYSTEM_ERROR
    assert await bodies(node) == [b"paid"]
    assert node.broker.store.max_offset(OP_HALF_TOPIC, 0) == 1


@pytest.mark.parametrize("how_it_stops", ["in order", "by a crash"])
async def test_a_commit_repeated_after_a_restart_publishes_once(node: Any, how_it_stops: str) -> None:
    committed, rolled_back = await begin(node, b"yes"), await begin(node, b"no")
    await end(node, committed, COMMIT)
    await end(node, rolled_back, ROLLBACK)
    await (node.restart() if how_it_stops == "in order" else node.crash())
    assert (await end(node, committed, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(node, rolled_back, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert await bodies(node) == [b"yes"]


async def test_a_commit_repeated_days_later_publishes_once(node: Any) -> None:
    half = await begin(node)
    await end(node, half, COMMIT)
    for _ in range(20):
        await end(node, await begin(node, b"more"), ROLLBACK)
    await node.clock.advance(2 * 86_400)
    await checks(node).round()
    assert node.broker.offsets.get("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 21
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert await bodies(node) == [b"paid"]


async def test_a_crash_between_publishing_and_its_op_record_is_mended(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = await begin(node)
    transactions = service(node).transactions
    node.server.fast_path = None  # only the general path can be stopped between the two; both write the same
    monkeypatch.setattr(transactions, "settle", lambda: None)
    await end(node, half, COMMIT)
    assert node.broker.store.max_offset(OP_HALF_TOPIC, 0) == 0
    await node.crash()
    assert node.broker.store.max_offset(OP_HALF_TOPIC, 0) == 1
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    producer = Producer(node, COMMIT)
    await producer.register()
    await rounds(node, 2)
    assert producer.asked == []
    assert await bodies(node) == [b"paid"]


async def test_a_store_that_refuses_leaves_the_transaction_open(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from arrowmq.store import Put

    half = await begin(node)
    node.server.fast_path = None  # it asks for the room first, and hands over when there is none
    with monkeypatch.context() as full:
        full.setattr(node.broker.store, "put", lambda record: Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="disk full"))
        refused = await end(node, half, COMMIT)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "disk full" in (refused.remark or "")
    await end(node, half, COMMIT)
    assert await bodies(node) == [b"paid"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"producerGroup": "other"}, "producer group wrong"),
        ({"tranStateTableOffset": 5}, "state table offset wrong"),
        ({"commitLogOffset": 7}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_that_names_no_half_message_is_refused(node: Any, change: dict[str, Any], words: str) -> None:
    half = await begin(node)
    answer = await end(node, half, COMMIT, **change)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert words in (answer.remark or "")


async def test_an_ordinary_message_cannot_be_committed(node: Any) -> None:
    half = Half(await node.client.send("orders", b"plain", properties="PGROUP\x01P\x02"))
    assert (await end(node, half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert await bodies(node) == [b"plain"]


async def test_a_broker_may_refuse_transactions(make_node: Any) -> None:
    node = await make_node(rejectTransactionMessage="true")
    answer = await node.client.send("orders", properties=TRANSACTION)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_committed_message_may_be_delayed(node: Any) -> None:
    await end(node, await begin(node, more="DELAY\x011\x02"), COMMIT)
    assert await bodies(node) == []
    await node.clock.advance(1.1)
    assert await bodies(node) == [b"paid"]


# Checks


async def test_an_open_transaction_is_asked_about_and_the_answer_counts(node: Any) -> None:
    producer = Producer(node, COMMIT)
    await producer.register()
    half = await begin(node, queue_id=0)
    await rounds(node)
    await node.eventually(lambda: producer.asked)
    ((header, shown),) = producer.asked
    assert (header.topic, header.msg_id, header.transaction_id) == (HALF_TOPIC, half.id, half.id)
    assert (header.tran_state_table_offset, header.bname) == (1, "broker-a")
    assert (shown.topic, shown.queue_id, shown.body) == ("orders", 0, b"paid")
    assert (shown.properties["PGROUP"], shown.properties["TRANSACTION_CHECK_TIMES"]) == ("P", "1")
    await producer.answer()
    assert await bodies(node) == [b"paid"]
    await rounds(node, 3)
    assert producer.asked == []


async def test_rounds_begin_by_themselves(make_node: Any) -> None:
    node = await make_node()
    await node.clock.advance(31)
    await node.eventually(lambda: checks(node).rounds == 1)


async def test_a_young_transaction_is_left_alone(node: Any) -> None:
    producer = Producer(node, COMMIT)
    await producer.register()
    await node.clock.advance(26)
    await begin(node)
    await node.clock.advance(4)
    await checks(node).round()
    assert (checks(node).asked, producer.asked) == (0, [])
    await rounds(node)
    assert checks(node).asked == 1


async def test_another_member_answers_for_a_producer_that_died(node: Any) -> None:
    dead, alive = Producer(node, UNKNOWN), Producer(node, COMMIT)
    await dead.register("dead")
    await begin(node)
    await dead.client.close()
    await alive.register("alive")
    await rounds(node)
    await node.eventually(lambda: alive.asked)
    await alive.answer()
    assert await bodies(node) == [b"paid"]


@pytest.mark.parametrize("late", [COMMIT, ROLLBACK])
async def test_an_end_that_crosses_with_a_check_counts_once(node: Any, late: int) -> None:
    producer = Producer(node, COMMIT)
    await producer.register()
    half = await begin(node)
    await rounds(node)
    await node.eventually(lambda: producer.asked)
    # The producer's own end names the half message that was renewed meanwhile. It still counts, and first.
    assert (await end(node, half, late)).code == ResponseCode.SUCCESS
    (answer,) = await producer.answer()
    assert answer.code == (ResponseCode.SUCCESS if late == COMMIT else ResponseCode.SYSTEM_ERROR)
    assert await bodies(node) == ([b"paid"] if late == COMMIT else [])
    await rounds(node, 3)
    assert producer.asked == []


async def test_a_half_message_that_was_sent_twice_is_published_once(node: Any) -> None:
    """A send that timed out is repeated by the client with the same unique id."""
    producer = Producer(node, COMMIT)
    await producer.register()
    same = "UNIQ_KEY\x01C0A8000100002A9F1234567800010000\x02"
    await begin(node, more=same)
    known = await begin(node, more=same)
    await end(node, known, COMMIT)
    await rounds(node)
    await node.eventually(lambda: producer.asked)
    assert [answer.code for answer in await producer.answer()] == [ResponseCode.SUCCESS]
    assert await bodies(node) == [b"paid"]
    await rounds(node, 3)
    assert producer.asked == []


async def test_checks_go_on_after_a_crash_without_a_second_life(node: Any) -> None:
    half = await begin(node)
    await rounds(node, 2)  # nobody is there to be asked
    renewed = node.broker.store.max_offset(HALF_TOPIC, 0)
    assert renewed == 3
    (node.root / "config" / "consumerOffset.json").unlink(missing_ok=True)
    await node.crash()
    producer = Producer(node, COMMIT)
    await producer.register()
    await rounds(node)
    await node.eventually(lambda: producer.asked)
    assert [header.tran_state_table_offset for header, _ in producer.asked] == [3]
    assert producer.asked[0][1].properties["TRANSACTION_CHECK_TIMES"] == "3"
    await producer.answer()
    await end(node, half, COMMIT)
    assert await bodies(node) == [b"paid"]


async def test_a_crash_between_renewal_and_its_op_record_is_mended(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(node)
    monkeypatch.setattr(service(node).transactions, "settle", lambda: None)
    await rounds(node)
    assert node.broker.store.max_offset(OP_HALF_TOPIC, 0) == 0
    await node.crash()
    assert [service(node).transactions.is_open(offset) for offset in (0, 1)] == [False, True]


async def test_after_fifteen_checks_it_is_parked_and_can_be_revived(node: Any) -> None:
    producer = Producer(node, UNKNOWN)
    await producer.register()
    half = await begin(node)
    for _ in range(17):
        await rounds(node)
        await producer.register()
    await node.eventually(lambda: len(producer.asked) == 15)
    store = node.broker.store
    assert store.max_offset(CHECK_MAX_TIME_TOPIC, 0) == 1
    (entry,) = store.entries(CHECK_MAX_TIME_TOPIC, 0, 0, 1)
    parked = node.broker.address.message_id(entry.physical_offset)
    producer.asked = []
    answer = await node.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": parked})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    again = await node.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": parked})
    assert "revived before" in (again.remark or "")
    await producer.register()
    await rounds(node)
    await node.eventually(lambda: producer.asked)
    producer.decision = COMMIT
    await producer.answer()
    assert await bodies(node) == [b"paid"]
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert await bodies(node) == [b"paid"]


async def test_a_parked_transaction_can_still_be_decided_once(node: Any) -> None:
    half = await begin(node)
    await rounds(node, 17)
    store = node.broker.store
    (entry,) = store.entries(CHECK_MAX_TIME_TOPIC, 0, 0, 1)
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    parked = node.broker.address.message_id(entry.physical_offset)
    refused = await node.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": parked})
    assert "ended meanwhile, by commit" in (refused.remark or "")
    assert await bodies(node) == [b"paid"]


@pytest.mark.parametrize("message_id", ["nonsense", "7F0000010000740F00000000000BCAAF"])
async def test_only_a_parked_message_can_be_revived(node: Any, message_id: str) -> None:
    await begin(node)
    answer = await node.client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_message_may_ask_for_more_time_before_its_first_check(node: Any) -> None:
    producer = Producer(node, COMMIT)
    await producer.register()
    half = await begin(node, b"slow", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
    await begin(node, b"quick")
    await rounds(node, 3)
    await node.eventually(lambda: producer.asked)
    assert {record.body for _, record in producer.asked} == {b"quick"}
    await producer.register()
    await rounds(node)
    await node.eventually(lambda: any(record.body == b"slow" for _, record in producer.asked))
    # Its time is over: now only the answer to a check counts.
    assert (await end(node, half, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
    await producer.answer()
    assert sorted(await bodies(node)) == [b"quick", b"slow"]


async def test_progress_is_noted_for_the_next_start_and_memory_stays_bounded(node: Any) -> None:
    for number in range(300):
        await end(node, await begin(node), COMMIT if number % 2 else ROLLBACK)
    open_one = await begin(node)
    await rounds(node)
    offsets = node.broker.offsets
    await node.eventually(lambda: offsets.get("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 301)
    # Of what the round itself wrote (the open one was renewed), the next round takes note.
    assert offsets.get("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0) == 300
    assert service(node).transactions.ended.memory_bytes <= 1
    await node.restart()
    await end(node, open_one, COMMIT)
    assert node.broker.store.max_offset("orders", 0) == 151


async def test_a_round_asks_about_so_many_and_the_next_about_the_others(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch with very many open transactions holds nobody up: it is asked about bit by bit, the oldest first."""
    monkeypatch.setattr("arrowmq.broker.transactions.checks.CHECKS_A_ROUND", 10)
    producer = Producer(node, COMMIT)
    await producer.register()
    halves = [await begin(node, f"{number}".encode()) for number in range(25)]
    for expected in (10, 10, 5):
        await rounds(node)
        await node.eventually(lambda expected=expected: len(producer.asked) == expected)
        await producer.answer()
    assert sorted(await bodies(node), key=int) == [f"{number}".encode() for number in range(25)]
    for half in halves:
        assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert node.broker.store.max_offset("orders", 0) == 25


async def test_an_end_finds_a_renewal_that_is_not_on_disk_yet(make_node: Any) -> None:
    """Under SYNC_FLUSH the index shows what the disk has; an end can come before that, and counts."""
    node = await make_node(flushDiskType="SYNC_FLUSH", transactionCheckInterval=str(365 * 86_400_000))
    half = await begin(node)
    log = service(node).transactions
    first = log.half_at(half.physical)
    log.renew(log.renew(first, 1), 2)
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(node, half, COMMIT)).code == ResponseCode.SUCCESS
    assert await bodies(node) == [b"paid"]


async def test_transactions_work_under_sync_flush(make_node: Any) -> None:
    node = await make_node(flushDiskType="SYNC_FLUSH")
    half = await begin(node)
    await end(node, half, COMMIT)
    await end(node, half, COMMIT)
    await node.restart()
    await end(node, half, COMMIT)
    assert await bodies(node) == [b"paid"]

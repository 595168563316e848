"""What is counted for metrics and tools: transactions, timers, creations, answers; across restarts and crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arrowmq.broker.delayed.timer import TimerMessages
from arrowmq.broker.delayed.timer_files import SLOTS, Slot, TimerWheel
from arrowmq.broker.transactions.service import TransactionService
from arrowmq.distribution import Distribution
from arrowmq.remoting.answer_times import ONEWAY, SUCCESS, Answered
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_offset_message_id

COMMIT, ROLLBACK = 8, 12


def timer(node: Any) -> TimerMessages:
    return node.broker.services.timer


def transactions(node: Any) -> TransactionService:
    return node.broker.services.transactions


async def half(node: Any) -> Command:
    properties = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"
    return await node.client.send("orders", properties=properties, sysFlag=4, bornTimestamp=node.clock.now_ms())


async def end(node: Any, sent: Command, how: int) -> None:
    header = {
        "producerGroup": "P", "tranStateTableOffset": sent.ext["queueOffset"], "commitOrRollback": how,
        "commitLogOffset": parse_offset_message_id(sent.ext["msgId"]).physical_offset, "msgId": sent.ext["msgId"],
    }  # fmt: skip
    assert (await node.client.ask(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS


def test_a_distribution_counts_a_value_at_its_bound_and_knows_shares() -> None:
    times = Distribution((1, 10))
    for value, count in ((0, 5), (1, 90), (2, 4), (500, 1)):
        times.add(value, count)
    assert times.cumulated() == [(1.0, 95), (10.0, 99), (float("inf"), 100)]
    assert (times.count, times.total, times.largest) == (100, 598, 500)
    assert (times.at_most(0.5), times.at_most(0.99), times.at_most(0.999)) == (1, 10, 500)
    assert Distribution((1, 10)).at_most(0.99) == 0


async def test_a_look_at_open_transactions_may_be_bounded_and_goes_on_where_the_last_ended(node: Any) -> None:
    halves = [await half(node) for _ in range(5)]
    counts = transactions(node).counts
    assert counts.open_by_topic(2) == {"orders": 2}
    await end(node, halves[1], COMMIT)
    await end(node, halves[2], ROLLBACK)
    assert counts.open_by_topic(1) == {"orders": 2}
    assert counts.open_by_topic(0) == {"orders": 2}
    assert counts.open_by_topic() == {"orders": 3}


async def test_open_transactions_are_counted_by_topic_whenever_they_end(node: Any) -> None:
    """Ended before they were ever counted, ended after, renewed by a check, and found again after a restart."""
    first, second, third = [await half(node) for _ in range(3)]
    await end(node, first, COMMIT)
    assert transactions(node).counts.open_by_topic() == {"orders": 2}
    await node.clock.advance(7)
    await end(node, second, ROLLBACK)
    assert transactions(node).counts.open_by_topic() == {"orders": 1}
    counts = transactions(node).counts
    assert (counts.committed["orders"], counts.rolled_back["orders"]) == (1, 1)
    assert counts.latency["orders"].counts[0] == 1
    await node.restart()
    kept = json.loads((node.root / "config" / "transactionMetrics").read_text())
    assert kept["transactionCount"]["orders"]["count"] == 1
    assert transactions(node).counts.open_by_topic() == {"orders": 1}
    await end(node, third, COMMIT)
    assert transactions(node).counts.open_by_topic() == {"orders": 0}


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_timer_messages_that_wait_are_counted_across_restarts_and_crashes(node: Any, how: str) -> None:
    """By the file after a clean stop, by the timer log after a crash."""
    for topic, seconds in (("orders", 20), ("orders", 4000), ("bills", 30)):
        await node.client.send(topic, properties=f"TIMER_DELAY_SEC\x01{seconds}\x02", bornTimestamp=node.clock.now_ms())
    await node.clock.advance(2)
    assert timer(node).counts.waiting == {"orders": 2, "bills": 1}
    assert timer(node).counts.delays["orders"].counts[:4] == [1, 0, 0, 1]
    await timer(node).persist_if_changed()  # after a crash the wheel is made anew from the timer log, up to here
    await getattr(node, how)()
    await node.clock.advance(1)
    assert +timer(node).counts.waiting == {"orders": 2, "bills": 1}
    body = fastjson.loads((await node.client.ask(RequestCode.GET_TIMER_METRICS)).body)
    assert {topic: metric["count"] for topic, metric in body["timingCount"].items()} == {"orders": 2, "bills": 1}
    soon = timer(node).due_soon()
    assert (soon[60], soon[14_400], sum(soon.values())) == (2, 1, 3)
    await node.clock.advance(40)
    counts = timer(node).counts
    assert (+counts.waiting, counts.delivered) == ({"orders": 1}, {"orders": 1, "bills": 1})


def test_a_wheel_counts_by_the_second_over_its_end_and_not_what_an_earlier_turn_left(tmp_path: Any) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel")
    now_s = SLOTS * 3 - 2
    assert wheel.counts(now_s * 1000, 4) == [0, 0, 0, 0]
    wheel.put(now_s * 1000, Slot(0, 0, 5))
    wheel.put((now_s + 3) * 1000, Slot(0, 0, 7))
    wheel.put((now_s + 1 - SLOTS) * 1000, Slot(0, 0, 9))
    assert wheel.counts(now_s * 1000, 4) == [5, 0, 0, 7]
    wheel.close()


async def test_creations_are_timed_by_outcome(node: Any) -> None:
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"billing"}')
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"bad/name"}')
    header = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**header, "topic": "TBW102"})
    times = node.broker.creation_times
    assert {outcome: values.count for outcome, values in times.groups.items()} == {"success": 1, "failure": 1}
    counts = {key: values.count for key, values in times.topics.items()}
    assert counts == {("success", False): 1, ("failure", True): 1}


async def test_answers_are_timed_and_requests_that_wait_are_counted(node: Any) -> None:
    """A pull that waits for a message waits for nobody's work, and is told apart when it is answered."""
    times = node.broker.answer_times
    await node.client.send("orders")
    waiting = node.client.asking(RequestCode.PULL_MESSAGE, node.client.pull_header("orders", 1, sysFlag=6))
    await node.eventually(lambda: node.broker.longpoll.count)
    assert times.waiting[RequestCode.PULL_MESSAGE] == 0
    await node.client.send("orders")
    assert (await waiting).code == ResponseCode.SUCCESS
    heartbeat = Command.request(RequestCode.HEART_BEAT, None, b'{"clientID":"c"}', oneway=True)
    await node.client.remoting.invoke_oneway(node.client.address, heartbeat)
    assert (await node.client.ask(9999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    found = {answered: values.count for answered, values in times.times.items()}
    assert found[Answered(RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, True, SUCCESS)] == 1
    assert found[Answered(RequestCode.HEART_BEAT, ResponseCode.SUCCESS, False, ONEWAY)] == 1
    assert found[Answered(9999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, False, SUCCESS)] == 1
    assert +times.waiting == {}

"""Waiting pulls: woken by the message itself, only by messages they want, and answered when their time is over."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from arrowmq.wire.codes import RequestCode, ResponseCode

WAIT = 6  # the subscription is in the request, and the broker may hold it


async def waiting(node: Any, topic: str, offset: int, **more: Any) -> Any:
    before = node.broker.longpoll.count
    header = node.client.pull_header(topic, offset, **{"sysFlag": WAIT, **more})
    task = node.client.asking(RequestCode.PULL_MESSAGE, header)
    await node.eventually(lambda: node.broker.longpoll.count > before)
    return task


async def test_a_waiting_pull_gets_the_message_that_arrives(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    await node.client.send("orders", b"late")
    answer = await pull
    assert (answer.code, node.client.bodies(answer)) == (ResponseCode.SUCCESS, [b"late"])
    assert node.broker.longpoll.count == 0


async def test_a_pull_waits_at_a_queue_that_has_no_message_yet(node: Any) -> None:
    await node.client.send("orders", queue_id=1)
    pull = await waiting(node, "orders", 0)
    await node.client.send("orders", b"first", queue_id=0)
    assert node.client.bodies(await pull) == [b"first"]


async def test_other_queues_do_not_wake_it(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    await node.client.send("orders", queue_id=2)
    await node.client.send("payments", queue_id=0)
    assert not pull.done()
    await node.clock.advance(16)
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND


async def test_everything_that_arrived_together_is_in_one_answer(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    sends = [node.client.send("orders", b"%d" % number) for number in range(10)]
    await asyncio.gather(*sends)
    assert len(node.client.bodies(await pull)) == 10


async def test_when_its_time_is_over_it_is_told_that_nothing_came(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1, suspendTimeoutMillis=15_000)
    await node.clock.advance(14.8)
    assert not pull.done()
    await node.clock.advance(0.4)
    answer = await pull
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "1",
    )  # fmt: skip


async def test_messages_it_does_not_want_move_it_on_without_waking_it(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1, subscription="wanted")
    for _ in range(5):
        await node.client.send("orders", properties="TAGS\x01other\x02")
    assert not pull.done()
    await node.clock.advance(16)
    answer = await pull
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "6")


async def test_a_wanted_message_after_unwanted_ones_wakes_it(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1, subscription="wanted")
    await node.client.send("orders", properties="TAGS\x01other\x02")
    await node.client.send("orders", b"this", properties="TAGS\x01wanted\x02")
    answer = await pull
    assert (node.client.bodies(answer), answer.ext["nextBeginOffset"]) == ([b"this"], "3")


async def test_sql_filters_are_applied_to_what_arrives(make_node: Any) -> None:
    node = await make_node(enablePropertyFilter="true")
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1, expressionType="SQL92", subscription="price > 10")
    await node.client.send("orders", properties="price\x013\x02")
    assert not pull.done()
    await node.client.send("orders", b"dear", properties="price\x0130\x02")
    assert node.client.bodies(await pull) == [b"dear"]


async def subscribed_pull(node: Any, expression: str) -> Any:
    """A member of a group waits by the subscription of its heartbeats, as a push consumer does."""
    await node.client.send("orders")
    await node.client.heartbeat("C", topics={"orders": expression})
    return await waiting(node, "orders", 1, sysFlag=2)


async def test_a_changed_subscription_sends_a_waiting_pull_back_to_ask_again(node: Any) -> None:
    """Clients filter an answer by what they had subscribed to when they asked, so the old pull must bring nothing."""
    pull = await subscribed_pull(node, "A")
    await node.client.send("orders", properties="TAGS\x01B\x02")
    await node.client.heartbeat("C", topics={"orders": "B"}, version=2)
    answer = await pull
    assert (ResponseCode.PULL_RETRY_IMMEDIATELY, "2", b"") == (answer.code, answer.ext["nextBeginOffset"], answer.body)


async def test_after_a_change_of_subscription_only_messages_of_the_new_one_arrive(node: Any) -> None:
    pull = await subscribed_pull(node, "A")
    await node.client.heartbeat("C", topics={"orders": "B"}, version=2)
    await node.client.send("orders", b"a", properties="TAGS\x01A\x02")
    await node.client.send("orders", b"b", properties="TAGS\x01B\x02")
    first = await pull
    again = await node.client.pull("orders", int(first.ext["nextBeginOffset"]), sysFlag=2, subVersion=2)
    assert ([], [b"b"]) == (node.client.bodies(first), node.client.bodies(again))


async def test_a_pull_with_a_subscription_of_its_own_waits_on_when_its_group_changes(node: Any) -> None:
    await node.client.send("orders")
    await node.client.heartbeat("C", topics={"orders": "A"})
    pull = await waiting(node, "orders", 1, subscription="A")
    await node.client.heartbeat("C", topics={"orders": "B"}, version=2)
    await node.client.send("orders", b"b", properties="TAGS\x01B\x02")
    await node.client.send("orders", b"a", properties="TAGS\x01A\x02")
    assert [b"a"] == node.client.bodies(await pull)


async def test_a_repeated_heartbeat_disturbs_no_waiting_pull(node: Any) -> None:
    pull = await subscribed_pull(node, "A")
    await node.client.heartbeat("C", topics={"orders": "A"}, version=2)
    await node.client.send("orders", b"a", properties="TAGS\x01A\x02")
    assert [b"a"] == node.client.bodies(await pull)


async def test_short_polling_waits_a_second_only(make_node: Any) -> None:
    node = await make_node(longPollingEnable="false")
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    await node.clock.advance(1.2)
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND


async def test_an_offset_reset_reaches_a_waiting_pull(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    node.broker.offsets.reset("G", "orders", 0, 0)
    node.broker.longpoll.poke("orders", 0)
    answer = await pull
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


async def test_a_wish_to_wait_for_ages_is_cut_to_an_hour(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1, suspendTimeoutMillis=2**63 - 1)
    await node.clock.advance(3_601)
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND


async def test_a_stopping_broker_answers_who_waits(node: Any) -> None:
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    node.broker.longpoll.stop()
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND
    late = await node.client.pull("orders", 1, sysFlag=WAIT)
    assert late.code == ResponseCode.PULL_NOT_FOUND


async def test_a_client_that_hung_up_costs_nothing_and_stops_nobody(node: Any) -> None:
    await node.client.send("orders")
    gone = node.connect()
    task = gone.asking(RequestCode.PULL_MESSAGE, gone.pull_header("orders", 1, sysFlag=WAIT))
    await node.eventually(lambda: node.broker.longpoll.count == 1)
    await gone.close()
    await asyncio.gather(task, return_exceptions=True)
    await node.eventually(lambda: node.broker.longpoll.count == 0)
    pull = await waiting(node, "orders", 1)
    await node.client.send("orders", b"late")
    assert node.client.bodies(await pull) == [b"late"]
    assert node.broker.longpoll.count == 0


async def test_under_sync_flush_a_waiting_pull_gets_the_message_once_it_is_on_disk(make_node: Any) -> None:
    node = await make_node(flushDiskType="SYNC_FLUSH")
    await node.client.send("orders")
    pull = await waiting(node, "orders", 1)
    await node.client.send("orders", b"safe")
    assert node.client.bodies(await pull) == [b"safe"]


async def test_ten_thousand_waiting_pulls_cost_no_work_and_are_woken_in_milliseconds(node: Any) -> None:
    """What waits must not be looked at: neither by a timer nor by messages of other queues."""
    await node.client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "wide", "readQueueNums": 10_000, "writeQueueNums": 10_000, "perm": 6},
    )
    pulls = [
        node.client.asking(
            RequestCode.PULL_MESSAGE,
            node.client.pull_header("wide", 0, queue_id=queue_id, sysFlag=WAIT, suspendTimeoutMillis=3_600_000),
        )
        for queue_id in range(10_000)
    ]
    await node.eventually(lambda: node.broker.longpoll.count == 10_000)
    before = time.process_time()
    await node.clock.advance(600)
    idle_s = time.process_time() - before
    assert idle_s < 0.2, f"ten minutes of waiting took {idle_s:.3f} s of CPU"
    await node.client.send("wide", b"for one", queue_id=7_777)
    assert node.client.bodies(await pulls[7_777]) == [b"for one"]
    assert node.broker.longpoll.count == 9_999
    for pull in pulls:
        pull.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)

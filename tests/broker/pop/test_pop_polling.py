"""Goal: a pop that finds nothing waits, is woken by the first message for it, and costs nothing once nobody waits."""

from __future__ import annotations

import asyncio
from typing import Any

from in_process import LocalClient
from popping import INVISIBLE_MS, Popping, received

from arrowmq.remoting.handlers import Answer
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import PopMessage


def waiting(node: Any) -> int:
    return int(node.broker.services.pop.polling.count)


async def test_a_waiting_pop_gets_the_message_when_it_comes(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop()
    asked = popping.popping()
    await node.eventually(lambda: waiting(node) == 1)
    await node.client.send("orders", b"b", queue_id=2)
    assert [b"b"] == received(await asked, "orders", "G").bodies
    assert 0 == waiting(node)


async def test_a_waiting_pop_gets_the_message_that_comes_back(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop(invisibleTime=3000)
    asked = popping.popping(queueId=1)  # retries belong to no queue of the topic
    await node.eventually(lambda: waiting(node) == 1)
    await node.clock.advance(3.1)
    assert [b"a"] == received(await asked, "orders", "G").bodies


async def test_a_wait_that_is_over_is_answered_in_time(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop()
    asked = popping.popping(pollTime=5000)
    await node.eventually(lambda: waiting(node) == 1)
    await node.clock.advance(4.9)
    assert 1 == waiting(node)
    await node.clock.advance(0.1)
    answer = await asked
    assert (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE") == (answer.code, answer.remark)
    assert ("", "", "0") == tuple(answer.ext[name] for name in ("startOffsetInfo", "msgOffsetInfo", "restNum"))


async def test_one_message_wakes_one_member_of_each_group(node: Any) -> None:
    await node.client.send("orders", b"a")
    groups = [Popping(node, group=name) for name in ("first", "second")]
    asked = []
    for popping in groups:
        await popping.pop()
        asked.append([popping.popping(), popping.popping()])
    await node.eventually(lambda: waiting(node) == 4)
    await node.client.send("orders", b"b")
    for members in asked:
        done, pending = await asyncio.wait(members, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert (1, 1) == (len(done), len(pending))
        assert [b"b"] == received(done.pop().result(), "orders", "").bodies
    assert 2 == waiting(node)


async def test_members_wait_in_line(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop()
    asked = []
    for place in range(3):
        asked.append(popping.popping(1))
        await node.eventually(lambda place=place: waiting(node) == place + 1)
    for place, body in enumerate((b"x", b"y", b"z")):
        await node.client.send("orders", body)
        assert [body] == received(await asked[place], "orders", "G").bodies


async def test_a_batch_reaches_all_who_wait_with_what_each_can_take(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop()
    asked = [popping.popping(1) for _ in range(3)]
    await node.eventually(lambda: waiting(node) == 3)
    for body in (b"x", b"y", b"z"):
        await node.client.send("orders", body)
    bodies = [received(await each, "orders", "G").bodies for each in asked]
    assert [[b"x"], [b"y"], [b"z"]] == sorted(bodies)


async def test_a_filter_lets_others_wait_on(node: Any) -> None:
    await node.client.send("orders", b"a", properties="TAGS\x01red\x02")
    popping = Popping(node)
    await popping.pop(exp="blue", expType="TAG")
    asked = popping.popping(exp="blue", expType="TAG")
    await node.eventually(lambda: waiting(node) == 1)
    await node.client.send("orders", b"b", properties="TAGS\x01red\x02")
    assert 1 == waiting(node)
    await node.client.send("orders", b"c", properties="TAGS\x01blue\x02")
    assert [b"c"] == received(await asked, "orders", "G").bodies


async def test_too_many_waiting_pops_are_refused(make_node: Any) -> None:
    node = await make_node(popPollingSize="2", maxPopPollingSize="4")
    await node.client.send("orders", b"a")
    first, second = Popping(node), Popping(node, group="H")
    await first.pop()
    await second.pop()
    asked = [first.popping() for _ in range(3)]
    await node.eventually(lambda: waiting(node) == 3)
    assert ResponseCode.POLLING_FULL == (await first.pop(pollTime=5000)).code
    asked.append(second.popping())
    await node.eventually(lambda: waiting(node) == 4)
    assert ResponseCode.POLLING_FULL == (await second.pop(pollTime=5000)).code
    header = {"consumerGroup": "G", "topic": "orders", "queueId": -1}
    assert "3" == (await node.client.ask(RequestCode.POLLING_INFO, header)).ext["pollingNum"]
    await node.clock.advance(11)
    assert {ResponseCode.POLLING_TIMEOUT} == {(await each).code for each in asked}


async def test_a_hundred_thousand_polls_of_clients_that_vanish_leave_nothing_behind(make_node: Any) -> None:
    node = await make_node(popPollingSize="200000", maxPopPollingSize="100000")
    await node.client.send("orders", b"a")
    await Popping(node).pop()
    services = node.broker.services
    now_ms = node.clock.now_ms()
    refused = 0
    clients = [LocalClient(("10.0.0.1", number)) for number in range(50)]
    asked = []
    for number in range(100_100):
        request = PopMessage(
            consumer_group="G", topic="orders", queue_id=-1, max_msg_nums=1, invisible_time=INVISIBLE_MS,
            poll_time=60_000, born_time=now_ms,
        )  # fmt: skip
        call = _Silent(clients[number % 50])
        outcome = services.pop.pop(request, call)
        if isinstance(outcome, Answer):
            refused += outcome.code == ResponseCode.POLLING_FULL
        asked.append(call)
    assert (100_000, 100) == (waiting(node), refused)
    for client in clients:
        client.close()
    polling = services.pop.polling
    assert (0, {}, {}) == (polling.count, polling.lines, polling._groups)
    assert {} == {number: bucket for number, bucket in polling._due.buckets._buckets.items() if bucket}
    await node.client.send("orders", b"b")
    assert [b"b"] == (await Popping(node).pop()).bodies


class _Silent:
    """A call whose client never hears the answer."""

    def __init__(self, client: LocalClient) -> None:
        self.connection = client

    def suspend(self) -> None:
        pass

    def reply(self, reply: object) -> None:
        pass


async def test_a_deleted_topic_ends_the_waiting(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    await popping.pop()
    asked = popping.popping()
    await node.eventually(lambda: waiting(node) == 1)
    await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert ResponseCode.TOPIC_NOT_EXIST == (await asked).code
    await node.client.send("orders", b"anew")
    assert [b"anew"] == (await popping.pop()).bodies
    asked = popping.popping()
    await node.eventually(lambda: waiting(node) == 1)
    await node.client.send("orders", b"more")
    assert [b"more"] == received(await asked, "orders", "G").bodies


async def test_a_notification_comes_with_the_first_message(node: Any) -> None:
    await node.client.send("orders", b"a")
    popping = Popping(node)
    header = {"consumerGroup": "G", "topic": "orders", "queueId": -1, "pollTime": 20_000}

    def ask() -> Any:
        return node.client.asking(RequestCode.NOTIFICATION, {**header, "bornTime": node.clock.now_ms()})

    assert "true" == (await ask()).ext["hasMsg"]
    await popping.pop()
    asked = ask()
    polling = node.broker.services.notification.polling
    await node.eventually(lambda: polling.count == 1)
    await node.client.send("orders", b"b")
    assert "true" == (await asked).ext["hasMsg"]
    await popping.pop()
    asked = ask()
    await node.eventually(lambda: polling.count == 1)
    await node.clock.advance(11)
    assert "true" == (await asked).ext["hasMsg"]  # both messages came back by then
    assert {b"a", b"b"} == set((await popping.pop()).bodies)
    assert (
        "false"
        == (await node.client.ask(RequestCode.NOTIFICATION, {**header, "pollTime": 0, "bornTime": 0})).ext["hasMsg"]
    )

"""Goal: what is in flight can be seen: which messages, whose, since when, and when they come back."""

from __future__ import annotations

from typing import Any

from popping import INVISIBLE_MS, Popping

from arrowmq.inspect.doctor.facts import BrokerFacts, Facts
from arrowmq.inspect.doctor.pop import groups_consume_in_one_way, messages_come_back
from arrowmq.metrics.lag import lags_of
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode


async def stats(node: Any) -> dict[str, Any]:
    answer = await node.client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": ""})
    found: dict[str, Any] = fastjson.loads(answer.body)
    return found


async def runtime(node: Any) -> dict[str, str]:
    answer = await node.client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    found: dict[str, str] = fastjson.loads(answer.body)["table"]
    return found


async def test_in_flight_messages_are_shown_with_whose_they_are_and_when_they_come_back(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    popping = Popping(node)
    assert "arrowmqInFlight" not in await stats(node)
    messages = (await popping.pop()).messages
    await popping.ack(messages[1])
    (shown,) = (await stats(node))["arrowmqInFlight"]
    at = messages[0].receipt.pop_time
    assert (("orders", 0, [0, 2]), (at, at + INVISIBLE_MS)) == (
        (shown["topic"], shown["queueId"], shown["offsets"]),
        (shown["popTime"], shown["visibleAt"]),
    )
    assert shown["client"].startswith("127.0.0.1:")
    assert 2 == (await stats(node))["arrowmqInFlightTotal"]


async def test_lag_counts_what_is_in_flight_apart(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    await Popping(node).pop(2)
    (lag,) = [each for each in lags_of(node.broker) if each.topic == "orders"]
    assert (3, 2, 1) == (lag.messages, lag.in_flight, lag.ready)


async def test_the_doctor_names_a_group_that_pops_and_pulls_and_a_revive_that_stands_still(node: Any) -> None:
    await node.client.send("orders", b"a")
    await Popping(node).pop()
    shown = await runtime(node)
    assert ("", "1") == (shown["popAndPull"], shown["popInFlight"])
    await node.client.heartbeat("C", topics={"orders": "*"})
    node.broker.services.pop_revive.due.stop()
    await node.clock.advance(60)
    facts = Facts(
        node.clock.now_ms(), 1.0, brokers=[BrokerFacts("broker-a", "c", 0, node.address, runtime=await runtime(node))]
    )
    assert ["pop-and-pull"] == [each.name for each in groups_consume_in_one_way(facts)]
    assert ["pop-revive-late"] == [each.name for each in messages_come_back(facts)]

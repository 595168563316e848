"""Goal: popped in order, a queue hands out nothing more before what it gave is acknowledged or visible again."""

from __future__ import annotations

import json
from typing import Any

from popping import INVISIBLE_MS, Popping, received

from arrowmq.wire.codes import RequestCode, ResponseCode


class Ordered(Popping):
    def header(self, count: int = 32, **more: Any) -> dict[str, Any]:
        return super().header(count, **{"order": True, **more})


async def test_a_queue_is_blocked_until_all_are_acknowledged(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    first = (await popping.pop(2)).messages
    assert ([b"a", b"b"], 999) == ([each.body for each in first], first[0].receipt.revive_queue_id)
    assert [] == (await popping.pop()).messages
    await popping.ack(first[0])
    assert [] == (await popping.pop()).messages
    await popping.ack(first[1])
    assert [b"c"] == (await popping.pop()).bodies


async def test_what_was_not_acknowledged_is_handed_out_again_in_order_and_counted(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    first = (await popping.pop(2)).messages
    await popping.ack(first[0])
    await node.clock.advance(INVISIBLE_MS / 1000 + 0.1)
    again = (await popping.pop()).messages
    assert [(b"b", 1), (b"c", 0)] == [(each.body, each.count) for each in again]
    assert ResponseCode.SUCCESS == (await popping.ack(first[1])).code  # of the first time: it does not count
    assert [] == (await popping.pop()).messages
    await popping.ack_all(again)
    assert 3 == node.broker.offsets.get("G", "orders", 0)


async def test_the_same_attempt_gets_the_same_messages_and_no_higher_count(node: Any) -> None:
    for body in (b"a", b"b"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    assert [b"a", b"b"] == (await popping.pop(attemptId="try-1")).bodies
    assert [] == (await popping.pop(attemptId="try-2")).messages
    again = (await popping.pop(attemptId="try-1")).messages
    assert [(b"a", 0), (b"b", 0)] == [(each.body, each.count) for each in again]


async def test_a_changed_invisible_time_moves_one_message(node: Any) -> None:
    for body in (b"a", b"b"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    first = (await popping.pop()).messages
    answer = await popping.change(first[0], 30_000)
    assert (str(first[0].receipt.pop_time), "999") == (answer.ext["popTime"], answer.ext["reviveQid"])
    await node.clock.advance(INVISIBLE_MS / 1000 + 0.1)
    assert [] == (await popping.pop()).messages
    await node.clock.advance(20)
    assert [b"a", b"b"] == (await popping.pop()).bodies


async def test_a_waiting_pop_is_woken_by_the_ack_and_by_the_time(node: Any) -> None:
    for body in (b"a", b"b"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    polling = node.broker.services.pop.polling
    first = (await popping.pop(1)).messages
    asked = popping.popping(1)
    await node.eventually(lambda: polling.count == 1)
    await popping.ack(first[0])
    assert [b"b"] == received(await asked, "orders", "G").bodies
    asked = popping.popping(1, pollTime=20_000)
    await node.eventually(lambda: polling.count == 1)
    await node.clock.advance(INVISIBLE_MS / 1000 + 0.1)
    assert [b"b"] == received(await asked, "orders", "G").bodies


async def test_an_ack_of_what_was_not_handed_out_is_refused(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    message = (await popping.pop(1)).messages[0]
    answer = await popping.ack(message, offset=2)
    assert ResponseCode.MESSAGE_ILLEGAL == answer.code
    assert "offset is illegal" in answer.remark


async def test_what_is_out_is_kept_in_apaches_form(node: Any) -> None:
    for body in (b"a", b"b", b"c"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    messages = (await popping.pop(3, attemptId="try-1")).messages
    await popping.ack(messages[0])
    await popping.change(messages[2], 60_000)
    at, now = messages[0].receipt.pop_time, node.clock.now_ms()
    await node.restart()
    stored = json.loads((node.root / "config" / "consumerOrderInfo.json").read_text())
    assert {
        "table": {
            "orders@G": {
                "0": {
                    "a": "try-1", "cm": 1, "i": INVISIBLE_MS, "l": at, "o": [0, 1, 2], "ot": {"2": now + 60_000},
                    "popTime": at,
                }
            }
        }
    } == stored  # fmt: skip
    popping = Ordered(node)
    assert [] == (await popping.pop()).messages
    assert [b"b", b"c"] == (await popping.pop(attemptId="try-1")).bodies


async def test_a_reset_frees_a_blocked_queue(node: Any) -> None:
    for body in (b"a", b"b"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    await popping.ack((await popping.pop(1)).messages[0])
    await popping.pop(1)
    header = {"topic": "orders", "group": "G", "timestamp": 0, "isForce": True}
    assert ResponseCode.SUCCESS == (await node.client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code
    assert [b"a", b"b"] == (await popping.pop()).bodies


async def test_after_a_kill_an_ack_does_not_send_the_group_back_to_what_it_had_acknowledged(node: Any) -> None:
    """The offset was written after the acks, and what is out in order before them."""
    for body in (b"a", b"b", b"c", b"d"):
        await node.client.send("orders", body)
    popping = Ordered(node)
    messages = (await popping.pop()).messages
    await node.broker.services.pop_order.persist_if_changed()
    for message in messages[:2]:
        await popping.ack(message)
    await node.broker.offsets.persist_if_changed()
    await node.crash()
    popping = Ordered(node)
    await popping.ack(messages[3])
    assert 2 == node.broker.offsets.get("G", "orders", 0)
    await node.crash()
    assert 2 == node.broker.offsets.get("G", "orders", 0)
    await node.clock.advance(INVISIBLE_MS / 1000 + 0.1)
    assert [b"c", b"d"] == (await Ordered(node).pop()).bodies

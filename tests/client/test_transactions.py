"""Transactions: seen only when committed, undone by an exception, and decided by check-backs when word was lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inside import decisions_of

import arrowmq
from arrowmq.client.produce.transactions import Decisions


async def test_a_message_is_seen_only_after_its_transaction(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster, group=f"p{group}") as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        async with producer.transaction(topic, b"work", tag="t", keys=["k"]) as transaction:
            assert [] == await consumer.receive(timeout_s=0.3)
        message = await anext(consumer)
        await message.ack()
    assert (b"work", "t", ["k"], transaction.msg_id) == (message.body, message.tag, message.keys, message.msg_id)


async def test_an_exception_rolls_back_and_reaches_the_caller(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster, group=f"p{group}") as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(topic, b"never"):
                raise ZeroDivisionError
        async with producer.transaction(topic, b"also never") as transaction:
            await transaction.rollback()
        async with producer.transaction(topic, b"seen") as transaction:
            await transaction.commit()
            with pytest.raises(arrowmq.InvalidUse, match="decided"):
                await transaction.rollback()
        async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
            message = await anext(consumer)
            await message.ack()
            assert b"seen" == message.body
            assert [] == await consumer.receive(timeout_s=0.3)


async def test_a_listener_decides(cluster: str, topic: str, group: str) -> None:
    class Listener:
        async def execute(
            self, message: arrowmq.Message, transaction_id: str, argument: object
        ) -> arrowmq.TransactionState:
            return arrowmq.TransactionState.COMMIT if argument == "yes" else arrowmq.TransactionState.ROLLBACK

        def check(self, message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
            return arrowmq.TransactionState.UNKNOWN

    async with arrowmq.Producer(cluster, group=f"p{group}", transaction_listener=Listener()) as producer:
        _, no = await producer.send_in_transaction(topic, b"no", argument="no")
        receipt, yes = await producer.send_in_transaction(topic, b"yes", argument="yes")
    assert (arrowmq.TransactionState.ROLLBACK, arrowmq.TransactionState.COMMIT) == (no, yes)
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        message = await anext(consumer)
        await message.ack()
    assert (b"yes", receipt.msg_id) == (message.body, message.msg_id)


async def test_without_a_listener_it_says_what_is_missing(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        with pytest.raises(arrowmq.InvalidUse, match="transaction_listener"):
            await producer.send_in_transaction(topic, b"x")


async def test_a_transaction_of_a_dead_process_is_decided_by_the_checker_of_another(
    arrowmq_broker: object, topic: str, group: str
) -> None:
    """The half message's sender ends without a decision; a second producer of its group is asked."""
    from arrowmq.testing import BrokerThread

    assert isinstance(arrowmq_broker, BrokerThread)
    namesrv, producers = arrowmq_broker.namesrv, f"p{group}"
    asked: list[bytes] = []

    def check(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        asked.append(message.body)
        return arrowmq.TransactionState.COMMIT if message.body == b"good" else arrowmq.TransactionState.ROLLBACK

    async with arrowmq.Producer(namesrv, group=producers) as producer:
        for body in (b"good", b"bad"):
            async with producer.transaction(topic, body) as transaction:
                transaction.leave_undecided()
    async with (
        arrowmq.Producer(namesrv, group=producers, transaction_checker=check) as second,
        arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await second.send(f"{topic}x", b"so that the broker knows this producer")
        await arrowmq_broker.advance_until(lambda: len(asked) >= 2, step=31)
        message = await anext(consumer)
        await message.ack()
        assert b"good" == message.body
        assert [] == await consumer.receive(timeout_s=0.3)
    assert {b"good", b"bad"} == set(asked)


async def test_a_lost_commit_is_mended_by_the_check(arrowmq_broker: object, topic: str, group: str) -> None:
    from arrowmq.testing import BrokerThread

    assert isinstance(arrowmq_broker, BrokerThread)
    namesrv = arrowmq_broker.namesrv
    async with (
        arrowmq.Producer(namesrv, group=f"p{group}") as producer,
        arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first") as consumer,
    ):
        transaction = producer.transaction(topic, b"decided")
        await transaction.__aenter__()
        # The decision is made, but the word of it never reaches the broker.
        decisions_of(producer).set(transaction.msg_id, arrowmq.TransactionState.COMMIT)
        received = asyncio.create_task(anext(consumer))  # type: ignore[arg-type]
        await arrowmq_broker.advance_until(received.done, step=31)
        message = received.result()
        await message.ack()
        assert b"decided" == message.body


async def test_a_half_message_whose_answer_was_lost_is_rolled_back_by_the_check(
    arrowmq_broker: object,
    topic: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its sender never began, so nobody is asked and nothing waits for an administrator."""
    from arrowmq.testing import BrokerThread

    assert isinstance(arrowmq_broker, BrokerThread)
    namesrv, producers = arrowmq_broker.namesrv, f"p{group}"
    asked: list[bytes] = []

    def check(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        asked.append(message.body)
        return arrowmq.TransactionState.UNKNOWN

    async with arrowmq.Producer(namesrv, group=producers, transaction_checker=check, retries=0) as producer:
        attempt = producer._attempt

        async def stored_and_not_answered(*details: Any) -> arrowmq.SendReceipt:
            await attempt(*details)
            raise arrowmq.TimedOut("send", "broker", 3.0)

        with monkeypatch.context() as lost:
            lost.setattr(producer, "_attempt", stored_and_not_answered)
            with pytest.raises(arrowmq.TimedOut):
                await producer.transaction(topic, b"lost").__aenter__()
        caplog.set_level("INFO", "arrowmq.client")
        await arrowmq_broker.advance_until(lambda: "was asked about" in caplog.text, step=31)
    assert "ROLLBACK" in caplog.text
    assert asked == []


async def test_a_listener_that_is_cancelled_leaves_it_to_the_check(
    arrowmq_broker: object, topic: str, group: str
) -> None:
    from arrowmq.testing import BrokerThread

    assert isinstance(arrowmq_broker, BrokerThread)
    asked: list[bytes] = []

    class Slow:
        async def execute(self, message: arrowmq.Message, transaction_id: str, argument: object) -> Any:
            await asyncio.sleep(60)

        def check(self, message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
            asked.append(message.body)
            return arrowmq.TransactionState.COMMIT

    async with arrowmq.Producer(arrowmq_broker.namesrv, group=f"p{group}", transaction_listener=Slow()) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send_in_transaction(topic, b"cancelled"), 1.0)
        await arrowmq_broker.advance_until(lambda: asked, step=31)
    assert asked == [b"cancelled"]


def test_decisions_are_remembered_within_a_bound() -> None:
    decisions = Decisions()
    for n in range(10_001):
        decisions.set(str(n), arrowmq.TransactionState.COMMIT)
    assert None is decisions.get("0")
    assert arrowmq.TransactionState.COMMIT is decisions.get("10000")

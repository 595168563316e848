"""`arrowmq message explain`: the life of messages that were stored, delayed, filtered, retried, parked, decided on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import arrowmq
from arrowmq import sync
from arrowmq.testing import BrokerThread

from .conftest import Command


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """One of its own: these tests move its clock."""
    with BrokerThread(settings={"autoCreateTopicEnable": "false", "enablePropertyFilter": "true"}) as thread:
        yield thread


class Story:
    def __init__(self, told: dict[str, Any]) -> None:
        self.events = told["events"]
        self.whats = [event["what"] for event in self.events]

    def text(self, what: str) -> str:
        """The sentences of all events of this kind."""
        found = [event["text"] for event in self.events if event["what"] == what]
        assert found, f"nothing {what}: {self.events}"
        return "; ".join(found)

    def at(self, what: str) -> int:
        found: int = next(event["at"] for event in self.events if event["what"] == what)
        return found


@pytest.fixture
def topic(command: Command, name: str) -> str:
    command("topic", "create", name, "--queues", "1")
    return name


def explain(command: Command, msg_id: str, topic: str | None = None) -> Story:
    return Story(command.json("message", "explain", msg_id, *(["--topic", topic] if topic else [])))


def test_a_stored_message_is_flushed_and_dispatched(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "hello")
    for msg_id in (sent["msgId"], sent["offsetMsgId"]):
        story = explain(command, msg_id)
        assert ["born", "stored"] == story.whats[:2]
        assert story.at("born") <= story.at("stored")
        assert f"in {topic} on broker-a, queue 0, offset 0" in story.text("stored")
        assert "can get it" in story.text("dispatched")
        assert "ASYNC_FLUSH" in story.text("flushed" if "flushed" in story.whats else "not flushed")
    assert "stored" in command("message", "explain", sent["msgId"], "--topic", topic)


def test_each_group_tells_how_far_it_is(command: Command, topic: str) -> None:
    first = command.json("message", "send", topic, "first", "--tag", "a")
    second = command.json("message", "send", topic, "second", "--tag", "a")
    with sync.Consumer(command.namesrv, group=f"{topic}_g", topic=topic, consume_from="first") as consumer:
        messages = iter(consumer)
        next(messages).ack()
    assert "is past it, at offset 1" in explain(command, first["msgId"]).text("passed")
    assert "it is the next of its queue" in explain(command, second["msgId"]).text("waiting")
    assert "left without acknowledging it; start a consumer" in explain(command, second["msgId"]).text("waiting")


def test_a_filter_that_keeps_a_message_away_is_named(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "x", "--tag", "b")
    with sync.Consumer(command.namesrv, group=f"{topic}_g", topic=topic, tags="a"):
        assert f"the filter of {topic}_g, 'a', does not match tag 'b'" in explain(command, sent["msgId"]).text(
            "filtered"
        )


def test_a_filter_over_properties_is_named_as_one(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "x", "--property", "amount=3")
    with sync.Consumer(command.namesrv, group=f"{topic}_g", topic=topic, sql="amount > 5"):
        assert f"the filter of {topic}_g, 'amount > 5', does not match its properties" in explain(
            command, sent["msgId"]
        ).text("filtered")


def test_a_message_in_hand_is_delivered_and_not_consumed(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "x")
    with sync.Consumer(command.namesrv, group=f"{topic}_g", topic=topic, consume_from="first") as consumer:
        message = next(iter(consumer))
        story = explain(command, sent["msgId"])
        assert {"delivered", "not seen", "waiting"} & set(story.whats)
        assert "passed" not in story.whats
        message.ack()


def test_a_delayed_message_waits_and_is_due(command: Command, broker: BrokerThread, topic: str) -> None:
    sent = command.json("message", "send", topic, "later", "--delay-level", "18")
    story = explain(command, sent["msgId"], topic)
    assert "because of delay level 18" in story.text("delayed")
    assert "it is due in" in story.text("waiting")
    assert "stored" not in story.whats
    broker.advance(2 * 3600 + 1)
    story = explain(command, sent["msgId"], topic)
    assert "waiting" not in story.whats
    assert 2 * 3600 * 1000 <= story.at("stored") - story.at("delayed")


def test_a_message_with_a_delivery_time_waits_and_is_due(command: Command, broker: BrokerThread, topic: str) -> None:
    with sync.Producer(command.namesrv) as producer:
        sent = producer.send(topic, b"later", delay=1000)
    story = explain(command, sent.msg_id, topic)
    assert "because of a delivery time" in story.text("delayed")
    assert "it is due in" in story.text("waiting")
    broker.advance(1001)
    story = explain(command, sent.msg_id, topic)
    assert "waiting" not in story.whats
    assert ["born", "delayed", "stored"] == [what for what in story.whats if what in ("born", "delayed", "stored")]


def test_a_retried_message_tells_its_tries_and_the_dead_letter(
    command: Command, broker: BrokerThread, topic: str
) -> None:
    sent = command.json("message", "send", topic, "poison")
    group = f"{topic}_g"
    with sync.Consumer(
        command.namesrv, group=group, topic=topic, consume_from="first", max_reconsume_times=1
    ) as consumer:
        messages = iter(consumer)
        next(messages).nack()
        story = explain(command, sent["msgId"], topic)
        assert "it comes again after 10.0 s" in story.text("sent back")
        assert f"{group} gets it again" in story.text("waits for retry")
        broker.advance(11)
        message = next(messages)
        assert 1 == message.reconsume_times
        story = explain(command, sent["msgId"], topic)
        assert "retry 1" in story.text("retried")
        assert "has not finished" in story.text("in retry")
        message.nack()
    story = explain(command, sent["msgId"], topic)
    assert f"gave up after 2 failures: it is in %DLQ%{group}" in story.text("dead letter")
    order = ["born", "stored", "sent back", "retried", "dead letter"]
    assert order == [what for what in story.whats if what in order]


def test_a_retry_that_succeeds_is_told(command: Command, broker: BrokerThread, topic: str) -> None:
    sent = command.json("message", "send", topic, "second time lucky")
    with sync.Consumer(command.namesrv, group=f"{topic}_g", topic=topic, consume_from="first") as consumer:
        messages = iter(consumer)
        next(messages).nack()
        broker.advance(11)
        next(messages).ack()
    assert "finished it in retry 1" in explain(command, sent["msgId"], topic).text("consumed")


@pytest.mark.parametrize(("decision", "what"), [("commit", "committed"), ("rollback", "rolled back")])
async def test_a_transaction_tells_how_it_ended(command: Command, topic: str, decision: str, what: str) -> None:
    async with (
        arrowmq.Producer(
            command.namesrv, group=f"{topic}_p", transaction_checker=lambda message: arrowmq.TransactionState.UNKNOWN
        ) as producer,
        producer.transaction(topic, b"half") as transaction,
    ):
        msg_id = transaction.receipt.msg_id
        story = await asyncio.to_thread(explain, command, msg_id, topic)
        assert f"half message of producer group {topic}_p" in story.text("half")
        assert "waits for commit or rollback" in story.text("undecided")
        if decision == "rollback":
            await transaction.rollback()
        else:
            await transaction.commit()
    story = await asyncio.to_thread(explain, command, msg_id, topic)
    assert "undecided" not in story.whats
    assert what in story.whats
    assert ("stored" in story.whats) == (decision == "commit")


async def test_traces_tell_when_it_was_sent_and_consumed(command: Command, topic: str) -> None:
    async with arrowmq.Producer(
        command.namesrv, hooks=[arrowmq.MessageTrace(command.namesrv, group=f"{topic}_p")]
    ) as producer:
        sent = await producer.send(topic, b"traced")
    async with arrowmq.Consumer(
        command.namesrv,
        group=f"{topic}_g",
        topic=topic,
        consume_from="first",
        hooks=[arrowmq.MessageTrace(command.namesrv, group=f"{topic}_g")],
    ) as consumer:
        await (await anext(consumer)).ack()
    story = await asyncio.to_thread(explain, command, sent.msg_id, topic)
    assert "was told that it is stored" in story.text("sent (trace)")
    assert f"{topic}_g" in story.text("consumed (trace)")

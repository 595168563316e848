"""Requests that wait for a reply."""

from __future__ import annotations

import asyncio

import pytest

import arrowmq


async def test_a_reply_comes_back_to_whoever_asked(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Producer(cluster) as producer, arrowmq.Producer(cluster, group="other") as replier:

        async def answer(message: arrowmq.ReceivedMessage) -> None:
            await replier.reply(message, b"re: " + message.body)

        async with arrowmq.Admin(cluster) as admin:
            await admin.create_topic(topic, queues=2)
        async with arrowmq.PushConsumer(cluster, group=group, topic=topic, handler=answer, consume_from="first"):
            replies = await asyncio.gather(*(producer.request(topic, b"%d" % n, timeout_s=10) for n in range(5)))
    assert [b"re: %d" % n for n in range(5)] == [reply.body for reply in replies]


async def test_no_reply_in_time_is_said(cluster: str, topic: str) -> None:
    async with arrowmq.Producer(cluster) as producer:
        with pytest.raises(arrowmq.ReplyTimedOut, match="nobody replied"):
            await producer.request(topic, b"hello?", timeout_s=0.3)


async def test_an_ordinary_message_cannot_be_replied_to(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster) as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer,
    ):
        await producer.send(topic, b"x")
        message = await anext(consumer)
        with pytest.raises(arrowmq.InvalidUse, match="nobody to reply to"):
            await producer.reply(message, b"y")
        await message.ack()

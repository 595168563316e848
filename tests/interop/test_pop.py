"""Pop beside Apache's broker: stores with messages in flight that change hands, and Java push consumers that pop.

The Java client's own pop calls, and its proxy, are judged by Apache's integration tests (`apache_its/`).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from oracle import hands
from oracle.scene import Scene
from oracle.target import Target
from test_stores import Ground, ground

import arrowmq
from arrowmq.remoting.client import RemotingClient
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import SetMessageRequestMode
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from waiting import until

__all__ = ["ground"]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE_S = 60
COUNT = 24


async def receive(consumer: arrowmq.SimpleConsumer, wanted: int, invisible_s: float) -> list[arrowmq.PoppedMessage]:
    """At least so many messages, or what came in time."""
    found: list[arrowmq.PoppedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < wanted and time.monotonic() < deadline:
        found += await consumer.receive(8, invisible_s, wait_s=2)
    return found


async def in_route(consumer: arrowmq.SimpleConsumer, topic: str) -> None:
    """A broker that took over may register its topics a little after it is up."""

    async def is_there() -> bool:
        return await consumer._session.refresh_route(topic) is not None

    await until(is_there, PATIENCE_S)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("arrowmq", "apache"), ("apache", "arrowmq")])
async def test_messages_in_flight_survive_a_change_of_broker(
    ground: Ground, first: str, second: str, killed: bool
) -> None:
    """What was acknowledged before does not come again, what was not comes, and an old receipt still counts.

    A kill takes the group's offset along, which the other kind of broker begins from: after it, more may come again.
    """
    topic, group, names = f"flight_{first}_{killed}", f"G_{first}_{killed}", ground.names.address
    server = ground.broker(first)
    server.start()
    try:
        async with (
            arrowmq.Producer(names) as producer,
            arrowmq.SimpleConsumer(names, group=group, topic=topic) as consumer,
        ):
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number)
            messages = await receive(consumer, COUNT, 45)
            assert COUNT == len(messages)
            acked, late = messages[: COUNT // 3], messages[COUNT // 3 : COUNT // 2]
            await asyncio.gather(*(message.ack() for message in acked))
            await asyncio.gather(*(message.extend(45) for message in messages[-3:]))
            if killed and first == "apache":
                await asyncio.sleep(6)  # its offsets are written every five seconds, and are all it has of them
            (server.kill if killed else server.stop)()
    finally:
        server.stop()
    other = ground.broker(second)
    other.start()
    try:
        async with arrowmq.SimpleConsumer(names, group=group, topic=topic) as consumer:
            for message in late:
                message.consumer = consumer
            await in_route(consumer, topic)
            await asyncio.gather(*(message.ack() for message in late))
            expected = sorted(int(message.body) for message in messages[COUNT // 2 :])
            back: list[arrowmq.PoppedMessage] = []
            deadline = time.monotonic() + 100
            while not set(expected) <= {int(message.body) for message in back} and time.monotonic() < deadline:
                back += await consumer.receive(32, 300, wait_s=2)
            more = await consumer.receive(32, 300, wait_s=4)
            bodies = sorted(int(message.body) for message in [*back, *more])
            if killed:
                assert set(expected) <= set(bodies)
            else:
                assert expected == bodies
                assert {1} == {message.reconsume_times for message in back}
            await asyncio.gather(*(message.ack() for message in back))
    finally:
        other.stop()


async def pop_mode(target: Target, topic: str, group: str) -> None:
    remoting = RemotingClient()
    body = SetMessageRequestMode(topic=topic, consumer_group=group, mode="POP", pop_share_queue_num=0)
    request = Command.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, fastjson.dumps(body))
    answer = await remoting.invoke(target.broker, request, 10)
    await remoting.close()
    assert ResponseCode.SUCCESS == answer.code, answer.remark


def test_java_push_consumers_pop_share_and_outlive_a_kill(target_kind: str, tmp_path: Path) -> None:
    """Two members of a group that the broker told to pop; the broker is killed in the middle: at least once holds."""
    with (
        Target(target_kind, tmp_path / "target") as target,
        hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path / "hand") as hand,
        Scene(hand, "pop_push") as scene,
    ):
        topic, group = scene.topic(queues=4), scene.name("popping")
        asyncio.run(pop_mode(target, topic, group))
        producer = scene.producer(hand, timeout=3000)
        members = [scene.listener(hand, topic, group, brokerRebalance=True) for _ in range(2)]
        records = [{"key": f"k{number}", "body": f"b{number}"} for number in range(200)]
        producer.send(topic, records[:100])
        seen = members[0].seen(1, PATIENCE_S)
        target.crash()
        producer.send(topic, records[100:])
        wanted, deadline = {record["body"] for record in records}, time.monotonic() + 150
        found: set[str] = set()
        while not wanted <= found and time.monotonic() < deadline:
            seen = [record for member in members for record in member.seen(0, 1)]
            found = {record["body"] for record in seen}
        assert wanted <= found

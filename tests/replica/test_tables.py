"""What a slave knows beside the log: its master's tables, in seconds, and offsets that come home."""

from __future__ import annotations

import json
from pathlib import Path

from pairs import Cluster, caught_up, store_of
from rules import acl
from test_pair import send

import arrowmq
from arrowmq.auth.users import User
from arrowmq.remoting.client import RemotingClient
from arrowmq.server import Node
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from waiting import until


async def ask(node: Node, code: int, ext: dict[str, object] | None = None, body: bytes = b"") -> Command:
    client = RemotingClient()
    try:
        texts = {name: str(value) for name, value in (ext or {}).items()}
        return await client.invoke(node.broker_address, Command.request(code, texts, body), 5)
    finally:
        await client.close()


async def create_topic(node: Node, topic: str, queues: int) -> None:
    answer = await ask(
        node,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        },
    )  # fmt: skip
    assert answer.code == 0, answer.remark


async def test_topics_groups_and_offsets_are_the_masters_within_seconds(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        assert master.broker is not None
        assert slave.broker is not None
        ours, theirs = master.broker, slave.broker
        await create_topic(master, "made", 3)
        assert ours.groups.find("readers") is not None
        ours.offsets.commit("readers", "made", 2, 77)
        await until(lambda: "made" in theirs.topics.table and theirs.offsets.get("readers", "made", 2) == 77, 10)
        assert theirs.groups.get("readers") is not None
        assert theirs.topics.table["made"] == ours.topics.table["made"]
        assert theirs.topics.version == ours.topics.version
        await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "made"})
        await until(lambda: "made" not in theirs.topics.table, 10)


async def test_a_slave_refuses_messages_and_administration_as_apaches_does(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.master()
        slave = await cluster.slave()
        answer = await ask(
            slave,
            RequestCode.SEND_MESSAGE,
            {
                "producerGroup": "P", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0,
            },
            b"body",
        )  # fmt: skip
        assert answer.code == 2  # SYSTEM_BUSY, as Apache's slave says it
        assert "REJECTREQUEST" in (answer.remark or "")
        assert "slave" in (answer.remark or "")
        assert store_of(slave).appended == 0
        answer = await ask(slave, RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "t", "defaultTopic": "TBW102",
            "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
            "order": "false"})  # fmt: skip
        assert answer.code == 1
        assert "slave" in (answer.remark or "").lower()


async def test_an_offset_committed_to_the_slave_comes_home(tmp_path: Path) -> None:
    """While the master is gone its readers commit to the slave; when it is back, it hears of that."""
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        assert master.broker is not None
        assert slave.broker is not None
        await send(cluster, 8)
        await caught_up(master, slave)
        assert master.broker.groups.find("readers") is not None
        master.broker.offsets.commit("readers", "orders", 0, 1)
        theirs = slave.broker
        await until(lambda: theirs.offsets.get("readers", "orders", 0) == 1, 10)
        await cluster.stop(master)
        answer = await ask(
            slave,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "readers", "topic": "orders", "queueId": 0, "commitOffset": 2},
        )
        assert answer.code == 0
        master = await cluster.master()
        assert master.broker is not None
        ours = master.broker
        await until(lambda: ours.offsets.get("readers", "orders", 0) == 2, 20)
        assert theirs.offsets.get("readers", "orders", 0) == 2


async def test_users_and_rights_are_the_masters_within_seconds(tmp_path: Path) -> None:
    """Also while every request, those between the brokers too, has to be signed."""
    auth = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "the-secret"}),
    }
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(auth), await cluster.slave(settings=auth)
        assert master.broker is not None
        assert slave.broker is not None
        ours, theirs = master.broker.guard.book, slave.broker.guard.book
        await ours.change(
            lambda accounts: accounts.with_new_user(User("ann", "a")).with_acl(
                acl(("Topic:orders", "Sub", "Allow"), user="ann")
            )
        )
        await until(lambda: theirs.accounts == ours.accounts, 10)
        assert "ann" in theirs.accounts.acls
        await ours.change(lambda accounts: accounts.without_user("ann"))
        await until(lambda: theirs.user("ann") is None, 10)


async def test_a_topic_made_anew_at_once_begins_anew_on_the_slave_too(tmp_path: Path) -> None:
    """Its records come with the log, before the tables say that it was deleted."""
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await create_topic(master, "orders", 1)
        await send(cluster, 20)
        await caught_up(master, slave)
        await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        await create_topic(master, "orders", 1)
        await send(cluster, 3)
        await caught_up(master, slave)
        assert store_of(master).max_offset("orders", 0) == 3
        assert store_of(slave).max_offset("orders", 0) == 3
        assert store_of(master).entries("orders", 0, 0, 9) == store_of(slave).entries("orders", 0, 0, 9)


async def test_how_many_timed_messages_wait_is_known_at_the_slave(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        assert master.broker is not None
        assert slave.broker is not None
        async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
            for _ in range(3):
                await producer.send("orders", b"later", delay=3600)
        ours, theirs = master.broker.services.timer.counts, slave.broker.services.timer.counts
        await until(lambda: ours.waiting["orders"] == 3, 10)
        await until(lambda: theirs.waiting["orders"] == 3, 10)
        answer = await ask(slave, RequestCode.GET_TIMER_METRICS)
        assert 3 == fastjson.loads(answer.body)["timingCount"]["orders"]["count"]

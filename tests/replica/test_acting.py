"""Slave acting master: what goes on while the master is gone, and what it hears when it comes back."""

from __future__ import annotations

from pathlib import Path

from pairs import Cluster, caught_up, replication_of, store_of
from test_pair import send
from test_tables import create_topic

import arrowmq
from arrowmq.server import Node
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetRouteInfo, NotifyMinBrokerIdChange
from waiting import until

ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2", "slaveReadEnable": "true"}


async def route(cluster: Cluster, node: Node, topic: str) -> TopicRouteData:
    assert node.broker is not None
    command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))
    answer = await node.broker.remoting.invoke(cluster.namesrv.namesrv_address, command, 5)
    return fastjson.loads(answer.body, type=TopicRouteData)


async def test_the_lowest_slave_acts_while_the_master_is_gone_and_stops_when_it_is_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ACTING) as cluster:
        master = await cluster.master()
        slaves = [await cluster.slave(number=1), await cluster.slave(number=2)]
        await send(cluster, 20)
        for slave in slaves:
            await caught_up(master, slave)
        roles = [slave.broker.role for slave in slaves if slave.broker is not None]
        await cluster.stop(master)
        await until(lambda: roles[0].is_acting, 20)
        assert not roles[1].is_acting
        shown = await route(cluster, slaves[0], "orders")
        assert shown.broker_datas[0].broker_addrs[0] == slaves[0].broker_address
        assert not shown.queue_datas[0].perm & 2  # for reading
        found = 0
        async with arrowmq.Consumer(
            cluster.namesrv.namesrv_address, group="readers", topic="orders", consume_from="first"
        ) as consumer:
            async for message in consumer:
                await message.ack()
                found += 1
                if found == 20:
                    break
        master = await cluster.master()
        await until(lambda: not roles[0].is_acting, 20)
        assert master.broker is not None
        ours = master.broker
        committed = sum(ours.offsets.queues("readers", "orders").values())
        assert committed == 20  # by pre-online, before anybody could commit to it
        for slave in slaves:
            await caught_up(master, slave)


async def test_delays_and_timers_escape_to_another_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {**ACTING, "enableRemoteEscape": "true"}) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        other = await cluster.start("other", {"brokerRole": "ASYNC_MASTER", "brokerName": "broker-b"})
        async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
            for node in (master, other):
                await create_topic(node, "orders", 4)
            await until(lambda: _is_there(cluster, other, 2), 20)
            queue = arrowmq.MessageQueue("orders", "broker-a", 0)
            await producer.send("orders", b"plain", queue=queue)
            await producer.send("orders", b"by level", delay_level=2, queue=queue)
            await producer.send("orders", b"by timer", delay=4, queue=queue)
        await caught_up(master, slave)
        await cluster.stop(master)
        bodies: set[bytes] = set()

        def delivered() -> bool:
            store = store_of(other)
            for queue_id in store.queues().get("orders", []):
                for entry in store.entries("orders", queue_id, 0, 100):
                    record = store.record_at(entry.physical_offset)
                    assert record is not None
                    bodies.add(bytes(record.body))
            return {b"by level", b"by timer"} <= bodies

        await until(delivered, 40)
        assert replication_of(slave).escape.escaped == 2


async def _is_there(cluster: Cluster, node: Node, brokers: int) -> bool:
    """The topic lies on so many brokers."""
    return len((await route(cluster, node, "orders")).broker_datas) == brokers


async def test_a_notice_of_another_broker_name_changes_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ACTING) as cluster:
        await cluster.master()
        slave = await cluster.slave()
        assert slave.broker is not None
        acting = replication_of(slave).acting
        await acting.min_broker_id_changed(NotifyMinBrokerIdChange(min_broker_id=1, broker_name="another"))
        assert not slave.broker.role.is_acting
        await acting.min_broker_id_changed(
            NotifyMinBrokerIdChange(min_broker_id=1, broker_name="broker-a", min_broker_addr=slave.broker_address)
        )
        assert slave.broker.role.is_acting

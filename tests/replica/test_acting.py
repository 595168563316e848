"""Slave acting master: what goes on while the master is gone, and what it hears when it comes back."""

from __future__ import annotations

from pathlib import Path

from pairs import Cluster, caught_up, replication_of, store_of
from test_pair import send
from test_tables import ask, create_topic

import arrowmq
from arrowmq.server import Node
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetRouteInfo, NotifyMinBrokerIdChange, SendMessage
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


ESCAPES = {**ACTING, "enableRemoteEscape": "true", "transactionTimeOut": "500", "transactionCheckInterval": "500"}


async def _two_names(cluster: Cluster) -> tuple[Node, Node, Node]:
    """A master and its slave, and a broker of another name with the same topic."""
    master, slave = await cluster.master(), await cluster.slave()
    other = await cluster.start("other", {"brokerRole": "ASYNC_MASTER", "brokerName": "broker-b"})
    for node in (master, other):
        await create_topic(node, "orders", 1)
    await until(lambda: _is_there(cluster, other, 2), 20)
    return master, slave, other


def bodies_of(node: Node, topic: str) -> set[bytes]:
    store = store_of(node)
    records = (
        store.record_at(entry.physical_offset)
        for queue_id in store.queues().get(topic, [])
        for entry in store.entries(topic, queue_id, 0, 1000)
    )
    return {bytes(record.body) for record in records if record is not None}


async def test_open_transactions_are_decided_at_another_broker_and_not_asked_about_again(tmp_path: Path) -> None:
    """The master dies with two half messages; their producer is asked by the other broker; the master, back, asks about
    none of them."""
    async with Cluster(tmp_path, ESCAPES) as cluster:
        master, slave, other = await _two_names(cluster)
        asked: list[bytes] = []

        def decide(half: arrowmq.Message) -> arrowmq.TransactionState:
            asked.append(half.body)
            is_good = half.body == b"good"
            return arrowmq.TransactionState.COMMIT if is_good else arrowmq.TransactionState.ROLLBACK

        assert master.broker is not None
        assert slave.broker is not None
        # Nobody is asked before the master is gone: it has no time for that.
        master.broker.services.transaction_checks.config.transaction_time_out = 3_600_000
        async with arrowmq.Producer(
            cluster.namesrv.namesrv_address, group="deciders", transaction_checker=decide
        ) as producer:
            # A producer is asked by the brokers that it is connected to.
            await producer.send("orders", b"plain", queue=arrowmq.MessageQueue("orders", "broker-b", 0))
            for body in (b"good", b"bad"):
                await _open_half(master, body)
            await caught_up(master, slave)
            await cluster.stop(master)
            await until(lambda: b"good" in bodies_of(other, "orders") and {b"good", b"bad"} <= set(asked), 40)
            assert 2 == slave.broker.services.transaction_checks.handed_on
            assert b"bad" not in bodies_of(other, "orders")
            asked.clear()
            master = await cluster.master()
            assert master.broker is not None
            log = master.broker.services.transaction_checks.transactions
            assert 2 == log.done_before  # by pre-online
            rounds = master.broker.services.transaction_checks.rounds
            await until(
                lambda: master.broker is not None and master.broker.services.transaction_checks.rounds >= rounds + 2, 20
            )
            assert [] == asked


async def _open_half(master: Node, body: bytes) -> None:
    """A half message whose producer never says what became of it."""
    assert master.broker is not None
    header = SendMessage(
        producer_group="deciders", topic="orders", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
        sys_flag=4, born_timestamp=1, flag=0, reconsume_times=0,
        properties=f"TRAN_MSG\x01true\x02PGROUP\x01deciders\x02UNIQ_KEY\x01{body.decode():0<32}\x02",
    )  # fmt: skip
    answer = await master.broker.remoting.invoke(
        master.broker_address, Command.request(RequestCode.SEND_MESSAGE, header, body), 5
    )
    assert 0 == answer.code, answer.remark


async def test_popped_messages_come_back_while_a_slave_acts_and_none_is_lost_when_its_master_is_back(
    tmp_path: Path,
) -> None:
    """Popped before the master died: what is acknowledged at the slave stays away, what is not comes back at another
    broker. Popped from the slave: the same; and what is still in flight when the master returns is handed out again."""
    async with Cluster(tmp_path, ESCAPES) as cluster:
        master, slave, other = await _two_names(cluster)
        queue = arrowmq.MessageQueue("orders", "broker-a", 0)
        async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
            for body in (b"early", b"late", b"third", b"fourth"):
                await producer.send("orders", body, queue=queue)
        async with arrowmq.SimpleConsumer(
            cluster.namesrv.namesrv_address,
            group="poppers",
            topic="orders",
            invisible_s=4,
            wait_s=1,
            poll_namesrv_interval_s=1,
        ) as consumer:
            got = await _receive(consumer, 2, most=2)
            assert [b"early", b"late"] == [message.body for message in got]
            await caught_up(master, slave)
            await cluster.stop(master)
            assert slave.broker is not None
            role = slave.broker.role
            await until(lambda: role.is_acting and role.does_duties, 20)
            await until(lambda: _acks(got[0]), 20)
            retry = "%RETRY%poppers_orders"
            await until(lambda: {b"late"} == bodies_of(other, retry), 40)
            found: set[bytes] = set()
            while not {b"late", b"third", b"fourth"} <= found:
                for message in await consumer.receive(1, invisible_s=60):
                    found.add(message.body)
                    if message.body != b"fourth":
                        await message.ack()
            assert b"early" not in found
            master = await cluster.master()
            await until(lambda: not role.is_acting, 20)
            again: set[bytes] = set()
            while b"fourth" not in again:
                for message in await _receive(consumer, 1):
                    again.add(message.body)
                    await message.ack()
            assert again <= {b"early", b"late", b"fourth"}  # what was acknowledged to the slave may come once more


async def _receive(consumer: arrowmq.SimpleConsumer, count: int, most: int = 8) -> list[arrowmq.PoppedMessage]:
    got: list[arrowmq.PoppedMessage] = []

    async def enough() -> bool:
        try:
            got.extend(await consumer.receive(most))
        except arrowmq.ArrowMQError:  # the master is not in the routes yet
            return False
        return len(got) >= count

    await until(enough, 30)
    return got


async def _acks(message: arrowmq.PoppedMessage) -> bool:
    try:
        await message.ack()
    except arrowmq.ArrowMQError:
        return False
    return True


async def test_queues_are_locked_at_an_acting_slave_and_read_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ACTING) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        await create_topic(master, "orders", 2)
        async with arrowmq.Producer(cluster.namesrv.namesrv_address) as producer:
            for number in range(40):
                queue = arrowmq.MessageQueue("orders", "broker-a", number % 2)
                await producer.send("orders", b"%d" % number, queue=queue)
        await caught_up(master, slave)
        await cluster.stop(master)
        assert slave.broker is not None
        role = slave.broker.role
        await until(lambda: role.is_acting, 20)
        got: list[int] = []
        async with arrowmq.Consumer(
            cluster.namesrv.namesrv_address, group="in-order", topic="orders", consume_from="first", orderly=True
        ) as consumer:
            async for message in consumer:
                got.append(int(message.body))
                await message.ack()
                if len(got) == 40:
                    break
        for remainder in (0, 1):
            assert list(range(remainder, 40, 2)) == [number for number in got if number % 2 == remainder]


async def test_a_slave_is_active_while_it_acts_as_apaches_is(tmp_path: Path) -> None:
    """What `mqadmin clusterList` shows as ACTIVATED."""
    async with Cluster(tmp_path, {**ACTING, "enableRemoteEscape": "true"}) as cluster:
        master, slave = await cluster.master(), await cluster.slave()
        assert "true" == await _active(master)
        assert "false" == await _active(slave)
        await cluster.stop(master)
        assert slave.broker is not None
        role = slave.broker.role
        await until(lambda: role.does_duties, 20)
        assert "true" == await _active(slave)


async def _active(node: Node) -> str:
    answer = await ask(node, RequestCode.GET_BROKER_RUNTIME_INFO)
    return str(fastjson.loads(answer.body)["table"]["brokerActive"])

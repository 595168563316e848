"""Brokers under a controller: ids, roles, epochs, who is in sync, what is cut, and that what was acknowledged stays."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from trios import Trio, broker_of, replication_of

import arrowmq
from arrowmq.broker import Broker
from arrowmq.broker.names import HALF_TOPIC
from arrowmq.broker.role import Role
from arrowmq.broker.transactions.log import TRANSACTION_GROUP
from arrowmq.client.errors import ArrowMQError
from arrowmq.config import ConfigError
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import Call, TakenOver
from arrowmq.replica.controlled import truncation
from arrowmq.replica.controlled.controllers import Decided
from arrowmq.replica.controlled.epochs import Epoch, EpochFile, EpochFileDamaged
from arrowmq.replica.controlled.replication import ControlledReplication
from arrowmq.replica.follower import COPYING
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.disk import Disk
from arrowmq.touches import Touches
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ElectMaster
from arrowmq.wire.records import Record
from waiting import until

TOPIC = "orders"


async def send(trio: Trio, *bodies: str) -> None:
    async with trio.producer() as producer:
        for body in bodies:
            receipt = await producer.send(TOPIC, body.encode())
            assert "SEND_OK" == receipt.status.name


async def has_all(trio: Trio, *bodies: str) -> None:
    """A new group gets these messages, and no others."""
    found: set[str] = set()
    async with arrowmq.Consumer(trio.above.namesrv_address, group="all", topic=TOPIC, consume_from="first") as consumer:
        async for message in consumer:
            found.add(message.body.decode())
            await message.ack()
            if found >= set(bodies):
                break
    assert set(bodies) == found


async def test_the_first_is_master_the_others_copy_and_join_the_set(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        assert trio.nodes[1] is await trio.master()
        await send(trio, *map(str, range(20)))
        await trio.level()
        assert trio.log(1) == trio.log(2) == trio.log(3)
        epochs = [replication_of(node).epochs.epochs for node in trio.nodes.values()]
        assert [[(1, 0)]] * 3 == epochs
        assert ["1", "2", "3"] == [
            (tmp_path / f"broker-{number}" / "brokerIdentity").read_text().split("#")[2] for number in (1, 2, 3)
        ]


async def test_a_stopped_master_is_followed_and_comes_back_as_slave_with_the_same_log(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await send(trio, "before")
        await trio.stop(1)
        master = await trio.master()
        assert broker_of(master).role.epoch == 2
        await send(trio, "between")
        await trio.start(1)
        await trio.in_sync(1, 2, 3)
        await send(trio, "last")
        await trio.level()
        assert trio.log(1) == trio.log(2) == trio.log(3)
        assert Role.SLAVE is broker_of(trio.nodes[1]).role.current
        await has_all(trio, "before", "between", "last")
        epochs = [replication_of(node).epochs.epochs for node in trio.nodes.values()]
        assert epochs[0] == epochs[1] == epochs[2]


async def test_a_slave_that_lacks_nothing_hears_of_a_new_epoch_at_once(tmp_path: Path) -> None:
    """Nothing is written in it, and the next heartbeat is minutes away."""
    async with Trio(tmp_path, {"haSendHeartbeatInterval": "600000"}) as trio:
        await trio.start_all()
        await send(trio, "before")
        await trio.level()
        await trio.stop(1)
        await trio.master()
        others = [trio.nodes[number] for number in (2, 3)]
        await until(lambda: all(replication_of(node).epochs.last_number == 2 for node in others))


async def test_what_only_the_old_master_had_is_cut_and_put_aside(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await send(trio, "kept")
        await trio.level()
        end = int(broker_of(trio.nodes[1]).store.appended)
        config = broker_of(trio.nodes[1]).store.config
        await trio.stop(1)
        await trio.master()
        await send(trio, "new master")
        # As if it had taken these just before it died, and no slave had got them.
        store = MessageStore(tmp_path / "broker-1", config)
        store.open()
        for number in range(5):
            assert PutStatus.PUT_OK is store.put(Record(topic=TOPIC, queue_id=0, body=b"lost %d" % number)).status
        lost = bytes(store.commit_log.view(end, int(store.appended) - end) or b"")
        store.close()
        await trio.start(1)
        await trio.in_sync(1, 2, 3)
        await send(trio, "last")
        await trio.level()
        assert trio.log(1) == trio.log(2) == trio.log(3)
        (tail,) = truncation.tails(tmp_path / "broker-1")
        assert (end, lost) == (tail.start, tail.path.read_bytes())
        told = replication_of(trio.nodes[1]).runtime()
        assert ("1", str(len(lost)), str(tail.path)) == (told["haCutTails"], told["haCutBytes"], told["haLastCut"])
        await has_all(trio, "kept", "new master", "last")


async def test_a_slave_that_is_gone_leaves_the_set_and_nobody_waits_for_it(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await trio.stop(3)
        await send(trio, "sent while it is gone")
        await trio.in_sync(1, 2)
        await trio.start(3)
        await trio.in_sync(1, 2, 3)
        await trio.level()
        assert trio.log(1) == trio.log(3)


async def test_with_too_few_in_sync_messages_are_refused_before_they_are_written(tmp_path: Path) -> None:
    async with Trio(tmp_path, {"minInSyncReplicas": "2"}) as trio:
        await trio.start_all(2)
        await send(trio, "with two")
        await trio.stop(2)
        await trio.in_sync(1)
        end = broker_of(trio.nodes[1]).store.appended
        with pytest.raises(ArrowMQError, match=r"in-sync replicas|IN_SYNC"):
            await send(trio, "with one")
        assert end == broker_of(trio.nodes[1]).store.appended
        await trio.start(2)
        await trio.in_sync(1, 2)
        await send(trio, "with two again")


async def test_a_learner_copies_and_never_counts(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all(2)
        await trio.start(3, {"asyncLearner": "true"})
        await until(lambda: replication_of(trio.nodes[3]).follower.state == COPYING)
        await send(trio, "one")
        await trio.level()
        assert {1, 2} == set(trio.decided.sync_state_set)


async def test_an_order_of_an_earlier_epoch_changes_nothing(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await trio.stop(1)
        master = replication_of(await trio.master())
        await master.take(Decided(1, "127.0.0.1:1", 1, (1, 2, 3), 9))
        assert master.broker.role.is_master
        assert 2 == master.epoch


async def test_a_designated_broker_takes_over_and_senders_go_on(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        assert trio.above.controller is not None
        await send(trio, "before")
        await trio.above.controller.failover.elect("broker-a", 3, is_designated=True, reason="test")
        await until(lambda: broker_of(trio.nodes[3]).role.is_master)
        await until(lambda: broker_of(trio.nodes[1]).role.is_slave)
        await send(trio, "last")
        await trio.in_sync(1, 2, 3)
        await has_all(trio, "before", "last")


async def test_what_nobody_else_has_is_not_acknowledged_when_the_master_steps_down(tmp_path: Path) -> None:
    """A sender waited for a slave; that was elected without the message, and the message is cut."""
    async with Trio(tmp_path) as trio:
        await trio.start_all(2)
        await send(trio, "kept")
        assert trio.above.controller is not None
        master, slave = replication_of(trio.nodes[1]), replication_of(trio.nodes[2])
        master.feeds._wants_set = lambda members: None  # so the slave stays in the set
        await slave.follower.stop()
        end = master.broker.store.appended
        async with trio.producer() as producer:
            sending = asyncio.ensure_future(producer.send(TOPIC, b"nobody else has it"))
            await until(lambda: master.broker.store.appended > end)
            assert end == master.broker.store.positions.confirmed
            await trio.above.controller.failover.elect("broker-a", 2, is_designated=True, reason="test")
            receipt = await sending
        assert "FLUSH_SLAVE_TIMEOUT" == receipt.status.name
        await trio.in_sync(1, 2)
        await send(trio, "last")
        await trio.level()
        assert trio.log(1) == trio.log(2)
        await has_all(trio, "kept", "last")


async def test_brokers_go_on_without_controllers_as_long_as_all_members_follow(tmp_path: Path) -> None:
    lease = {
        "controllerHeartBeatTimeoutMills": "600",
        "brokerHeartbeatInterval": "100",
        "haSendHeartbeatInterval": "100",
    }
    async with Trio(tmp_path, lease) as trio:
        await trio.start_all(2)
        assert trio.above.controller is not None
        await trio.above.controller.stop()
        replication = replication_of(trio.nodes[1])
        await until(lambda: replication.lease.remaining_s() < -0.3)
        await send(trio, "without a controller")
        assert replication.lease.is_valid
        # Cut off from its slave as well, it cannot know whether that was elected.
        await trio.stop(2)
        await until(lambda: not replication.lease.is_valid, 5)
        with pytest.raises(ArrowMQError, match="controllers"):
            await send(trio, "cut off")


async def test_a_controller_that_hangs_delays_no_heartbeat_to_one_that_leads(tmp_path: Path) -> None:
    """It takes connections and answers nothing, like one that was stopped (SIGSTOP)."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    hung = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Trio(tmp_path, {"controllerHeartBeatTimeoutMills": "1500"}) as trio:
        both = {"controllerAddr": f"{hung};{trio.controller_address}"}
        for number in (1, 2):
            await trio.start(number, both)
        await trio.in_sync(1, 2)
        replication = replication_of(trio.nodes[1])
        lowest_s = 1.5
        for _ in range(60):
            await asyncio.sleep(0.05)
            lowest_s = min(lowest_s, replication.lease.remaining_s())
        assert lowest_s > 0, "a lease ran out"
        assert (1, 1) == (trio.decided.master_id, trio.decided.master_epoch)
        await send(trio, "one")
    server.close()


@pytest.mark.parametrize("damage", [b"", b"2\n0\n1-0\n", b"1\n7\n1-0\n", b"\xff\xfe", b"2\n0\n5-9\n4-3\n"])
async def test_a_damaged_epoch_file_is_refused_unless_its_backup_is_sound(damage: bytes, tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all(2)
        await send(trio, "one")
        await trio.level()
        await trio.stop(2)
        path = tmp_path / "broker-2" / "epochFileCheckpoint"
        sound = path.read_bytes()
        path.write_bytes(damage)
        path.with_name("epochFileCheckpoint.bak").unlink(missing_ok=True)
        with pytest.raises(EpochFileDamaged, match="delete its store"):
            await trio.start(2)
        path.with_name("epochFileCheckpoint.bak").write_bytes(sound)
        await trio.start(2)
        await trio.in_sync(1, 2)


def test_an_epoch_that_could_not_be_written_has_not_begun(tmp_path: Path) -> None:
    """The second try found it in memory and wrote nothing: messages went under an epoch that the file did not know."""

    class FullForOnce(Disk):
        is_full = True

        def write(self, path: Path, data: bytes) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(path, data)

    disk = FullForOnce()
    epochs = EpochFile(tmp_path / "epochFileCheckpoint", disk)
    with pytest.raises(OSError, match="No space"):
        epochs.append(3, 100)
    disk.is_full = False
    epochs.append(3, 100)
    found = EpochFile(tmp_path / "epochFileCheckpoint", Disk())
    found.load()
    assert [Epoch(3, 100)] == found.epochs == epochs.epochs


async def test_the_identity_of_another_broker_is_refused(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all(1)
        await trio.stop(1)
        path = tmp_path / "broker-1" / "brokerIdentity"
        path.write_text("DefaultCluster#broker-z#1")
        with pytest.raises(ConfigError, match="identity of broker broker-z"):
            await trio.start(1)
        path.write_text("nonsense")
        with pytest.raises(ConfigError, match="damaged"):
            await trio.start(1)


async def test_a_controller_that_lost_its_data_makes_no_second_master(tmp_path: Path) -> None:
    """The brokers go on as they are; what is new to the controller gets no role in the old set."""
    async with Trio(tmp_path) as trio:
        await trio.start_all(2)
        await trio.stop(1)
        await trio.master()
        assert trio.above.controller is not None
        controller = trio.above.controller
        kept = controller.decider._mirror["broker-a"]
        await controller.storage.commit("broker-a", kept.revision, None)
        controller.decider.changed_elsewhere("broker-a", None)
        master = broker_of(trio.nodes[2])
        epoch = replication_of(trio.nodes[2]).epoch
        await until(lambda: not controller.decider.all())
        await send(trio, "goes on")
        assert (True, epoch) == (master.role.is_master, replication_of(trio.nodes[2]).epoch)


async def switch(trio: Trio, broker_id: int) -> Command:
    """As an operator asks for it."""
    header = ElectMaster(
        cluster_name="DefaultCluster", broker_name="broker-a", broker_id=broker_id, designate_elect=True
    )
    client = RemotingClient()
    try:
        command = Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        return await client.invoke(trio.controller_address, command, 5)
    finally:
        await client.close()


async def test_a_planned_switch_fails_no_send(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await send(trio, "first")
        is_over = False
        statuses: list[str] = []

        async def keep_sending(key: int) -> None:
            number = 0
            async with trio.producer() as producer:
                while not is_over:
                    receipt = await producer.send(TOPIC, f"{key}:{number}".encode())
                    statuses.append(receipt.status.name)
                    number += 1

        senders = [asyncio.ensure_future(keep_sending(key)) for key in range(4)]
        for target in (2, 3, 1):
            await until(lambda: len(statuses) > 20)
            answer = await switch(trio, target)
            assert ResponseCode.SUCCESS == answer.code, answer.remark
            assert broker_of(trio.nodes[target]) is broker_of(await trio.master())
            statuses_before = len(statuses)
            await until(lambda: len(statuses) > statuses_before + 20)  # noqa: B023
            await trio.in_sync(1, 2, 3)
        is_over = True
        await asyncio.gather(*senders)
        assert {"SEND_OK"} == set(statuses)
        await trio.level()
        assert trio.log(1) == trio.log(2) == trio.log(3)


async def test_sends_to_a_new_master_wait_until_a_slave_has_joined_its_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with a set of one, and minInSyncReplicas=2 would refuse what comes before its slaves."""
    monkeypatch.setattr("arrowmq.replica.controlled.replication.GATHER_S", 30)
    async with Trio(tmp_path, {"minInSyncReplicas": "2"}) as trio:
        await trio.start_all()
        await send(trio, "before")
        may_join = asyncio.Event()
        for number in (1, 3):
            hold_back(replication_of(trio.nodes[number]), may_join)
        answer = await switch(trio, 2)
        assert ResponseCode.SUCCESS == answer.code, answer.remark
        master = replication_of(trio.nodes[2])
        await until(lambda: master.broker.role.is_master)
        assert {2} == set(trio.decided.sync_state_set)
        sending = asyncio.ensure_future(send_to(master.broker, "while it is alone"))
        await until(lambda: master.forwarding.waiting == 1)
        may_join.set()
        answer = await sending
        assert ResponseCode.SUCCESS == answer.code, answer.remark
        assert len(trio.decided.sync_state_set) > 1
        await has_all(trio, "before", "while it is alone")


async def test_only_so_much_waits_for_a_new_master_and_the_rest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrowmq.replica.controlled.forwarding.MOST_WAITING_BYTES", 10)
    monkeypatch.setattr("arrowmq.replica.controlled.replication.GATHER_S", 30)
    async with Trio(tmp_path, {"minInSyncReplicas": "2"}) as trio:
        await trio.start_all()
        await send(trio, "before")
        may_join = asyncio.Event()
        for number in (1, 3):
            hold_back(replication_of(trio.nodes[number]), may_join)
        await switch(trio, 2)
        master = replication_of(trio.nodes[2])
        await until(lambda: master.broker.role.is_master)
        first = asyncio.ensure_future(send_to(master.broker, "as much as may wait"))
        await until(lambda: master.forwarding.waiting == 1)
        assert "in-sync replicas not enough" == (await send_to(master.broker, "more")).remark
        may_join.set()
        assert ResponseCode.SUCCESS == (await first).code


async def test_a_new_master_to_which_nobody_comes_refuses_what_waited(tmp_path: Path) -> None:
    async with Trio(tmp_path, {"minInSyncReplicas": "2"}) as trio:
        await trio.start_all()
        await send(trio, "before")
        for number in (1, 3):
            hold_back(replication_of(trio.nodes[number]), asyncio.Event())
        await switch(trio, 2)
        master = replication_of(trio.nodes[2])
        await until(lambda: master.broker.role.is_master)
        end = master.broker.store.appended
        answer = await send_to(master.broker, "while it is alone")
        assert "in-sync replicas not enough" == answer.remark
        assert end == master.broker.store.appended


def hold_back(replication: ControlledReplication, may_join: asyncio.Event) -> None:
    """As a slave, it finds its master only then."""
    find = replication.follower._find_ha_address

    async def find_later(address: str) -> str:
        await may_join.wait()
        return await find(address)

    replication.follower._find_ha_address = find_later


async def send_to(broker: Broker, body: str) -> Command:
    header = {
        "producerGroup": "p", "topic": TOPIC, "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "properties": "",
    }  # fmt: skip
    client = RemotingClient()
    try:
        command = Command.request(RequestCode.SEND_MESSAGE, header, body.encode())
        return await client.invoke(broker.address.text, command, 5)
    finally:
        await client.close()


async def test_a_send_to_a_slave_reaches_its_master(tmp_path: Path) -> None:
    """A client whose route is old."""
    async with Trio(tmp_path) as trio:
        await trio.start_all(2)
        await send(trio, "first")
        answer = await send_to(broker_of(trio.nodes[2]), "by the slave")
        assert ResponseCode.SUCCESS == answer.code, answer.remark
        await has_all(trio, "first", "by the slave")


async def test_our_producer_waits_for_the_next_master_instead_of_failing(tmp_path: Path) -> None:
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        sent: list[str] = []
        is_over = False

        async def keep_sending() -> None:
            async with trio.producer() as producer:
                while not is_over:
                    sent.append((await producer.send(TOPIC, f"{len(sent)}".encode())).status.name)

        sender = asyncio.ensure_future(keep_sending())
        await until(lambda: len(sent) > 20)
        await trio.stop(1)
        await trio.master()
        so_far = len(sent)
        await until(lambda: len(sent) > so_far + 20 or sender.done())
        is_over = True
        await sender
        assert len(sent) > so_far
        # Its slaves were told to leave: what was under way then is stored, and said not to be at all of them.
        assert {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"} >= set(sent)


async def test_our_producer_turns_from_a_master_that_hangs_to_the_next(tmp_path: Path) -> None:
    """The connection stays, no answer comes, and the time of the send is far from over."""
    async with Trio(tmp_path) as trio:
        await trio.start_all()
        await send(trio, "before")
        assert trio.above.controller is not None
        swallowed: list[Call] = []

        def hang(call: Call) -> None:
            swallowed.append(call)
            raise TakenOver

        hung = broker_of(trio.nodes[1])
        async with arrowmq.Producer(trio.above.namesrv_address, timeout_s=60) as producer:
            await producer.send(TOPIC, b"known to it")
            hung.hooks.add(hang, Touches(codes=(RequestCode.SEND_MESSAGE_V2,)), is_first=True)
            sending = asyncio.ensure_future(producer.send(TOPIC, b"after"))
            await until(lambda: bool(swallowed))
            await trio.above.controller.failover.elect("broker-a", 2, is_designated=True, reason="test")
            receipt = await asyncio.wait_for(sending, 20)
        assert "SEND_OK" == receipt.status.name
        await has_all(trio, "before", "known to it", "after")


async def test_progress_of_services_counts_once_the_next_master_has_what_it_rests_on(tmp_path: Path) -> None:
    """A master that was cut off asked about a transaction anew, and delivered a delayed message: its slave has neither.
    When that is master, the transaction is still open, and the message still waits."""
    async with Trio(tmp_path, {"syncFlushTimeout": "200", "transactionTimeOut": "1"}) as trio:
        await trio.start_all(2)
        await send(trio, "first")
        master, slave = trio.nodes[1], trio.nodes[2]
        async with trio.producer() as producer:
            half = producer._pack(arrowmq.Message(TOPIC, b"half"))
            producer._transactions.prepare(half)
            await producer.send_half(half, None)
            await producer.send(TOPIC, b"late", delay_level=1)
        await trio.level()
        replication_of(master).feeds._wants_set = lambda members: None  # so the slave stays in the set
        await replication_of(slave).follower.stop()
        services = broker_of(master).services
        await until(lambda: services.delay_levels.delivered == 1)
        await services.transaction_checks.round()
        assert 2 == broker_of(master).store.queue(HALF_TOPIC, 0).next_offset  # it was renewed
        assert not broker_of(master).offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
        assert not any(services.delay_levels.kept_offsets().values())
        assert trio.above.controller is not None
        await replication_of(slave).tables.round()
        await trio.above.controller.failover.elect("broker-a", 2, is_designated=True, reason="test")
        await until(lambda: broker_of(slave).role.is_master)
        assert 0 == broker_of(slave).services.transactions.transactions.next_open(0)
        await has_all(trio, "first", "late")

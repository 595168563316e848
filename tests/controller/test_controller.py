"""A controller over its port: brokers come, are lost and come back; nobody but a member of the set follows a master."""

from __future__ import annotations

from played_broker import PlayedBroker, elected
from stage import Stage

from arrowmq.clock import VirtualClock
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicasInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import CleanBrokerData, GetMetaDataResult
from arrowmq.wire.headers.declare import decode_header
from waiting import until


async def trio(stage: Stage, **options: object) -> tuple[PlayedBroker, PlayedBroker, PlayedBroker]:
    """Three brokers, the first of them master, all in sync."""
    first, second, third = [await stage.broker(**options) for _ in range(3)]
    for broker in (first, second, third):
        await broker.join()
    assert ResponseCode.SUCCESS == (await first.alter(1, 2, 3)).code
    return first, second, third


async def master_of(broker: PlayedBroker) -> tuple[int | None, int | None]:
    info, _ = await broker.replica_info()
    return info.master_broker_id, info.master_epoch


async def test_brokers_get_ids_in_turn_and_the_first_is_master(stage: Stage) -> None:
    await stage.start()
    first, second, third = await trio(stage)
    assert [1, 2, 3] == [broker.broker_id for broker in (first, second, third)]
    assert (1, 1) == await master_of(third)


async def test_a_master_whose_process_ends_is_followed_at_once_and_all_hear_of_it(stage: Stage) -> None:
    await stage.start()
    first, second, third = await trio(stage)
    third.max_offset = 10
    await third.beat()
    await first.stop()
    await third.noticed.wait()
    await until(lambda: [2] == [notice.master_epoch for notice in second.notices if notice.master_epoch == 2])
    assert (3, third.address) == (third.notices[-1].master_broker_id, third.notices[-1].master_address)
    assert (3, 2) == await master_of(second)


async def test_a_master_that_only_lost_its_connection_stays(stage: Stage) -> None:
    await stage.start()
    first, second, _ = await trio(stage)
    await first.hang_up()
    await first.beat()
    await second.stop()  # its end is noticed after the other one
    assert stage.controller is not None
    controller = stage.controller
    await until(lambda: len(controller.liveness) == 2)
    assert (1, 1) == await master_of(first)


async def test_a_silent_master_keeps_its_role_no_longer_than_its_lease(stage: Stage) -> None:
    """Nothing listens for the end of its process here: it hangs. The lease alone decides."""
    clock = VirtualClock()
    await stage.start(clock)
    _, second, third = await trio(stage, lease_ms=2000)
    await clock.advance(1.5)
    await second.beat()
    await third.beat()
    assert (1, 1) == await master_of(second)
    await clock.advance(0.6)
    await second.noticed.wait()
    await until(lambda: bool(third.notices))
    assert (2, 2) == await master_of(third)
    assert stage.controller is not None
    switch = stage.controller.decider.all()["b"].switches[-1]
    assert "lease" in switch.reason


async def test_a_controller_that_stood_still_gives_everybody_another_lease(stage: Stage) -> None:
    """Heartbeats that came in meanwhile are still in the sockets: nobody is taken for dead because of it."""
    clock = VirtualClock()
    await stage.start(clock)
    first, second, _ = await trio(stage, lease_ms=2000)
    clock.skip(60)
    await clock.advance(0)
    await first.beat()
    assert (1, 1) == await master_of(second)


async def test_a_leap_of_the_wall_clock_changes_nothing(stage: Stage) -> None:
    class LeapingClock(VirtualClock):
        leap_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.leap_ms

    clock = LeapingClock()
    await stage.start(clock)
    first, _, _ = await trio(stage, lease_ms=2000)
    for leap_ms in (10**9, -(10**9)):
        clock.leap_ms = leap_ms
        await clock.advance(0.5)
        assert (1, 1) == await master_of(first)


async def test_a_master_that_restarts_gets_a_new_epoch_or_loses_its_role(stage: Stage) -> None:
    """It may have lost the end of its log: in the old epoch the others would take its new bytes for the same."""
    await stage.start()
    first, second, third = await trio(stage)
    await first.register()
    assert (2, 2) == await master_of(first)
    await second.alter(2)
    for broker in (first, third):
        await broker.stop()
    await second.register()
    assert (2, 4) == await master_of(second)


async def test_a_restarted_controller_remembers_and_gives_masters_time_to_be_heard(stage: Stage) -> None:
    clock = VirtualClock()
    await stage.start(clock)
    first, second, third = await trio(stage, lease_ms=2000)
    await stage.stop()
    controller = await stage.start(clock)
    for broker in (first, second, third):
        broker.controller = controller.address
    await second.beat()
    await third.beat()
    await clock.advance(1.9)
    assert (1, 1) == await master_of(second)
    await first.beat()
    await second.beat()
    await third.beat()
    await clock.advance(1.0)
    assert (1, 1) == await master_of(second)


async def test_a_restarted_controller_misses_a_master_that_is_gone(stage: Stage) -> None:
    clock = VirtualClock()
    await stage.start(clock)
    first, second, _ = await trio(stage, lease_ms=2000)
    await first.stop()
    await stage.stop()
    controller = await stage.start(clock)
    second.controller = controller.address
    await second.beat()

    async def is_elected() -> bool:
        await clock.advance(0.5)
        await second.beat()
        return (await master_of(second))[0] == 2

    await until(is_elected)


async def test_a_controller_that_begins_to_lead_waits_for_no_master_whose_process_has_ended(
    stage: Stage,
) -> None:
    """No time passes for it, so no lease can end."""
    clock = VirtualClock()
    await stage.start(clock)
    first, second, third = await trio(stage, lease_ms=10_000)
    await stage.stop()
    await first.stop()
    controller = await stage.start(clock)
    for broker in (second, third):
        broker.controller = controller.address
        await broker.beat()

    async def is_elected() -> bool:
        return (await master_of(second))[0] in (2, 3)

    await until(is_elected)


async def test_a_set_without_a_master_gets_one_when_a_member_of_the_set_is_back(stage: Stage) -> None:
    await stage.start()
    first, second, third = await trio(stage)
    await first.alter(1)
    await first.stop()
    observer = third

    async def is_without() -> bool:
        return (await master_of(observer))[0] is None

    await until(is_without)
    await second.beat()
    assert (None, 2) == await master_of(observer)
    back = await stage.broker()
    back.broker_id = 1
    await back.beat()

    async def is_back() -> bool:
        return await master_of(observer) == (1, 3)

    await until(is_back)


async def test_the_designated_broker_takes_over_from_a_live_master(stage: Stage) -> None:
    await stage.start()
    first, _, third = await trio(stage)
    answer = await first.elect(3, is_designated=True)
    assert (3, 2) == (elected(answer).master_broker_id, elected(answer).master_epoch)
    await until(lambda: first.notices and first.notices[-1].master_broker_id == 3)
    await until(lambda: third.notices and third.notices[-1].master_broker_id == 3)


async def test_heartbeats_say_whether_a_leader_heard_them(stage: Stage) -> None:
    await stage.start()
    broker = await stage.broker()
    await broker.join()
    assert "true" == (await broker.beat())["isLeader"]


async def test_what_mqadmin_asks(stage: Stage) -> None:
    controller = await stage.start(controllerDLegerSelfId="n7")
    first, _, third = await trio(stage)
    await first.alter(1, 2)
    metadata = decode_header(GetMetaDataResult, (await first.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).ext)
    assert ("n7", controller.address, True) == (
        metadata.controller_leader_id,
        metadata.controller_leader_address,
        metadata.is_leader,
    )
    assert f"n7:{controller.address};" == metadata.peers
    answer = await first.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["b","unheard"]')
    replicas = fastjson.loads(answer.body, BrokerReplicasInfo).replicas_info_table
    assert ["b"] == list(replicas)
    assert [1, 2] == [replica.broker_id for replica in replicas["b"].in_sync_replicas]
    assert [(3, True)] == [(replica.broker_id, replica.alive) for replica in replicas["b"].not_in_sync_replicas]
    config = await first.ask(RequestCode.GET_CONTROLLER_CONFIG)
    assert b"enableElectUncleanMaster=false" in config.body
    update = await first.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"enableElectUncleanMaster=true\n")
    assert ResponseCode.SUCCESS == update.code
    assert controller.config.enable_elect_unclean_master
    await third.stop()
    clean = CleanBrokerData(broker_name="b", broker_controller_ids_to_clean="3")

    async def is_clean() -> bool:
        return (await first.ask(RequestCode.CLEAN_BROKER_DATA, clean)).code == ResponseCode.SUCCESS

    await until(is_clean)
    assert {1, 2} == controller.decider.all()["b"].replicas.keys()


async def test_bad_requests_are_refused_with_a_sentence(stage: Stage) -> None:
    await stage.start()
    broker = await stage.broker()
    for code, body in (
        (RequestCode.CONTROLLER_APPLY_BROKER_ID, b""),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b""),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b"{"),
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, b"nonsense"),
        (RequestCode.CONTROLLER_ELECT_MASTER, b""),
        (RequestCode.CONTROLLER_REGISTER_BROKER, b""),
        (RequestCode.BROKER_HEARTBEAT, b""),
        (RequestCode.UPDATE_CONTROLLER_CONFIG, b"configStorePath=/etc/passwd"),
        (RequestCode.UPDATE_CONTROLLER_CONFIG, b"listenPort=1"),
        (RequestCode.UPDATE_CONTROLLER_CONFIG, b"scanInactiveMasterInterval=soon"),
        (RequestCode.SEND_MESSAGE, b""),
    ):
        answer = await broker.ask(code, body=body)
        assert ResponseCode.SUCCESS != answer.code, code
        assert answer.remark, code

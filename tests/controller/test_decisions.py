"""What each request does to a broker set; no controller runs here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.controller.broker_sets import BrokerSet, BrokerSetError, Replica, decode, encode
from arrowmq.controller.decisions import (
    Decision,
    Election,
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    elect_master,
    register_broker,
)
from arrowmq.controller.election import Standing, elect
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ElectMasterResultBody, SyncStateSet
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, RegisterBrokerToController


def application(broker_id: int, code: str = "", name: str = "b", cluster: str = "c") -> ApplyBrokerId:
    check_code = code or f"h:{broker_id};{broker_id}"
    return ApplyBrokerId(
        cluster_name=cluster, broker_name=name, applied_broker_id=broker_id, register_check_code=check_code
    )


def election(broker_id: int | None = None, **options: Any) -> Election:
    values = {"is_designated": False, "is_unclean_allowed": False, "reason": "test", "at_ms": 1, **options}
    return Election(broker_id, **values)


def trio(**fields: Any) -> BrokerSet:
    """Three brokers, 1 the master of epoch 1, all in sync."""
    replicas = {number: Replica(f"h:{number}", f"h:{number};{number}") for number in (1, 2, 3)}
    values = {
        "next_broker_id": 4,
        "replicas": replicas,
        "master_id": 1,
        "master_epoch": 1,
        "sync_state_set": (1, 2, 3),
        "sync_state_set_epoch": 3,
        **fields,
    }
    return BrokerSet("c", "b", **values)


def kept(decision: Decision) -> BrokerSet:
    assert decision.kept is not None
    return decision.kept


ALL = {1: Standing(1, 100), 2: Standing(1, 100), 3: Standing(1, 90)}


def test_ids_are_given_once_and_the_same_application_twice_gives_the_same_id() -> None:
    first = kept(apply_broker_id(None, application(1)))
    assert (2, ["h:1"]) == (first.next_broker_id, [replica.address for replica in first.replicas.values()])
    assert apply_broker_id(first, application(1)).kept is first
    taken = apply_broker_id(first, application(1, "other:1;9"))
    assert ResponseCode.CONTROLLER_BROKER_ID_INVALID == taken.code
    assert taken.kept is first
    assert {1, 2} == kept(apply_broker_id(first, application(2))).replicas.keys()


def test_the_first_id_of_a_set_is_one() -> None:
    decision = apply_broker_id(None, application(2))
    assert (ResponseCode.CONTROLLER_BROKER_ID_INVALID, None) == (decision.code, decision.kept)


def test_an_id_that_was_cleaned_away_is_not_given_again() -> None:
    cleaned = kept(clean_broker_data(trio(), CleanBrokerData(broker_name="b", broker_controller_ids_to_clean="3"), {}))
    assert {1, 2} == cleaned.replicas.keys()
    assert ResponseCode.CONTROLLER_BROKER_ID_INVALID == apply_broker_id(cleaned, application(3)).code
    assert ResponseCode.SUCCESS == apply_broker_id(cleaned, application(4)).code


def test_a_broker_of_another_cluster_is_refused() -> None:
    assert ResponseCode.CONTROLLER_BROKER_ID_INVALID == apply_broker_id(trio(), application(4, cluster="d")).code


def test_who_registers_learns_of_a_live_master_only() -> None:
    request = RegisterBrokerToController(cluster_name="c", broker_name="b", broker_id=2, broker_address="h:2")
    told = register_broker(trio(), request, ALL)
    assert (1, "h:1", 1) == (told.header.master_broker_id, told.header.master_address, told.header.master_epoch)  # type: ignore[union-attr]
    untold = register_broker(trio(), request, {2: Standing()})
    assert untold.header.master_broker_id is None  # type: ignore[union-attr]
    assert [1, 2, 3] == fastjson.loads(untold.body, SyncStateSet).sync_state_set


def test_a_new_address_is_kept() -> None:
    request = RegisterBrokerToController(cluster_name="c", broker_name="b", broker_id=2, broker_address="new:2")
    assert "new:2" == kept(register_broker(trio(), request, ALL)).replicas[2].address


@pytest.mark.parametrize(("known", "broker_id"), [(None, 1), (trio(), 9), (trio(), None)])
def test_who_has_no_id_cannot_register(known: BrokerSet | None, broker_id: int | None) -> None:
    request = RegisterBrokerToController(cluster_name="c", broker_name="b", broker_id=broker_id, broker_address="h:2")
    decision = register_broker(known, request, ALL)
    assert (ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, known) == (decision.code, decision.kept)


@pytest.mark.parametrize(
    ("master", "epoch", "set_epoch", "members", "code"),
    [
        (1, 1, 3, [1, 2, 3], ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),  # nothing changes
        (2, 1, 3, [1, 2], ResponseCode.CONTROLLER_INVALID_MASTER),
        (1, 2, 3, [1, 2], ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        (1, 1, 2, [1, 2], ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        (1, 1, 3, [1, 9], ResponseCode.CONTROLLER_INVALID_REPLICAS),
        (1, 1, 3, [1, 3], ResponseCode.CONTROLLER_BROKER_NOT_ALIVE),
        (1, 1, 3, [2], ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),  # without the master
    ],
)
def test_a_sync_state_set_is_refused_by_code(
    master: int, epoch: int, set_epoch: int, members: list[int], code: int
) -> None:
    request = AlterSyncStateSet(broker_name="b", master_broker_id=master, master_epoch=epoch)
    wanted = SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch)
    known = trio()
    decision = alter_sync_state_set(known, request, wanted, {1: Standing(), 2: Standing()})
    assert (code, known) == (decision.code, decision.kept)


def test_the_master_changes_the_sync_state_set_and_its_epoch_rises() -> None:
    request = AlterSyncStateSet(broker_name="b", master_broker_id=1, master_epoch=1)
    decision = alter_sync_state_set(trio(), request, SyncStateSet(sync_state_set=[2, 1], sync_state_set_epoch=3), ALL)
    assert ((1, 2), 4) == (kept(decision).sync_state_set, kept(decision).sync_state_set_epoch)
    body = fastjson.loads(decision.body, SyncStateSet)
    assert ([1, 2], 4) == (body.sync_state_set, body.sync_state_set_epoch)


def test_the_first_master_is_who_asks() -> None:
    fresh = trio(master_id=None, master_epoch=0, sync_state_set=(), sync_state_set_epoch=0)
    decision = elect_master(fresh, election(2), {})
    assert (2, 1, (2,)) == (kept(decision).master_id, kept(decision).master_epoch, kept(decision).sync_state_set)
    group = fastjson.loads(decision.body, ElectMasterResultBody).broker_member_group
    assert group is not None
    assert {1: "h:1", 2: "h:2", 3: "h:3"} == group.broker_addrs


def test_a_first_master_that_is_no_replica_is_refused() -> None:
    fresh = trio(master_id=None, master_epoch=0, sync_state_set=(), sync_state_set_epoch=0)
    assert ResponseCode.CONTROLLER_ELECT_MASTER_FAILED == elect_master(fresh, election(9), {}).code


def test_a_live_master_stays() -> None:
    known = trio()
    decision = elect_master(known, election(2), ALL)
    assert (ResponseCode.CONTROLLER_MASTER_STILL_EXIST, known) == (decision.code, decision.kept)
    assert 1 == decision.header.master_broker_id  # type: ignore[union-attr]


def test_a_dead_master_is_followed_by_the_member_with_most() -> None:
    decision = elect_master(trio(), election(), {2: Standing(1, 50), 3: Standing(1, 60)})
    assert (3, 2, (3,), 4) == (
        kept(decision).master_id,
        kept(decision).master_epoch,
        kept(decision).sync_state_set,
        kept(decision).sync_state_set_epoch,
    )
    assert (1, 3, 2) == (
        kept(decision).switches[-1].previous_id,
        kept(decision).switches[-1].master_id,
        kept(decision).switches[-1].epoch,
    )


def test_nobody_outside_the_sync_state_set_is_elected_unless_that_is_allowed() -> None:
    known = trio(sync_state_set=(1,))
    decision = elect_master(known, election(), {2: Standing(1, 50)})
    assert ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE == decision.code
    assert (None, 2, (1,)) == (kept(decision).master_id, kept(decision).master_epoch, kept(decision).sync_state_set)
    again = elect_master(kept(decision), election(), {2: Standing(1, 50)})
    assert again.kept is decision.kept, "a set without a master does not get a new epoch with every look"
    assert ResponseCode.CONTROLLER_ELECT_MASTER_FAILED == elect_master(known, election(2), {2: Standing(1, 50)}).code
    allowed = elect_master(known, election(is_unclean_allowed=True), {2: Standing(1, 50)})
    assert 2 == kept(allowed).master_id


def test_a_designated_broker_is_elected_if_it_is_in_sync_and_else_nobody() -> None:
    assert 3 == kept(elect_master(trio(), election(3, is_designated=True), ALL)).master_id
    known = trio(sync_state_set=(1, 2))
    decision = elect_master(known, election(3, is_designated=True), ALL)
    assert (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, known) == (decision.code, decision.kept)


def test_a_controller_that_lost_its_data_elects_nobody_by_itself() -> None:
    """A broker says that it has seen epoch 7: whoever is elected at epoch 1 would cut what was acknowledged since."""
    fresh = trio(master_id=None, master_epoch=0, sync_state_set=(), sync_state_set_epoch=0)
    alive = {1: Standing(7, 100), 2: Standing(6, 50)}
    for asked in (election(), election(2)):
        decision = elect_master(fresh, asked, alive)
        assert (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, fresh) == (decision.code, decision.kept)
        assert decision.remark is not None
        assert "epoch 7" in decision.remark
    designated = kept(elect_master(fresh, election(1, is_designated=True), alive))
    assert (1, 8, (1,)) == (designated.master_id, designated.master_epoch, designated.sync_state_set)


@pytest.mark.parametrize(
    ("standings", "chosen"),
    [
        ({2: Standing(2, 10), 3: Standing(1, 99)}, 2),
        ({2: Standing(2, 10), 3: Standing(2, 99)}, 3),
        ({2: Standing(2, 99, priority=5), 3: Standing(2, 99, priority=1)}, 3),
        ({2: Standing(2, 99), 3: Standing(2, 99)}, 2),
        ({2: Standing(1, 2**40), 3: Standing(1, 1)}, 2),  # more than an int apart: Apache's difference overflows
    ],
)
def test_epoch_then_bytes_then_priority_then_id(standings: dict[int, Standing], chosen: int) -> None:
    assert chosen == elect(trio(master_epoch=2), standings, designated=None, is_unclean_allowed=False)


def test_a_living_set_is_cleaned_only_if_that_is_said() -> None:
    known = trio()
    refusal = clean_broker_data(known, CleanBrokerData(broker_name="b"), ALL)
    assert (ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, known) == (refusal.code, refusal.kept)
    said = CleanBrokerData(broker_name="b", is_clean_living_broker=True)
    assert clean_broker_data(known, said, ALL).kept is None
    living = CleanBrokerData(broker_name="b", broker_controller_ids_to_clean="2")
    assert known is clean_broker_data(known, living, ALL).kept
    wrong = clean_broker_data(known, CleanBrokerData(broker_name="b", broker_controller_ids_to_clean="two"), ALL)
    assert ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA == wrong.code
    unknown = clean_broker_data(None, CleanBrokerData(broker_name="b", is_clean_living_broker=True), {})
    assert ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA == unknown.code


def test_what_is_kept_is_read_back_and_nonsense_is_not() -> None:
    assert trio() == decode(encode(trio()))
    for nonsense in (b"", b"{}", b"\xff", encode(trio()).replace(b'"masterId":1', b'"masterId":9')):
        with pytest.raises(BrokerSetError):
            decode(nonsense)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("alter"), st.integers(1, 3), st.sets(st.integers(1, 3))),
        st.tuples(st.just("lives"), st.integers(1, 3), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_whatever_is_asked_an_epoch_has_one_master_and_only_members_of_the_set_follow(steps: list[Any]) -> None:
    """The promise of the whole: one master an epoch, and each new one was a member of the set before."""
    known = trio()
    masters: dict[int, int | None] = {1: 1}
    alive = dict(ALL)
    for kind, number, more in steps:
        if kind == "lives":
            alive = {**alive, number: Standing(1, number)} if more else {k: v for k, v in alive.items() if k != number}
            continue
        if kind == "elect":
            decision = elect_master(known, election(number or None, is_designated=more and number > 0), alive)
        else:
            request = AlterSyncStateSet(broker_name="b", master_broker_id=number, master_epoch=known.master_epoch)
            wanted = SyncStateSet(sync_state_set=list(more), sync_state_set_epoch=known.sync_state_set_epoch)
            decision = alter_sync_state_set(known, request, wanted, alive)
        after = kept(decision)
        assert after.master_epoch - known.master_epoch in (0, 1)
        if after.master_epoch == known.master_epoch:
            assert masters[after.master_epoch] == after.master_id
        else:
            masters[after.master_epoch] = after.master_id
            assert after.master_id is None or after.master_id in known.sync_state_set
        assert after == msgspec.structs.replace(after), "the invariants of a broker set hold"
        known = after

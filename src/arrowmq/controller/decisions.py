"""What a request does to a broker set: an answer, and the set as it is to be kept. No I/O, no clock.

Each function takes the set as it stands (None where there is none) and gives a `Decision`. A decision that changes
something is told to nobody before it is kept. The order of the checks and the codes are Apache's; where Apache's
controller would accept what cannot be (a first master that is no replica), it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from arrowmq.controller.broker_sets import FIRST_BROKER_ID, MAX_SWITCHES, BrokerSet, Replica, Switch
from arrowmq.controller.election import Alive, elect
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerMemberGroup, ElectMasterResultBody, SyncStateSet
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import (
    AlterSyncStateSet,
    AlterSyncStateSetResult,
    ApplyBrokerId,
    ApplyBrokerIdResult,
    CleanBrokerData,
    ElectMasterResult,
    RegisterBrokerToController,
    RegisterBrokerToControllerResult,
)
from arrowmq.wire.headers.declare import Header


@dataclass(frozen=True, slots=True)
class Decision:
    """`kept` is the set after it: the same object if nothing changed, None if there is none any more."""

    kept: BrokerSet | None
    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None


def refused(kept: BrokerSet | None, code: int, remark: str, header: Header | None = None) -> Decision:
    return Decision(kept, code, header, remark=remark)


# --- ids and registration -------------------------------------------------------------------------------------------


def next_broker_id(broker_set: BrokerSet | None) -> int:
    return FIRST_BROKER_ID if broker_set is None else broker_set.next_broker_id


def apply_broker_id(broker_set: BrokerSet | None, request: ApplyBrokerId) -> Decision:
    """A broker takes an id for good; the check code lets it repeat a request whose answer it did not get."""
    name, cluster, broker_id = request.broker_name, request.cluster_name, request.applied_broker_id
    check_code = request.register_check_code
    if not name or not cluster or broker_id is None or not check_code:
        return refused(
            broker_set,
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            "a broker id is applied for with clusterName, brokerName, appliedBrokerId and registerCheckCode",
        )
    answer = ApplyBrokerIdResult(cluster_name=cluster, broker_name=name)
    replica = Replica(check_code.partition(";")[0], check_code)
    if broker_set is None:
        if broker_id != FIRST_BROKER_ID:
            remark = f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: "
            return refused(None, ResponseCode.CONTROLLER_BROKER_ID_INVALID, f"{remark}{broker_id}", answer)
        made = BrokerSet(cluster, name, next_broker_id=FIRST_BROKER_ID + 1, replicas={broker_id: replica})
        return Decision(made, header=answer)
    owner = broker_set.replicas.get(broker_id)
    if owner is not None and owner.check_code != check_code:
        remark = f"Fail to apply brokerId: {broker_id} in broker-set: {name}"
        return refused(broker_set, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, answer)
    if owner is not None:
        return Decision(broker_set, header=answer)
    if broker_set.cluster != cluster:
        remark = (
            f"broker-set {name} belongs to cluster {broker_set.cluster}, not to {cluster}: correct brokerClusterName"
        )
        return refused(broker_set, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, answer)
    if broker_id < broker_set.next_broker_id:
        # The id of a replica that was cleaned away: whoever comes back with its old log must not find it in use.
        remark = (
            f"brokerId {broker_id} of broker-set {name} was given once and is not given again: ask for the next one"
        )
        return refused(broker_set, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, answer)
    kept = msgspec.structs.replace(
        broker_set, next_broker_id=broker_id + 1, replicas={**broker_set.replicas, broker_id: replica}
    )
    return Decision(kept, header=answer)


def register_broker(broker_set: BrokerSet | None, request: RegisterBrokerToController, alive: Alive) -> Decision:
    """A broker says that it is there, and at which address; it learns of a live master."""
    answer = RegisterBrokerToControllerResult(cluster_name=request.cluster_name, broker_name=request.broker_name)
    unregistered = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if broker_set is None:
        remark = f"Broker-set: {request.broker_name} hasn't been registered in controller"
        return refused(None, unregistered, remark, answer)
    replica = broker_set.replicas.get(-1 if request.broker_id is None else request.broker_id)
    if replica is None or request.broker_id is None:
        remark = f"BrokerId: {request.broker_id} hasn't been registered in broker-set: {request.broker_name}"
        return refused(broker_set, unregistered, remark, answer)
    kept = broker_set
    if request.broker_address and request.broker_address != replica.address:
        moved = Replica(request.broker_address, replica.check_code)
        kept = msgspec.structs.replace(broker_set, replicas={**broker_set.replicas, request.broker_id: moved})
    if kept.master_id is not None and kept.master_id in alive:
        answer.master_broker_id = kept.master_id
        answer.master_address = kept.master_address
        answer.master_epoch = kept.master_epoch
        answer.sync_state_set_epoch = kept.sync_state_set_epoch
    return Decision(kept, header=answer, body=sync_state_body(kept))


def sync_state_body(broker_set: BrokerSet) -> bytes:
    return fastjson.dumps(
        SyncStateSet(
            sync_state_set=list(broker_set.sync_state_set), sync_state_set_epoch=broker_set.sync_state_set_epoch
        )
    )


# --- the sync state set ---------------------------------------------------------------------------------------------


def alter_sync_state_set(
    broker_set: BrokerSet | None, request: AlterSyncStateSet, wanted: SyncStateSet, alive: Alive
) -> Decision:
    """The master says who is level with it; only the master of this epoch may, and only from the set as it stands."""
    answer = AlterSyncStateSetResult()
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if broker_set is None:
        return refused(None, failed, "Broker metadata is not existed", answer)

    def no(code: int, why: str) -> Decision:
        return refused(broker_set, code, f"Rejecting alter syncStateSet request because {why}", answer)

    members = tuple(sorted(set(wanted.sync_state_set)))
    if set(members) == set(broker_set.sync_state_set):
        remark = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
        return refused(broker_set, failed, remark, answer)
    if broker_set.master_id is None or broker_set.master_id != request.master_broker_id:
        current, asking = _java(broker_set.master_id), _java(request.master_broker_id)
        return no(ResponseCode.CONTROLLER_INVALID_MASTER, f"the current leader is:{{{current}}}, not {{{asking}}}")
    if broker_set.master_epoch != request.master_epoch:
        why = f"the current master epoch is:{{{broker_set.master_epoch}}}, not {{{request.master_epoch}}}"
        return no(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, why)
    if broker_set.sync_state_set_epoch != wanted.sync_state_set_epoch:
        current_epoch = broker_set.sync_state_set_epoch
        why = f"the current syncStateSet epoch is:{{{current_epoch}}}, not {{{wanted.sync_state_set_epoch}}}"
        return no(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, why)
    for member in members:
        if member not in broker_set.replicas:
            return no(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"the replicas {{{member}}} don't exist")
        if member not in alive:
            return no(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"the replicas {{{member}}} don't alive")
    if broker_set.master_id not in members:
        return no(failed, f"the newSyncStateSet don't contains origin leader {{{broker_set.master_id}}}")
    kept = msgspec.structs.replace(
        broker_set, sync_state_set=members, sync_state_set_epoch=broker_set.sync_state_set_epoch + 1
    )
    answer.new_sync_state_set_epoch = kept.sync_state_set_epoch
    return Decision(kept, header=answer, body=sync_state_body(kept))


# --- elections ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Election:
    """Who asks for one. The controller itself asks without a broker id: it may leave a set without a master."""

    broker_id: int | None
    is_designated: bool
    is_unclean_allowed: bool
    reason: str
    at_ms: int
    took_ms: int = 0


def elect_master(broker_set: BrokerSet | None, election: Election, alive: Alive) -> Decision:
    answer = ElectMasterResult()
    if broker_set is None:
        unregistered = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return refused(None, unregistered, "Broker hasn't been registered", answer)
    chosen: int | None
    foreign_epoch = max((standing.epoch for standing in alive.values()), default=-1)
    if foreign_epoch > broker_set.master_epoch:
        # The brokers have lived through elections that this controller knows nothing of: nobody but an operator can
        # say which of them has everything.
        if not (election.is_designated and election.broker_id in broker_set.replicas and election.broker_id in alive):
            remark = (
                f"broker set {broker_set.name} has a broker at epoch {foreign_epoch}, but this controller has decided "
                f"only up to epoch {broker_set.master_epoch}: its data are lost or old, and nobody is elected by "
                "itself. Restore the data, or designate the broker that has all messages (mqadmin electMaster)"
            )
            return refused(broker_set, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark, answer)
        broker_set = msgspec.structs.replace(broker_set, master_id=None, master_epoch=foreign_epoch)
        chosen = election.broker_id
    elif broker_set.is_before_first_election and election.broker_id is not None:
        chosen = election.broker_id if election.broker_id in broker_set.replicas else None
    else:
        designated = election.broker_id if election.is_designated else None
        chosen = elect(broker_set, alive, designated=designated, is_unclean_allowed=election.is_unclean_allowed)
    if chosen is not None and chosen == broker_set.master_id:
        remark = f"The old master {chosen} is still alive, not need to elect new master for broker {broker_set.name}"
        still = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        return Decision(broker_set, still, _elected(broker_set), _members_body(broker_set, with_group=False), remark)
    if chosen is not None:
        kept = _with_master(broker_set, chosen, election, alive)
        return Decision(kept, header=_elected(kept), body=_members_body(kept))
    if election.broker_id is None:
        remark = "Old master has down and failed to elect a new broker master"
        kept = broker_set if broker_set.master_id is None else _with_master(broker_set, None, election, alive)
        return refused(kept, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, remark, answer)
    return refused(broker_set, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master", answer)


def _with_master(broker_set: BrokerSet, master_id: int | None, election: Election, alive: Alive) -> BrokerSet:
    """A new epoch. Without a master the sync state set stays: only its members have all that was acknowledged."""
    epoch = broker_set.master_epoch + 1
    switch = Switch(epoch, broker_set.master_id, master_id, election.reason, election.at_ms, election.took_ms)
    standing = alive.get(-1 if master_id is None else master_id)
    lease_ms = broker_set.master_lease_ms if standing is None else standing.lease_ms
    is_elected = master_id is not None
    return msgspec.structs.replace(
        broker_set,
        master_id=master_id,
        master_epoch=epoch,
        master_lease_ms=lease_ms,
        sync_state_set=(master_id,) if master_id is not None else broker_set.sync_state_set,
        sync_state_set_epoch=broker_set.sync_state_set_epoch + is_elected,
        switches=(*broker_set.switches, switch)[-MAX_SWITCHES:],
    )


def _elected(broker_set: BrokerSet) -> ElectMasterResult:
    return ElectMasterResult(
        master_broker_id=broker_set.master_id,
        master_address=broker_set.master_address,
        master_epoch=broker_set.master_epoch,
        sync_state_set_epoch=broker_set.sync_state_set_epoch,
    )


def _members_body(broker_set: BrokerSet, *, with_group: bool = True) -> bytes:
    group = BrokerMemberGroup(
        cluster=broker_set.cluster,
        broker_name=broker_set.name,
        broker_addrs={member: replica.address for member, replica in broker_set.replicas.items()},
    )
    return fastjson.dumps(
        ElectMasterResultBody(
            broker_member_group=group if with_group else None, sync_state_set=list(broker_set.sync_state_set)
        )
    )


# --- cleaning -------------------------------------------------------------------------------------------------------


def clean_broker_data(broker_set: BrokerSet | None, request: CleanBrokerData, alive: Alive) -> Decision:
    """Forget replicas, or the whole set. What lives is forgotten only if that is said."""
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    ids: Sequence[int] = ()
    text = (request.broker_controller_ids_to_clean or "").strip()
    if not request.is_clean_living_broker:
        if not text and broker_set is not None and broker_set.master_id is not None:
            return refused(broker_set, invalid, f"Broker {request.broker_name} is still alive, clean up failure")
        try:
            ids = [int(word) for word in text.split(";")] if text else ()
        except ValueError:
            remark = f"brokerControllerIdsToClean={text}: expected broker ids separated by ;, such as 1;2"
            return refused(broker_set, invalid, remark)
        for broker_id in ids:
            if broker_id in alive:
                remark = f"Broker [{request.broker_name},  {broker_id}] is still alive, clean up failure"
                return refused(broker_set, invalid, remark)
    if broker_set is None:
        remark = f"Broker {request.broker_name} is not existed,clean broker data failure."
        return refused(None, invalid, remark)
    return Decision(_without(broker_set, ids) if ids else None)


def _without(broker_set: BrokerSet, ids: Iterable[int]) -> BrokerSet | None:
    gone = set(ids)
    replicas = {member: replica for member, replica in broker_set.replicas.items() if member not in gone}
    members = tuple(member for member in broker_set.sync_state_set if member not in gone)
    if not replicas or (broker_set.sync_state_set and not members):
        return None  # nobody is left that has all that was acknowledged
    return msgspec.structs.replace(
        broker_set,
        replicas=replicas,
        sync_state_set=members,
        master_id=None if broker_set.master_id in gone else broker_set.master_id,
    )


def _java(value: int | None) -> str:
    return "null" if value is None else str(value)

"""The requests that a controller answers: those of brokers, and those of mqadmin."""

from __future__ import annotations

import logging
from pathlib import Path

from arrowmq.config import ConfigError, format_properties, parse_properties, properties_of
from arrowmq.controller.absences import Absences
from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.config import ControllerConfig
from arrowmq.controller.decider import Decider
from arrowmq.controller.decisions import (
    Decision,
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    next_broker_id,
    register_broker,
    sync_state_body,
)
from arrowmq.controller.election import Alive
from arrowmq.controller.failover import Failover
from arrowmq.controller.liveness import Liveness, Member
from arrowmq.controller.notices import RoleNotices
from arrowmq.controller.storage import Storage
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store.disk import Disk
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicas, BrokerReplicasInfo, MasterSwitch, ReplicaIdentity, SyncStateSet
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import (
    AlterSyncStateSet,
    ApplyBrokerId,
    BrokerHeartbeat,
    CleanBrokerData,
    ElectMaster,
    GetMetaDataResult,
    GetNextBrokerId,
    GetNextBrokerIdResult,
    GetReplicaInfo,
    GetReplicaInfoResult,
    RegisterBrokerToController,
)

log = logging.getLogger(__name__)

NOBODY = -1  # the broker id of an election that names no broker


class BrokerRequests:
    """What brokers ask."""

    def __init__(self, decider: Decider, liveness: Liveness, failover: Failover, notices: RoleNotices) -> None:
        self._notices = notices
        self._decider = decider
        self._liveness = liveness
        self._failover = failover

    def _alive(self, broker_set: BrokerSet | None) -> Alive:
        return {} if broker_set is None else self._liveness.of_set(broker_set.cluster, broker_set.name)

    @handles(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    def get_next_broker_id(self, request: GetNextBrokerId) -> GetNextBrokerIdResult:
        self._decider.check_leading()
        return GetNextBrokerIdResult(
            cluster_name=request.cluster_name,
            broker_name=request.broker_name,
            next_broker_id=next_broker_id(self._decider.get(request.broker_name)),
        )

    @handles(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    async def apply_broker_id(self, request: ApplyBrokerId) -> Answer:
        decision = await self._decider.decide(request.broker_name, lambda known: apply_broker_id(known, request))
        if decision.code == ResponseCode.SUCCESS:
            log.info(
                "broker id given set=%s id=%s to=%s",
                request.broker_name,
                request.applied_broker_id,
                request.register_check_code,
            )
        return _answer(decision)

    @handles(RequestCode.CONTROLLER_REGISTER_BROKER)
    async def register_broker(self, request: RegisterBrokerToController) -> Answer:
        known = self._decider.get(request.broker_name)
        if known is not None and request.broker_id is not None:
            # Before it is told of a master: it may be the one that the set has, or had until it restarted.
            await self._failover.restarted(Member(known.cluster, known.name, request.broker_id))
        decision = await self._decider.decide(
            request.broker_name, lambda known: register_broker(known, request, self._alive(known))
        )
        if decision.code == ResponseCode.SUCCESS:
            log.info(
                "broker registered set=%s id=%s address=%s",
                request.broker_name,
                request.broker_id,
                request.broker_address,
            )
        return _answer(decision)

    @handles(RequestCode.CONTROLLER_ELECT_MASTER)
    async def elect_master(self, request: ElectMaster, call: Call) -> Answer:
        is_by_operator = request.designate_elect
        broker_id = None if request.broker_id == NOBODY else request.broker_id
        reason = f"asked for by {call.connection.peer_text}" if is_by_operator else f"asked for by broker {broker_id}"
        known = self._decider.get(request.broker_name)
        if is_by_operator and known is not None and self._can_switch(known, broker_id):
            await self._notices.step_aside(known)
        return _answer(
            await self._failover.elect(
                request.broker_name, broker_id, is_designated=request.designate_elect, reason=reason
            )
        )

    def _can_switch(self, known: BrokerSet, broker_id: int | None) -> bool:
        alive = self._alive(known)
        is_other = broker_id != known.master_id and broker_id in known.sync_state_set and broker_id in alive
        return self._decider.is_leading and known.master_id in alive and is_other

    @handles(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
    async def alter_sync_state_set(self, request: AlterSyncStateSet, call: Call) -> Answer:
        wanted = fastjson.loads(call.body, SyncStateSet)
        return _answer(
            await self._decider.decide(
                request.broker_name, lambda known: alter_sync_state_set(known, request, wanted, self._alive(known))
            )
        )

    @handles(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    def get_replica_info(self, request: GetReplicaInfo) -> Answer:
        self._decider.check_leading()
        broker_set = self._decider.get(request.broker_name)
        if broker_set is None:
            remark = "Broker metadata is not existed"
            raise Refused(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark, GetReplicaInfoResult())
        header = GetReplicaInfoResult(
            master_broker_id=broker_set.master_id,
            master_address=broker_set.master_address,
            master_epoch=broker_set.master_epoch,
        )
        return Answer(header=header, body=sync_state_body(broker_set))

    @handles(RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, request: BrokerHeartbeat, call: Call) -> Answer:
        if request.broker_id is None:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        # Taken by those that do not lead as well: they know who is alive when they begin to.
        if not self._failover.heartbeat(request, call.connection):
            raise Refused(ResponseCode.SYSTEM_ERROR, "this controller tracks as many brokers as it can already")
        # A master may go on because a leader has heard it; what one heard that has lost its lead is worth nothing.
        leads = {"isLeader": "true" if self._decider.is_leading else "false"}
        return Answer(header=leads, remark="Heart beat success")


class ToolRequests:
    """What mqadmin and `arrowmq cluster` ask."""

    def __init__(
        self, config: ControllerConfig, storage: Storage, decider: Decider, liveness: Liveness, absences: Absences
    ) -> None:
        self._absences = absences
        self._config = config
        self._storage = storage
        self._decider = decider
        self._liveness = liveness

    @handles(RequestCode.CONTROLLER_GET_METADATA_INFO)
    def get_metadata(self) -> GetMetaDataResult:
        leadership = self._storage.leadership()
        leader = leadership.leader
        return GetMetaDataResult(
            group=self._config.controller_d_leger_group,
            controller_leader_id=None if leader is None else leader.name,
            controller_leader_address=None if leader is None else leader.address,
            is_leader=leadership.is_ours,
            peers="".join(f"{peer.name}:{peer.address};" for peer in leadership.peers),
        )

    @handles(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
    def get_sync_state_data(self, call: Call) -> Answer:
        self._decider.check_leading()
        names = fastjson.loads(call.body, list[str]) if call.body else []
        if not names:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "the body, a list of broker names, is empty")
        table = {}
        for name in names:
            broker_set = self._decider.get(name)
            if broker_set is not None:
                table[name] = self._replicas_of(broker_set)
        return Answer(body=fastjson.dumps(BrokerReplicasInfo(replicas_info_table=table)))

    def _replicas_of(self, broker_set: BrokerSet) -> BrokerReplicas:
        alive = self._liveness.of_set(broker_set.cluster, broker_set.name)
        identities = {
            member: ReplicaIdentity(
                alive=member in alive,
                broker_address=replica.address,
                broker_id=member,
                broker_name=broker_set.name,
                out_of_sync_since=self._absences.since_ms(broker_set.name, member),
            )
            for member, replica in sorted(broker_set.replicas.items())
        }
        in_sync = set(broker_set.sync_state_set)
        return BrokerReplicas(
            in_sync_replicas=[identity for member, identity in identities.items() if member in in_sync],
            not_in_sync_replicas=[identity for member, identity in identities.items() if member not in in_sync],
            master_address=broker_set.master_address,
            master_broker_id=broker_set.master_id,
            master_epoch=broker_set.master_epoch,
            sync_state_set_epoch=broker_set.sync_state_set_epoch,
            switches=[
                MasterSwitch(
                    at_ms=switch.at_ms,
                    epoch=switch.epoch,
                    master_id=switch.master_id,
                    previous_id=switch.previous_id,
                    reason=switch.reason,
                    took_ms=switch.took_ms,
                )
                for switch in broker_set.switches
            ],
        )

    @handles(RequestCode.CLEAN_BROKER_DATA)
    async def clean_broker_data(self, request: CleanBrokerData, call: Call) -> Answer:
        def decide(known: BrokerSet | None) -> Decision:
            alive = {} if known is None else self._liveness.of_set(known.cluster, known.name)
            return clean_broker_data(known, request, alive)

        decision = await self._decider.decide(request.broker_name, decide)
        if decision.code == ResponseCode.SUCCESS:
            ids = request.broker_controller_ids_to_clean or "all"
            log.info("broker data cleaned set=%s ids=%s by=%s", request.broker_name, ids, call.connection.peer_text)
        return _answer(decision)

    @handles(RequestCode.GET_CONTROLLER_CONFIG)
    def get_config(self) -> Answer:
        return Answer(body=format_properties(self._config.shown()).encode())

    @handles(RequestCode.UPDATE_CONTROLLER_CONFIG)
    def update_config(self, call: Call) -> None:
        try:
            changes = parse_properties(call.body.decode("utf-8", "replace"))
            forbidden = sorted(changes.keys() & self._config.black_listed_keys)
            if forbidden:
                remark = f"Can not update config in black list. These keys are in it: {', '.join(forbidden)}"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
            unknown = self._config.update(changes)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if unknown:
            log.warning("settings ignored keys=%s reason=a controller does not know them", ",".join(unknown))
        changed = " ".join(f"{key}={changes[key]}" for key in sorted(changes))
        log.info("settings changed %s by=%s", changed, call.connection.peer_text)
        if self._config.config_store_path:
            text = format_properties(properties_of(self._config))
            Disk().write_atomically(Path(self._config.config_store_path), text.encode())


def _answer(decision: Decision) -> Answer:
    return Answer(decision.code, decision.header, decision.body, decision.remark)
